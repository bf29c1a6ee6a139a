"""The host's copy of a device's launch table: the entry of each head's launch, read when a head first needs it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from kscope import native
from kscope.capture import layout, wire
from kscope.capture.capture_data import BegunLaunch
from kscope.capture.heads import finished, foreign, log2_of
from kscope.util.arrays import Bools

from .device import Device
from .driver import Memory
from .memory_ranges import Bytes
from .slab_search import Ints, Slabs, U32s, Units

WINDOW = 1024
"""Entries that are read ahead of the newest launch."""
_APART = 256
"""Distance between two needed entries from which on each is read alone."""
STALE_S = 10.0
"""Seconds after which an entry is read again: each replay of a graph writes its launch's time anew."""
_MOST = 1 << 14
"""Entries that are read at a time."""
_ENTRY_S = 0.1
"""Time after a warp's end in which its launch's entry may arrive; a first warp's retries take microseconds."""
_FOREIGN, UNKNOWN = -1, -2
_NEWEST = 256
"""Entries that are kept of a broken context: at most 128 launches run at a time."""


@dataclass(frozen=True)
class Found:
    """Launches of s heads.

    Attributes:
        launches: (l,) wire.LAUNCH, those of the heads.
        entry: (s,) index of each head's launch; -1 if the head is of another session or its launch is not needed, -2 if
            its launch is unknown.
        unknown: heads of this session whose launch was not found.
    """

    launches: np.ndarray
    entry: npt.NDArray[np.int32]
    unknown: int


def identified(units: Units, slabs: Slabs, found: Found, past: int) -> Slabs:
    """The slabs; those whose launch's entry may still arrive count as open.

    A launch's first warp writes the entry, when other warps may already have finished: it writes it last if it found no
    room at first.

    Args:
        units: (n, 8) uint32.
        slabs: slabs in them.
        found: the launches of the closed ones.
        past: %globaltimer, ns, that has certainly passed; 0 if unknown.
    """
    if not found.unknown:
        return slabs
    late = np.flatnonzero(found.entry == UNKNOWN)
    closed, ended = slabs.closed.copy(), units[slabs.at[late], 5]
    steps = np.uint32(max(0, past - int(_ENTRY_S * 1e9)) >> wire.TIME_SHIFT & 0xFFFFFFFF)
    recent = (steps - ended).view(np.int32) <= 0 if past else np.ones(len(ended), bool)
    closed[late[recent]] = False
    return slabs.with_closed(closed)


class LaunchTable:
    """One device's entries in the current session. Not thread-safe.

    A later launch overwrites an entry 65,536 launches on, and sooner if a graph's launches, which keep their numbers,
    meet others. So the previous entry of a slot is kept, too: the head of a finished warp shows which of them belongs
    to it.

    Attributes:
        epoch: the session.
        next: the slot after the newest launch; None if no launch is known.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._stream = device, device.driver.stream()
        self._read = device.driver.pinned(_MOST * wire.LAUNCH_BYTES).view(wire.LAUNCH)
        self._ahead = device.driver.pinned(WINDOW * wire.LAUNCH_BYTES).view(wire.LAUNCH)
        self._missing, self._numbered = np.zeros(wire.SLOTS, bool), np.zeros(2 * wire.SLOTS, np.int32)
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """Forget all entries; `epoch` is the session from now on."""
        self.epoch = epoch
        # the newest entry of each slot, followed by all previous ones
        self._rows = np.zeros(2 * wire.SLOTS, wire.LAUNCH)
        # for each row: bits 16 to 23 of its launch's number, and log2 of its records, 0 where there is none
        self._grid, self._log2 = np.zeros((2, 2 * wire.SLOTS), np.uint8)
        self._read_at = np.zeros(wire.SLOTS)  # time.monotonic() of the last reading
        self.next: int | None = None
        self._requested: int | None = None

    def ahead(self) -> int | None:
        """The address of the next launches' entries, if any launch is known."""
        return None if self.next is None else self._address(min(self.next, wire.SLOTS - WINDOW))

    def request(self) -> tuple[Bytes, int] | None:
        """Memory to read before requested(), and its address: the entries of the next launches."""
        if self.next is None or (address := self.ahead()) is None:
            return None
        self._requested = min(self.next, wire.SLOTS - WINDOW)
        return self._ahead.view(np.uint8), address

    def requested(self) -> None:
        """Process the result of request()."""
        if self._requested is not None:
            self._take(self._requested, self._ahead)
            self._requested = None

    def columns(self) -> dict[str, np.ndarray]:
        """Columns that compiled passes use and update, by their names there."""
        return {
            "rows": self._rows, "grid": self._grid, "log2": self._log2, "missing": self._missing,
            "read_at": self._read_at, "ahead": self._ahead,
        }  # fmt: skip

    def fetch_missing(self, memory: Memory) -> None:
        """Read the entries that a compiled pass missed."""
        self._fetch(np.flatnonzero(self._missing), memory)

    def find(self, units: Units, at: U32s, memory: Memory, closed: Bools | None = None) -> Found:
        """The launches of the slabs at units `at` (s,), ascending.

        Args:
            units: (n, 8) uint32.
            at: unit of each head.
            memory: reads entries that are not known.
            closed: (s,) slabs whose launch is needed. None for all: then the entries of unfinished warps, whose
                heads have less information, are read again.
        """
        stale = time.monotonic() - STALE_S
        row, rows, unknown, missing = self._match(units, at, closed, closed is None, stale, last=False)
        if len(missing):
            self._fetch(missing, memory)
            row, rows, unknown, _ = self._match(units, at, closed, False, -math.inf, last=True)
        return Found(_words(self._rows)[rows].reshape(-1).view(wire.LAUNCH), row, unknown)

    def newest(self, memory: Memory) -> tuple[BegunLaunch, ...]:
        """The launches of this session that began last, among those whose every warp claims a slab.

        memory: reads the entries.
        """
        found = []
        for first in range(0, wire.SLOTS, _MOST):
            memory.read(self._read.view(np.uint8), self._address(first), self._stream)
            memory.synchronize(self._stream)
            found.append(self._read[self._is_valid(first, self._read)].copy())
        rows = np.concatenate(found)
        rows = rows[rows["layout"] >> np.uint32(layout.FLAG_SHIFT) & np.uint32(layout.FLAG_ANY) == 0]
        rows = rows[np.argsort(rows["time"], kind="stable")[-_NEWEST:]]
        columns = (rows[name].tolist() for name in ("kernel", "grid_id", "time"))
        return tuple(map(BegunLaunch, *columns))

    def _match(
        self, units: Units, at: U32s, closed: Bools | None, fresh: bool, stale: float, last: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.integer], int, Ints]:
        """For known launches: each head's index into rows, with numbers below 0 as in Found; the rows; the number of
        unknown ones; and the slots whose entries must be read, because they are unknown or were read up to `stale`, of
        time.monotonic(). If there are such slots, only these are valid, unless this is the last try.
        """
        if native.available():
            return self._compiled(units, at, closed, fresh, stale, last)
        heads = units[at]
        slot, other = (heads[:, 0] >> np.uint32(wire.SLOT_SHIFT)).astype(np.int64), foreign(heads, self.epoch)
        other = other if closed is None else other | ~closed
        newest = self._is_entry(heads, slot)
        missing = np.unique(slot[~other & (~newest | (self._read_at[slot] <= stale) | (fresh & ~finished(heads)))])
        row = np.where(newest, slot, slot + wire.SLOTS)
        good = (newest | self._is_entry(heads, row)) & ~other
        entry = np.where(other, _FOREIGN, UNKNOWN).astype(np.int32)
        rows, entry[good] = np.unique(row[good], return_inverse=True)
        return entry, rows, int(np.count_nonzero(~other & ~good)), missing

    def _compiled(
        self, units: Units, at: U32s, closed: Bools | None, fresh: bool, stale: float, last: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.integer], int, Ints]:
        entry, counts = np.empty(len(at), np.int32), np.empty(2, np.int64)
        known = self._grid, self._log2, self._read_at, stale, int(last), native.threads()
        found = entry, self._missing, self._numbered, counts
        needed = 0 if closed is None else closed
        native.call("entries", units, len(at), at, needed, self.epoch, int(fresh), *known, *found)
        rows, unknown = counts.tolist()
        missing = np.flatnonzero(self._missing) if rows < 0 else np.zeros(0, np.int64)
        return entry, self._numbered[: max(0, rows)], unknown, missing

    def _is_entry(self, heads: Units, row: Ints) -> Bools:
        """True for rows that are those of the heads' launches, as far as the heads show."""
        seal = heads[:, 7]
        same = ((seal >> np.uint32(wire.GRID_SHIFT)).astype(np.uint8) == self._grid[row]) | ~finished(heads)
        log2 = self._log2[row]
        return np.asarray(same & ((log2 == wire.VARYING) | (log2_of(heads) == log2)))

    def _address(self, slot: int) -> int:
        return self._device.launches + slot * wire.LAUNCH_BYTES

    def _fetch(self, slots: Ints, memory: Memory) -> None:
        """Read the entries of slots (n,), ascending, and what lies between them."""
        cuts = np.flatnonzero(np.diff(slots) > _APART) + 1
        for part, table in product(np.split(slots, cuts), self._device.launch_tables):
            first, stop = int(part[0]), int(part[-1]) + 1
            for at in range(first, stop, _MOST):
                rows = self._read[: min(_MOST, stop - at)]
                memory.read(rows.view(np.uint8), table + at * wire.LAUNCH_BYTES, self._stream)
                memory.synchronize(self._stream)
                self._take(at, rows)

    def _take(self, first: int, rows: np.ndarray) -> None:
        """Note the entries of this session among those from slot `first` on."""
        self._read_at[first : first + len(rows)] = time.monotonic()
        if native.available():
            columns = self._rows, self._grid, self._log2
            found = native.call_briefly("learn", rows, len(rows), first, self.epoch, *columns)
            self.next = found if found >= 0 else self.next
            return
        which = np.flatnonzero(self._is_valid(first, rows))
        if not len(which) or np.array_equal(_words(rows), _words(self._rows[first : first + len(rows)])):
            return
        slot = which + first
        replaced = (self._log2[slot] != 0) & (self._rows["grid_id"][slot] != rows["grid_id"][which])
        old = slot[replaced]
        table = _words(self._rows)
        for column in (table, self._grid, self._log2):
            column[old + wire.SLOTS] = column[old]
        table[slot] = _words(rows)[which]
        self._grid[slot] = (rows["grid_id"][which] >> np.uint64(wire.SLOT_BITS)).astype(np.uint8)
        self._log2[slot] = rows["layout"][which] >> np.uint32(layout.LOG2_SHIFT) & np.uint32(31)
        newest = slot[np.argmax(rows["time"][which])]
        self.next = (int(newest) + 1) % wire.SLOTS

    def _is_valid(self, first: int, rows: np.ndarray) -> Bools:
        """True for rows, from slot `first` on, that are entries of this session."""
        good = wire.launch_check(rows, self.epoch) == rows["check"]
        good &= (rows["layout"] != 0) & (rows["grid_id"] % np.uint64(wire.SLOTS) == np.arange(len(rows)) + first)
        return np.asarray(good)


def _words(rows: np.ndarray) -> npt.NDArray[np.uint64]:
    """Entries as words, which numpy copies five times as fast."""
    return rows.view(np.uint64).reshape(len(rows), -1)
