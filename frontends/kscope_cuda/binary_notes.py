"""Notes: names and options of kernels and regions, embedded in binaries that nvcc built.

    +-------+-------+------+------+----+----------+------+-----+------+-------+-----------+---------------+
    | magic | bytes | kind | line | id | strategy | type | log2| clock| fill  | text \\0   | file \\0       |
    +-------+-------+------+------+----+----------+------+-----+------+-------+-----------+---------------+

A note is a constant of the device code: it is in every cubin, fatbin, executable and shared object with that code, and
in a PTX text as a list of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kscope.capture import layout
from kscope.marks.grammar import PACKED_STRATEGIES, TYPES
from kscope.marks.strategies import TargetWarp

MAGIC = 0x3154_4E4B  # "KNT1" in memory
REGION, EXPLICIT, KERNEL = 1, 2, 3
"""Kinds: a region, instant or counter; a region that KSCOPE_ENTER begins; a kernel."""
SLOTS = 1 << 16
"""Registers for KSCOPE_ENTER, indexed by name hash: two names of a module must not share one."""
CLOCKS, FILLS = ("cycles", "globaltimer"), ("ring", "stop")

NOTE = np.dtype(
    [
        ("magic", "<u4"),
        ("bytes", "<u4"),  # of the note, including its texts
        ("kind", "<u4"),
        ("line", "<u4"),
        ("id", "<u8"),  # a region: name_hash(text); a kernel: HEADER["kernel"], see kernel_id()
        ("strategy", "<u8"),  # a kernel: index into PACKED_STRATEGIES, or a warp mask << 2
        ("type", "<u4"),  # a region: index of its value's type in TYPES
        ("log2_records", "<u4"),  # a kernel, like the next two, which index CLOCKS and FILLS
        ("clock", "<u4"),
        ("fill", "<u4"),
    ]
)
MAX_BYTES = 1 << 16
"""A longer note is rejected: template names are long, but not that long."""


@dataclass(frozen=True)
class Note:
    """One note. text: a region's name, or a kernel's signature."""

    kind: int
    text: str
    file: str
    line: int
    id: int
    strategy: str | None = None
    type: str | None = None
    log2_records: int = 0
    clock: str = "cycles"
    fill: str = "ring"


def kernel_id(text: bytes, file: bytes, *numbers: int) -> int:
    """A kernel's id: 64-bit FNV-1a over its zero-terminated texts, then one step per number."""
    value = layout.kernel_hash(text + b"\0" + file + b"\0")
    for number in numbers:
        value = (value ^ number) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def find(data: bytes) -> Iterator[Note]:
    """Every valid note in these bytes, in order.

    No symbol refers to a note: it is found by its magic number, and valid if its id is the hash of its text.
    """
    magic, at = MAGIC.to_bytes(4, "little"), -1
    while (at := data.find(magic, at + 1)) >= 0:
        note = _note(data, at)
        if note is not None:
            yield note


def _note(data: bytes, at: int) -> Note | None:
    if at + NOTE.itemsize > len(data):
        return None
    row = np.frombuffer(data, NOTE, 1, at)[0]
    end = at + int(row["bytes"])
    texts = data[at + NOTE.itemsize : end].split(b"\0")
    if not NOTE.itemsize + 2 <= int(row["bytes"]) <= MAX_BYTES or end > len(data) or len(texts) < 3:
        return None
    text, file, kind, code = texts[0], texts[1], int(row["kind"]), int(row["strategy"])
    line, clock, fill, log2 = (int(row[field]) for field in ("line", "clock", "fill", "log2_records"))
    type_index, number = int(row["type"]), int(row["id"])
    if kind == KERNEL:
        expected = kernel_id(text, file, line, code, log2, clock, fill)
    else:
        expected = layout.name_hash(text.decode(errors="replace"))
    valid = kind in (REGION, EXPLICIT, KERNEL) and type_index < len(TYPES) and max(clock, fill) < 2 and code < 1 << 34
    if not valid or number != expected:
        return None
    return Note(
        kind, text.decode(errors="replace"), file.decode(errors="replace"), line, number,
        _strategy(code), TYPES[type_index], log2, CLOCKS[clock], FILLS[fill],
    )  # fmt: skip


def _strategy(code: int) -> str | None:
    """The strategy of a code in the header."""
    warps = [warp for warp in range(32) if code >> 2 >> warp & 1]
    return TargetWarp(*warps).spec if warps else PACKED_STRATEGIES[code]
