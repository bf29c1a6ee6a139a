"""Reads a pool file (pool_file.py) of a running, hanging or dead process: without CUDA, and within bounds."""

from __future__ import annotations

import mmap
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ... import native
from ...errors import FormatError, UsageError
from ...util import processes
from .. import layout, metadata, wire
from ..heads import Ints, Units, apart, is_head, log2_of, sizes
from ..model import ModuleMeta
from .pool_file import (
    BATCH,
    BOOK_AT,
    BOOK_BYTES,
    ENDED,
    ENTRY,
    ENTRY_HEAD,
    FIRST,
    HEADER,
    JOURNAL_AT,
    JOURNAL_BYTES,
    LAUNCH_BYTES,
    LAUNCHES,
    LAUNCHES_AT,
    STATE,
    STATE_AT,
    Bytes,
    header_check,
)


@dataclass(frozen=True)
class HostLaunch:
    """A launch as the host made it.

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
    """A pool file, mapped: arrays change while the process writes.

    Attributes:
        path: the file.
        header: () HEADER.
        state: (1,) STATE.
        book: (SLOTS,) wire.LAUNCH.
        units: (n, 8) uint32, the pool.
        kept: the ring of drained slabs, bytes.
        data: the whole file.
    """

    path: Path
    header: np.void
    state: np.ndarray
    book: np.ndarray
    units: Units
    kept: Bytes
    data: Bytes

    @property
    def pid(self) -> int:
        """The process that records."""
        return int(self.header["pid"])

    @property
    def epoch(self) -> int:
        """The session."""
        return int(self.header["epoch"])

    @property
    def has_ended(self) -> bool:
        """True if the session ended by itself: its records are in a capture."""
        return bool(self.state["state"][0] == ENDED)

    @property
    def is_copy(self) -> bool:
        """True if kernels write to other memory, which the keeper copies to this file on request."""
        return bool(self.header["is_copy"])

    def is_running(self) -> bool:
        """True if the process still runs."""
        return processes.is_running(self.pid, int(self.header["born"]), self.header["boot"].decode("ascii", "replace"))


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
        if not stat.S_ISREG(info.st_mode) or info.st_size < BOOK_AT + BOOK_BYTES:
            raise FormatError(f"{name}: not a pool file of kscope; expected one that a session with survive= made")
        data: Bytes = np.frombuffer(mmap.mmap(file, info.st_size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(file)
    header = data[: HEADER.itemsize].copy().view(HEADER)
    if header["magic"][0] != FIRST or header["check"][0] != header_check(header):
        raise FormatError(f"{name}: not a pool file of kscope, of another version, or not completely written")
    kept, pool = (_part(data, header[0], what, name) for what in ("kept", "pool"))
    units = pool[: len(pool) // wire.UNIT * wire.UNIT].view(np.uint32).reshape(-1, wire.UNIT // 4)
    book = data[BOOK_AT : BOOK_AT + BOOK_BYTES].view(wire.LAUNCH)
    state = data[STATE_AT : STATE_AT + STATE.itemsize].view(STATE)
    return Pool(Path(path), header[0], state, book, units, kept, data)


def _part(data: Bytes, header: np.void, what: str, name: str) -> Bytes:
    at, size = int(header[f"{what}_at"]), int(header[f"{what}_bytes"])
    if at % 64 or at > len(data) or size > len(data) - at:
        raise FormatError(f"{name}: damaged: its {what} is {size:,} bytes at {at:,}, in a file of {len(data):,}")
    return data[at : at + size]


def journal(pool: Pool) -> list[dict[str, Any]]:
    """The entries of the journal, in order, up to the first one that is not complete."""
    found, at, end = list[dict[str, Any]](), JOURNAL_AT, JOURNAL_AT + JOURNAL_BYTES
    while at + ENTRY_HEAD.itemsize <= end:
        payload = _payload(pool.data, at, end, len(found))
        if payload is None:
            break
        found.append(payload)
        at += ENTRY_HEAD.itemsize + -(-int(pool.data[at + 4 : at + 8].view("<u4")[0]) // 16) * 16
    return found


def launches(pool: Pool) -> list[HostLaunch]:
    """The last launches of the host, the newest first."""
    found = []
    for slot in range(LAUNCHES):
        at = LAUNCHES_AT + slot * LAUNCH_BYTES
        row = _payload(pool.data, at, at + LAUNCH_BYTES)
        match row:
            case {"kernel": int(kernel), "time": int(time), "stack": list(stack)}:
                number = int(pool.data[at + 8 : at + 12].view("<u4")[0])
                frames = [
                    (str(one[0]), int(one[1]), str(one[2])) for one in stack if isinstance(one, list) and len(one) == 3
                ]
                found.append(HostLaunch(number, kernel, time, tuple(frames)))
            case _:
                continue
    return sorted(found, key=lambda one: -one.number)


def _payload(data: Bytes, at: int, end: int, number: int | None = None) -> dict[str, Any] | None:
    head = data[at : at + ENTRY_HEAD.itemsize].copy().view(ENTRY_HEAD)[0]
    first = at + ENTRY_HEAD.itemsize
    size = int(head["bytes"])
    if head["magic"] != ENTRY or size > end - first or (number is not None and head["number"] != number):
        return None
    text = data[first : first + size].tobytes()
    if zlib.crc32(text) != head["check"]:
        return None
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
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


def slabs(pool: Pool) -> Ints:
    """First units of the slabs that are in the pool, ascending: claimed, and not yet drained."""
    if native.available():
        most = len(pool.units) // wire.slab_units(layout.MIN_LOG2_RECORDS) + len(pool.units) // _CHUNK + 2
        at, (log2, closed, over) = np.empty(most, np.uint32), np.empty((3, most), np.uint8)
        first, opens = np.array([0, len(pool.units)], np.int64), np.empty(2, np.int64)
        least, greatest = layout.MIN_LOG2_RECORDS, layout.MAX_LOG2_RECORDS
        inputs = pool.units, 1, first, least, greatest, 0, native.threads()
        count = native.call("claims", *inputs, at, log2, closed.view(bool), over.view(bool), opens)
        return at[:count].astype(np.int64)
    at_ = np.flatnonzero(is_head(pool.units))
    heads = pool.units[at_]
    log2_ = log2_of(heads)
    good = (log2_ >= layout.MIN_LOG2_RECORDS) & (log2_ <= layout.MAX_LOG2_RECORDS)
    good &= at_ + sizes(heads) <= len(pool.units)
    at_ = at_[good]
    return at_[apart(at_, sizes(heads[good]))]


_CHUNK = 1 << 14
"""Units that a thread searches at a time, as in claims.c."""


def kept(pool: Pool) -> tuple[npt.NDArray[np.uint32], int]:
    """The drained slabs in the file, oldest first, (n, 16) uint32; and the number of batches that were overwritten."""
    found: dict[int, npt.NDArray[np.uint32]] = {}
    lines = pool.kept[: len(pool.kept) // layout.LINE * layout.LINE].view(np.uint32).reshape(-1, layout.LINE // 4)
    end = 0
    for at in np.flatnonzero(lines[:, 0] == BATCH).tolist():
        size, number, check = (int(lines[at, word]) for word in (1, 2, 3))
        count = size // layout.LINE
        if at < end or size % layout.LINE or at + 1 + count > len(lines):
            continue
        body = lines[at + 1 : at + 1 + count]
        if zlib.crc32(body.data) == check:
            found[number] = body
            end = at + 1 + count
    all_of_them = [found[number] for number in sorted(found)]
    lost = int(pool.state["batches"][0]) - len(found)
    return np.concatenate([np.zeros((0, layout.LINE // 4), np.uint32), *all_of_them]), max(0, lost)
