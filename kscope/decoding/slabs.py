"""Slabs: the fields of their headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .. import native
from ..capture import layout
from ..capture.counted_problems import note
from ..capture.model import Problem
from ..util.arrays import Bools, Int64
from ..util.parallel import chunks, each, filled, shares
from ..util.runs import group_equal
from .slab_search import ALIEN, ANY, CUT, HEADERS, TORN, WHOLE, search

_LAST_CLOCK, _LAST_TIME = 1 << 58, 1 << 62
"""Clocks from here on are damage: 4 years of cycles, 146 years of ns after 1970."""
_UNREAD, _CLOCKS = ("magic", "position", "stripe", "check", "reserved", "done"), ("start_clock", "end_clock")
_FIELDS = {name: field for name, field in layout.HEADER.dtype.fields.items() if name not in _UNREAD}  # type: ignore[union-attr]  # it has fields


Words = npt.NDArray[np.uint32]
Column = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Slabs:
    """Slabs of one device in the order of its memory; every array has shape (s,).

    Attributes:
        line: index of the header's first line.
        header: the fields of layout.HEADER but for those of claims and reserved ones, one read-only column each.
        finished: the end anchor was written.
    """

    line: Int64
    header: Mapping[str, Column]
    finished: Bools

    def __len__(self) -> int:
        return len(self.line)

    def take(self, which: Bools | Int64) -> Slabs:
        """The slabs that a mask or an index array chooses."""
        columns = {name: column[which] for name, column in self.header.items()}
        return Slabs(self.line[which], columns, self.finished[which])

    @staticmethod
    def joined(parts: Sequence[Slabs]) -> Slabs:
        """The slabs of several devices, in turn."""
        if len(parts) == 1:
            return parts[0]
        parts = [*parts, _read(np.zeros((0, 16), np.uint32), np.zeros(0, np.int64), 0, ANY)[0]]
        columns = {name: np.concatenate([part.header[name] for part in parts]) for name in _FIELDS}
        line, finished = (np.concatenate([getattr(part, name) for part in parts]) for name in ("line", "finished"))
        return Slabs(line, columns, finished)

    @cached_property
    def _places(self) -> _Places:
        return _Places.of(self.header["place"])

    @property
    def log2(self) -> npt.NDArray[np.uint8]:
        return self._places.log2

    def room(self, part: slice | Bools | Int64) -> Int64:
        """Records that some of the slabs have room for."""
        return np.asarray(np.int64(1) << self.log2[part].astype(np.int64))

    @property
    def lane(self) -> npt.NDArray[np.uint8]:
        return self._places.lane

    @property
    def warp(self) -> npt.NDArray[np.uint8]:
        return self._places.warp

    @property
    def sm(self) -> npt.NDArray[np.uint16]:
        return self._places.sm

    @cached_property
    def stop(self) -> Bools:
        """Fill policy: the oldest records stay."""
        return self._flagged(layout.FLAG_STOP)

    @property
    def noun(self) -> str:
        """The owner of a slab: "warp"; "lane" if all lanes of some warp record."""
        return "lane" if self.every.any() else "warp"

    @cached_property
    def every(self) -> Bools:
        """Every lane of the warp records."""
        return self._flagged(layout.FLAG_LANES)

    @cached_property
    def in_turn(self) -> Bools:
        """The lanes of the warp record in turn, and not all of them: for a reader, their slabs are one lane's."""
        some = self._flagged(layout.FLAG_ANY)
        return some & ~self.every if self._places.flags & layout.FLAG_LANES else some

    @cached_property
    def globaltimer(self) -> Bools:
        """Records hold nanoseconds of %globaltimer instead of SM cycles."""
        return self._flagged(layout.FLAG_GLOBALTIMER)

    def _flagged(self, flag: int) -> Bools:
        if not self._places.flags & flag:
            return np.broadcast_to(np.False_, len(self))
        return np.asarray((self.header["place"] >> layout.FLAG_SHIFT & flag) != 0)

    @cached_property
    def kernels(self) -> tuple[Int64, Int64, Int64]:
        """group_equal() of the numbers of kernels."""
        return group_equal(self.header["kernel"])

    @cached_property
    def block(self) -> Int64:
        """(s, 3) block index x, y, z."""
        return _three(self.header["ctaid_x"], self.header["ctaid_yz"])

    @cached_property
    def grid(self) -> Int64:
        """(s, 3) blocks of the grid along x, y, z."""
        return _three(self.header["nctaid_x"], self.header["nctaid_yz"])

    @cached_property
    def threads(self) -> Int64:
        """(s, 3) threads of a block along x, y, z."""
        return _rows(lambda one: np.stack([one & 1023, one >> 10 & 1023, one >> 20], axis=1) + 1, self.header["ntid"])

    @cached_property
    def linear_block(self) -> Int64:
        """(s,) linear block index x + nx * (y + ny * z)."""
        if not self.header["ctaid_yz"].any():
            return filled(len(self), np.int64, lambda part: self.header["ctaid_x"][part])
        block, grid = self.block, self.grid
        return np.asarray(block[:, 0] + grid[:, 0] * (block[:, 1] + grid[:, 1] * block[:, 2]))

    @cached_property
    def first_tick(self) -> Int64:
        """The warp's start on the clock of its records, 64-bit ticks."""
        return self._ticks("start")

    @cached_property
    def last_tick(self) -> Int64:
        """The warp's end on the clock of its records; 0 where it did not finish."""
        return self._ticks("end")

    def _ticks(self, anchor: str) -> Int64:
        """The anchor's time on the clock of the records."""
        clock, time = self.header[f"{anchor}_clock"].view(np.int64), self.header[f"{anchor}_time"].view(np.int64)
        timer = self.globaltimer
        if not self._places.flags & layout.FLAG_GLOBALTIMER:
            return clock
        return filled(len(self), np.int64, lambda part: np.where(timer[part], time[part], clock[part]))


@dataclass(frozen=True)
class _Places:
    """The parts of the words HEADER["place"] (s,), and the flags that any of them has."""

    lane: npt.NDArray[np.uint8]
    warp: npt.NDArray[np.uint8]
    log2: npt.NDArray[np.uint8]
    sm: npt.NDArray[np.uint16]
    flags: int

    @staticmethod
    def of(place: Column) -> _Places:
        lane, warp, log2 = np.empty((3, len(place)), np.uint8)
        sm = np.empty(len(place), np.uint16)
        shifts = layout.WARP_SHIFT, layout.LOG2_SHIFT, layout.FLAG_SHIFT, layout.SMID_SHIFT
        if native.available():
            flags = native.call("places", place, len(place), native.threads(), *shifts, lane, warp, log2, sm)
            return _Places(lane, warp, log2, sm, flags)
        shifted = (lane, 0, 31), (warp, shifts[0], 31), (log2, shifts[1], 31), (sm, shifts[3], (1 << 12) - 1)
        for column, shift, mask in shifted:
            column[:] = place >> shift & mask
        flags = int(np.bitwise_or.reduce(place)) >> layout.FLAG_SHIFT & (1 << layout.SMID_SHIFT - layout.FLAG_SHIFT) - 1
        return _Places(lane, warp, log2, sm, flags)


def find(lines: Words, epoch: int) -> tuple[Slabs, list[Problem]]:
    """The slabs among (n, 16) uint32 lines that the session `epoch` claimed, and problems of the rest."""
    lines = np.ascontiguousarray(lines, np.uint32)
    at, state, varying = search(lines)
    problems: list[Problem] = []
    doubtful = bool(state.any())
    if doubtful:
        torn = np.count_nonzero(state == TORN)
        note(problems, "torn", torn, "torn slab header", ": the claim was cut short, or the data is damaged")
        note(
            problems, "cut", np.count_nonzero(state == CUT), "cut slab", ": past the end of the data, records are lost"
        )
        alien = state == ALIEN
        versions = ", ".join(f"{v >> 8}.{v & 255}" for v in np.unique(lines[at[alien], 0] & 0xFFFF)[:4].tolist())
        why = f": layout {versions}, and this kscope reads layout {layout.MAJOR}: decode with the kscope that recorded"
        note(problems, "version", np.count_nonzero(alien), "slab", why)
    slabs, suspects = _read(lines, at[state == WHOLE] if doubtful else at, epoch, varying)
    if not suspects:
        return slabs, problems
    clock, time = slabs.header["start_clock"], slabs.header["start_time"]
    foreign = slabs.header["epoch"] != epoch
    senseless = ((clock >= _LAST_CLOCK) | (time >= _LAST_TIME)) & ~foreign
    note(problems, "foreign", np.count_nonzero(foreign), "slab", ": claimed under another session, left out")
    note(problems, "garbled", np.count_nonzero(senseless), "slab", ": impossible start time, left out")
    left_out = foreign | senseless
    return slabs.take(~left_out) if left_out.any() else slabs, problems


def _read(lines: Words, line: Int64, epoch: int, varying: Words) -> tuple[Slabs, int]:
    """The slabs whose headers begin at the lines `line` (s,), and how many may be of another epoch, or begin at an
    impossible time. varying: (32,) bits of words that differ between them; columns of other words take no memory.
    """
    differs = varying.view(layout.HEADER)[0]
    stored = _columns([name for name in _FIELDS if differs[name]], len(line))
    same = lines[line[0] :][: layout.HEADER_LINES].reshape(-1).view(layout.HEADER)[0] if len(line) else differs
    header = {name: stored[name] if name in stored else np.broadcast_to(same[name], len(line)) for name in _FIELDS}
    slabs = Slabs(line, header, np.empty(len(line), bool))
    if native.available():
        offsets = np.array([_FIELDS[name][1] for name in stored], np.int64)
        sizes = np.array([column.itemsize for column in stored.values()], np.int64)
        addresses = np.array([column.ctypes.data for column in stored.values()], np.uintp)
        fields = len(stored), offsets, sizes, addresses, epoch, layout.DONE_WORD, _LAST_CLOCK, _LAST_TIME
        return slabs, native.call("headers", lines, line, len(line), native.threads(), *fields, slabs.finished)

    def read(part: slice) -> None:
        words = np.take(lines, (line[part, None] + np.arange(layout.HEADER_LINES)).ravel(), axis=0).reshape(-1, 32)
        read = words.view(layout.HEADER)[:, 0]
        for name, column in stored.items():
            column[part] = read[name]
        slabs.finished[part] = _finished(read)

    each(read, chunks(len(line), HEADERS))
    return slabs, len(line)


def _columns(names: Sequence[str], count: int) -> dict[str, Column]:
    """A column for each name, in few pieces of memory, which is faster. A trace keeps the clocks, and no others."""
    found: dict[str, Column] = {name: np.empty(count, np.uint64) for name in names if name in _CLOCKS}
    for dtype in (np.dtype(np.uint32), np.dtype(np.uint64)):
        these = [name for name in names if _FIELDS[name][0] == dtype and name not in _CLOCKS]
        found |= zip(these, np.empty((len(these), count), dtype), strict=True)
    return found


def _finished(header: npt.NDArray[np.void]) -> Bools:
    """True where the end anchor is present and plausible."""
    done = np.uint32(layout.DONE_WORD) ^ header["count"] ^ header["end_clock"].astype(np.uint32)
    after = (header["end_clock"] >= header["start_clock"]) & (header["end_time"] >= header["start_time"])
    before = (header["end_clock"] < _LAST_CLOCK) & (header["end_time"] < _LAST_TIME)
    return np.asarray((header["done"] == done) & after & before)


def _three(x: Words, yz: Words) -> Int64:
    return _rows(lambda x, yz: np.stack([x, yz & 0xFFFF, yz >> 16], axis=1), x, yz)


def _rows(work: Callable[..., Words], *columns: Words) -> Int64:
    """(s, 3) work(columns), which treats rows alone; one row for all, which takes no memory, if all are equal."""
    count = len(columns[0])
    if all(not column.strides[0] or (column == column[:1]).all() for column in columns):
        return np.broadcast_to(work(*(column[:1] for column in columns)).astype(np.int64), (count, 3))
    found = np.empty((count, 3), np.int64)

    def fill(part: slice) -> None:
        found[part] = work(*(column[part] for column in columns))

    each(fill, shares(count))
    return found
