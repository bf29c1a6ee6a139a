"""Notes: what an object that nvcc built says of its kernels and regions, and where they are in it.

    +-------+-------+------+------+----+----------+------+-----+------+-------+-----------+---------------+
    | magic | bytes | sort | line | id | strategy | type | log2| clock| fill  | text \\0   | file \\0       |
    +-------+-------+------+------+----+----------+------+-----+------+-------+-----------+---------------+

A note is a constant of the device code, so it is in every cubin, fatbin, executable and shared object
that holds the code, and in a PTX text as a list of numbers. Nothing points at it: a reader searches for
the magic word and believes a note whose id is the hash of its text.
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
"""Sorts: a region, instant or counter; one that KSCOPE_ENTER begins; a kernel."""
SLOTS = 1 << 16
"""Registers of explicit enters, one per name by its hash: two names in one module may not share one."""
CLOCKS, FILLS = ("cycles", "globaltimer"), ("ring", "stop")

NOTE = np.dtype(
    [
        ("magic", "<u4"),
        ("bytes", "<u4"),  # of the whole note, its texts included
        ("sort", "<u4"),
        ("line", "<u4"),
        ("id", "<u8"),  # a region: name_hash(text); a kernel: HEADER["kernel"], see kernel_id()
        ("strategy", "<u8"),  # a kernel: as marks.PACKED_STRATEGIES says
        ("type", "<u4"),  # a region: of its value, by its place in marks.TYPES
        ("log2_records", "<u4"),  # a kernel, as the next two: by its place in CLOCKS and FILLS
        ("clock", "<u4"),
        ("fill", "<u4"),
    ]
)
MOST_BYTES = 1 << 16
"""A longer note is none: templates make long names, but not that long."""


@dataclass(frozen=True)
class Note:
    """One note. text: a region's name, or a kernel as the compiler spells it, with its parameters."""

    sort: int
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
    """A kernel's id: FNV-1a over its texts with their zeros, then the numbers, each as one step."""
    value = layout.kernel_hash(text + b"\0" + file + b"\0")
    for number in numbers:
        value = (value ^ number) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def find(data: bytes) -> Iterator[Note]:
    """Every note in these bytes, in their order; what only looks like one is left out."""
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
    if not NOTE.itemsize + 2 <= int(row["bytes"]) <= MOST_BYTES or end > len(data) or len(texts) < 3:
        return None
    text, file, sort, code = texts[0], texts[1], int(row["sort"]), int(row["strategy"])
    line, clock, fill, log2 = (int(row[field]) for field in ("line", "clock", "fill", "log2_records"))
    kind, number = int(row["type"]), int(row["id"])
    if sort == KERNEL:
        expected = kernel_id(text, file, line, code, log2, clock, fill)
    else:
        expected = layout.name_hash(text.decode(errors="replace"))
    known = sort in (REGION, EXPLICIT, KERNEL) and kind < len(TYPES) and clock < 2 and fill < 2 and code < 1 << 34
    if not known or number != expected:
        return None
    return Note(
        sort, text.decode(errors="replace"), file.decode(errors="replace"), line, number,
        _strategy(code), TYPES[kind], log2, CLOCKS[clock], FILLS[fill],
    )  # fmt: skip


def _strategy(code: int) -> str | None:
    """The inverse of the header's strategy codes."""
    warps = [warp for warp in range(32) if code >> 2 >> warp & 1]
    return TargetWarp(*warps).spec if warps else PACKED_STRATEGIES[code]
