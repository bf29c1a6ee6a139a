"""Reads a pool file (pool_layout.py) of a running, hanging or dead process: without CUDA, within bounds, and without
numpy, which takes longer to load than the search of `kscope watch`.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ... import native
from ...errors import FormatError, UsageError
from ...util import processes
from .. import layout, metadata, wire
from ..model import ModuleMeta
from . import batch_check, pool_layout


@dataclass(frozen=True)
class HostLaunch:
    """A launch by the host.

    Attributes:
        number: launches of the session before it.
        kernel: the kernel's id.
        time: UNIX ns.
        stack: (file, line, function) of Python, the innermost first.
    """

    number: int
    kernel: int
    time: int
    stack: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class Pool:
    """A pool file, mapped: its memory changes while the process writes. pool_arrays.py returns its parts as arrays.

    Attributes:
        path: the file.
        header: HEADER.
        data: the whole file.
    """

    path: Path
    header: dict[str, Any]
    data: memoryview

    @property
    def pid(self) -> int:
        """The process that records."""
        return int(self.header["pid"])

    @property
    def epoch(self) -> int:
        """The session."""
        return int(self.header["epoch"])

    @property
    def state(self) -> dict[str, int]:
        """STATE, as it is now."""
        return pool_layout.STATE.read(self.data, pool_layout.STATE_AT)

    @property
    def has_ended(self) -> bool:
        """True if the session ended by itself: its records are in a capture."""
        return self.state["state"] == pool_layout.ENDED

    @property
    def is_copy(self) -> bool:
        """True if kernels write to other memory, which the keeper copies to this file on request."""
        return bool(self.header["is_copy"])

    @property
    def book(self) -> memoryview:
        """The launch table: wire.SLOTS of wire.LAUNCH."""
        return self.data[pool_layout.BOOK_AT : pool_layout.BOOK_AT + pool_layout.BOOK_BYTES]

    @property
    def pool(self) -> memoryview:
        """The pool, written by kernels, in whole units."""
        return _part(self.data, self.header, "pool", wire.UNIT)

    @property
    def kept(self) -> memoryview:
        """The ring of drained slabs, whole lines."""
        return _part(self.data, self.header, "kept", layout.LINE)

    def is_running(self) -> bool:
        """True if the process still runs."""
        return processes.is_running(self.pid, self.header["born"], self.header["boot"].decode("ascii", "replace"))


def open_pool(path: str | os.PathLike[str]) -> Pool:
    """Map a pool file.

    Raises:
        UsageError: it belongs to another user.
        FormatError: it is no pool file, or damaged.
        OSError: it cannot be read.
    """
    name = os.fspath(path)
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(file)
        if info.st_uid != os.geteuid():
            raise UsageError(f"{name}: belongs to another user (uid {info.st_uid}); only that user may read it")
        if not stat.S_ISREG(info.st_mode) or info.st_size < pool_layout.BOOK_AT + pool_layout.BOOK_BYTES:
            raise FormatError(f"{name}: not a pool file of kscope; expected one that a session with survive= made")
        data = memoryview(mmap.mmap(file, info.st_size, prot=mmap.PROT_READ))
    finally:
        os.close(file)
    first = bytes(data[: pool_layout.HEADER.itemsize])
    header = pool_layout.HEADER.read(first)
    if header["magic"] != pool_layout.FIRST or header["check"] != pool_layout.header_check(first):
        raise FormatError(f"{name}: not a pool file of kscope, of another version, or not completely written")
    for what in ("kept", "pool"):
        at, size = header[f"{what}_at"], header[f"{what}_bytes"]
        if at % 64 or at > len(data) or size > len(data) - at:
            raise FormatError(f"{name}: damaged: its {what} is {size:,} bytes at {at:,}, in a file of {len(data):,}")
    return Pool(Path(path), header, data)


def _part(data: memoryview, header: dict[str, Any], what: str, unit: int) -> memoryview:
    at, size = header[f"{what}_at"], header[f"{what}_bytes"]
    return data[at : at + size // unit * unit]


def journal(pool: Pool) -> list[dict[str, Any]]:
    """The entries of the journal, in order, up to the first one that is not complete."""
    found, at, end = list[dict[str, Any]](), pool_layout.JOURNAL_AT, pool_layout.JOURNAL_AT + pool_layout.JOURNAL_BYTES
    while at + pool_layout.ENTRY_HEAD.itemsize <= end:
        head = pool_layout.ENTRY_HEAD.read(pool.data, at)
        payload = _payload(pool.data, head, at, end) if head["number"] == len(found) else None
        if payload is None:
            break
        found.append(payload)
        at += pool_layout.ENTRY_HEAD.itemsize + -(-head["bytes"] // 16) * 16
    return found


def entry_of(entries: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The first entry of a kind; empty without any."""
    return next((one for one in entries if one.get("kind") == kind), {})


def launches(pool: Pool) -> list[HostLaunch]:
    """The last launches of the host, the newest first."""
    found = []
    for slot in range(pool_layout.LAUNCHES):
        at = pool_layout.LAUNCHES_AT + slot * pool_layout.LAUNCH_BYTES
        head = pool_layout.ENTRY_HEAD.read(pool.data, at)
        match _payload(pool.data, head, at, at + pool_layout.LAUNCH_BYTES):
            case {"kernel": int(kernel), "time": int(time), "stack": list(stack)}:
                frames = [
                    (str(one[0]), int(one[1]), str(one[2])) for one in stack if isinstance(one, list) and len(one) == 3
                ]
                found.append(HostLaunch(head["number"], kernel, time, tuple(frames)))
            case _:
                continue
    return sorted(found, key=lambda one: -one.number)


def _payload(data: memoryview, head: dict[str, Any], at: int, end: int) -> dict[str, Any] | None:
    """The entry at `at`, None unless it is complete. head: its ENTRY_HEAD, read once: the process may replace it."""
    first = at + pool_layout.ENTRY_HEAD.itemsize
    if head["magic"] != pool_layout.ENTRY or head["bytes"] > end - first:
        return None
    text = bytes(data[first : first + head["bytes"]])
    if zlib.crc32(text) != head["check"]:
        return None
    try:
        row = json.loads(text)  # orjson takes longer to load
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def modules(entries: list[dict[str, Any]]) -> tuple[ModuleMeta, ...]:
    """The modules in the journal's entries; of several entries about one module, the last."""
    found: dict[int, ModuleMeta] = {}
    for entry in entries:
        if entry.get("kind") == "module":
            meta = metadata.from_dict(entry.get("module"))
            found[meta.kernels[0].id if meta.kernels else -len(found)] = meta
    return tuple(found.values())


def slabs(pool: Pool) -> tuple[memoryview, memoryview]:
    """The slabs in the pool, in ascending order: claimed, and not yet drained.

    Returns:
        (n,) uint32, the first unit of each; (n,) uint8, log2 of its capacity in records.
    """
    if not native.available():
        from . import search_in_numpy

        return search_in_numpy.slabs(pool.pool)
    units = len(pool.pool) // wire.UNIT
    most = units // wire.slab_units(layout.MIN_LOG2_RECORDS) + units // _CHUNK + 2
    at, log2, opens, nothing = room("I", most), room("B", most), room("q", 2), memoryview(b"")
    first = room("q", 2)
    first[1] = units
    sizes = layout.MIN_LOG2_RECORDS, layout.MAX_LOG2_RECORDS
    columns = at, log2, nothing, nothing, opens, room("q", 1)
    count = native.call("claims", pool.pool, 1, first, *sizes, 0, native.threads(), *columns)
    return at[:count], log2[:count]


_CHUNK = 1 << 14
"""Units that a thread searches at a time, as in claims.c."""


def room(kind: Literal["B", "I", "q", "Q"], count: int) -> memoryview:
    """Zeroed memory for at least one number. kind: its struct code. Pages that are not written cost nothing."""
    return memoryview(mmap.mmap(-1, max(1, count) * 8)).cast(kind)


def batches(pool: Pool) -> tuple[list[memoryview], int]:
    """The bytes of each batch of drained slabs, oldest first; and the number of batches that were overwritten."""
    found, lines, at = dict[int, memoryview](), pool.kept, 0
    state, count = pool.state, len(pool.kept) // layout.LINE
    while at < count:
        head = pool_layout.ENTRY_HEAD.read(lines, at * layout.LINE)
        behind = at + 1 + head["bytes"] // layout.LINE
        if head["magic"] == pool_layout.BATCH and head["bytes"] % layout.LINE == 0 and behind <= count:
            body = lines[(at + 1) * layout.LINE : behind * layout.LINE]
            if batch_check.check(body) == head["check"]:
                found[head["number"]] = body
                at = behind
                continue
        if len(found) >= state["batches"]:  # all have been found
            break
        at = _next_batch(lines, at + 1)
    return [found[number] for number in sorted(found)], max(0, state["batches"] - len(found))


def _next_batch(lines: memoryview, at: int) -> int:
    """The next line that looks like the beginning of a batch; the number of lines if there is none."""
    if native.available():
        return native.call("seek", lines, len(lines) // layout.LINE, at, pool_layout.BATCH)
    from . import search_in_numpy

    return search_in_numpy.next_batch(lines, at)
