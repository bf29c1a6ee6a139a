"""Finding slabs: which of a device's 64-byte lines are headers, and their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .. import native
from ..capture.layout import (
    DONE_WORD,
    FLAG_ANY,
    FLAG_GLOBALTIMER,
    FLAG_LANES,
    FLAG_SHIFT,
    FLAG_STOP,
    HEADER,
    HEADER_LINES,
    HEADER_WORD,
    LOG2_SHIFT,
    MAGIC,
    MAJOR,
    MAX_LOG2_RECORDS,
    MIN_LOG2_RECORDS,
    RECORDS_PER_LINE,
    SMID_SHIFT,
    WARP_SHIFT,
    header_check,
    slab_lines,
)
from ..capture.model import Problem
from ..util.arrays import Bools, Int64
from ..util.parallel import chunks, each, filled, map_ahead, shares
from ..util.text import counted

_LAST_CLOCK, _LAST_TIME = 1 << 58, 1 << 62
"""Clocks from here on are damage: 4 years of cycles, 146 years of ns after 1970."""
_HEADERS = 1 << 12
"""Headers that numpy reads at a time: its temporaries take half a MiB."""
_CHUNK_LINES = 1 << 14
"""Lines that a thread searches at a time, as in slabs.c."""
_UNREAD = ("magic", "position", "stripe", "check", "reserved")
_FIELDS = {name: field for name, field in HEADER.dtype.fields.items() if name not in _UNREAD}  # type: ignore[union-attr]  # it has fields
_PLACE, _CHECK = (HEADER.offset(name) // 4 for name in ("place", "check"))
_WHOLE, _TORN, _CUT, _ALIEN = range(4)
"""States of what looks like a header."""

Words = npt.NDArray[np.uint32]
Column = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Slabs:
    """Slabs of one device in the order of its memory; every array has shape (s,).

    Attributes:
        line: index of the header's first line.
        header: the fields of layout.HEADER but for those of claims and reserved ones, one column each.
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
        parts = [*parts, _read(np.zeros((0, 16), np.uint32), np.zeros(0, np.int64), 0)[0]]
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
        return self._flagged(FLAG_STOP)

    @property
    def noun(self) -> str:
        """What a slab belongs to: "warp"; "lane" if all lanes of some warp record."""
        return "lane" if self.every.any() else "warp"

    @cached_property
    def every(self) -> Bools:
        """Every lane of the warp records."""
        return self._flagged(FLAG_LANES)

    @cached_property
    def in_turn(self) -> Bools:
        """The lanes of the warp record in turn, and not all of them: their slabs are one lane's to a reader."""
        some = self._flagged(FLAG_ANY)
        return some & ~self.every if self._places.flags & FLAG_LANES else some

    @cached_property
    def globaltimer(self) -> Bools:
        """Records hold nanoseconds of %globaltimer instead of SM cycles."""
        return self._flagged(FLAG_GLOBALTIMER)

    def _flagged(self, flag: int) -> Bools:
        if not self._places.flags & flag:
            return np.broadcast_to(np.False_, len(self))
        return np.asarray((self.header["place"] >> FLAG_SHIFT & flag) != 0)

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
        if not self._places.flags & FLAG_GLOBALTIMER:
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
        sm, shifts = np.empty(len(place), np.uint16), (WARP_SHIFT, LOG2_SHIFT, FLAG_SHIFT, SMID_SHIFT)
        if native.available():
            flags = native.call("places", place, len(place), native.threads(), *shifts, lane, warp, log2, sm)
            return _Places(lane, warp, log2, sm, flags)
        shifted = (lane, 0, 31), (warp, WARP_SHIFT, 31), (log2, LOG2_SHIFT, 31), (sm, SMID_SHIFT, (1 << 12) - 1)
        for column, shift, mask in shifted:
            column[:] = place >> shift & mask
        flags = int(np.bitwise_or.reduce(place)) >> FLAG_SHIFT & (1 << SMID_SHIFT - FLAG_SHIFT) - 1
        return _Places(lane, warp, log2, sm, flags)


def find(lines: Words, epoch: int) -> tuple[Slabs, list[Problem]]:
    """The slabs among (n, 16) uint32 lines that the session `epoch` claimed, and what is wrong with the rest."""
    lines = np.ascontiguousarray(lines, np.uint32)
    at, state = _search_compiled(lines) if native.available() else _search(lines)
    problems: list[Problem] = []
    doubtful = bool(state.any())
    if doubtful:
        _add_problem(
            problems, "torn", state == _TORN, "torn slab header", "the claim was cut short, or the data is damaged"
        )
        _add_problem(problems, "cut", state == _CUT, "cut slab", "past the end of the data, records are lost")
        alien = state == _ALIEN
        versions = ", ".join(f"{v >> 8}.{v & 255}" for v in np.unique(lines[at[alien], 0] & 0xFFFF)[:4].tolist())
        why = f"layout {versions}, and this kscope reads layout {MAJOR}: decode with the kscope that recorded"
        _add_problem(problems, "version", alien, "slab", why)
    slabs, suspects = _read(lines, at[state == _WHOLE] if doubtful else at, epoch)
    if not suspects:
        return slabs, problems
    clock, time = slabs.header["start_clock"], slabs.header["start_time"]
    foreign = slabs.header["epoch"] != epoch
    senseless = ((clock >= _LAST_CLOCK) | (time >= _LAST_TIME)) & ~foreign
    _add_problem(problems, "foreign", foreign, "slab", "claimed under another session, left out")
    _add_problem(problems, "garbled", senseless, "slab", "impossible start time, left out")
    left_out = foreign | senseless
    return slabs.take(~left_out) if left_out.any() else slabs, problems


def _search_compiled(lines: Words) -> tuple[Int64, npt.NDArray[np.uint8]]:
    """Lines that begin with the magic number and are in no slab, and the state of each."""
    limits = LOG2_SHIFT, MIN_LOG2_RECORDS, MAX_LOG2_RECORDS
    for spacing in (slab_lines(MIN_LOG2_RECORDS), 1):  # only damaged headers are closer together than slabs
        most = len(lines) // spacing + len(lines) // _CHUNK_LINES + 2
        at, state = np.empty(most, np.int64), np.empty(most, np.uint8)
        threads = min(native.threads(), len(lines) // _CHUNK_LINES + 1)
        found = native.call("find", lines, len(lines), HEADER_WORD, *limits, spacing, threads, at, state)
        if found <= len(lines):
            break
    return at[:found], state[:found]


def _search(lines: Words) -> tuple[Int64, npt.NDArray[np.uint8]]:
    """The same in numpy."""
    at = _candidates(lines)
    state, size = np.empty(len(at), np.uint8), np.empty(len(at), np.int64)

    def read(part: slice) -> None:
        words = np.take(lines, (at[part, None] + np.arange(HEADER_LINES)).ravel(), axis=0, mode="clip").reshape(-1, 32)
        log2 = (words[:, _PLACE] >> LOG2_SHIFT & 31).astype(np.int64)
        size[part] = HEADER_LINES + (1 << log2) // RECORDS_PER_LINE
        sane = (log2 >= MIN_LOG2_RECORDS) & (log2 <= MAX_LOG2_RECORDS)
        sound = sane & (header_check(words) == words[:, _CHECK])
        fits = at[part] + size[part] <= len(lines)
        ours = words[:, 0] >> 8 == HEADER_WORD >> 8
        state[part] = np.select([~ours, ~sound, ~fits], [_ALIEN, _TORN, _CUT], _WHOLE)

    each(read, chunks(len(at), _HEADERS))
    good = _without_overlap(at, size, state == _WHOLE)
    outside = good | ~_covered(at, at[good], size[good])
    return at[outside], state[outside]


def _read(lines: Words, line: Int64, epoch: int) -> tuple[Slabs, int]:
    """The slabs whose headers begin at the lines `line` (s,), and how many may be of another epoch, or begin at an
    impossible time.
    """
    header = {name: np.empty(len(line), field[0]) for name, field in _FIELDS.items()}
    slabs = Slabs(line, header, np.empty(len(line), bool))
    if native.available():
        offsets = np.array([field[1] for field in _FIELDS.values()])
        sizes = np.array([field[0].itemsize for field in _FIELDS.values()])
        addresses = np.array([column.ctypes.data for column in header.values()], np.uintp)
        fields = len(header), offsets, sizes, addresses, epoch, DONE_WORD, _LAST_CLOCK, _LAST_TIME
        return slabs, native.call("headers", lines, line, len(line), native.threads(), *fields, slabs.finished)

    def read(part: slice) -> None:
        words = np.take(lines, (line[part, None] + np.arange(HEADER_LINES)).ravel(), axis=0).reshape(-1, 32)
        read = words.view(HEADER)[:, 0]
        for name, column in header.items():
            column[part] = read[name]
        slabs.finished[part] = _finished({name: column[part] for name, column in header.items()})

    each(read, chunks(len(line), _HEADERS))
    return slabs, len(line)


def _finished(header: Mapping[str, Column]) -> Bools:
    """Whether the end anchor was written, and makes sense."""
    done = np.uint32(DONE_WORD) ^ header["count"] ^ header["end_clock"].astype(np.uint32)
    after = (header["end_clock"] >= header["start_clock"]) & (header["end_time"] >= header["start_time"])
    before = (header["end_clock"] < _LAST_CLOCK) & (header["end_time"] < _LAST_TIME)
    return np.asarray((header["done"] == done) & after & before)


def _candidates(lines: Words) -> Int64:
    """Lines that begin with the magic number; another line follows each."""
    first = lines[:-1, 0]

    def scan(part: slice) -> Int64:
        return np.asarray(np.flatnonzero(first[part] >> 16 == MAGIC) + part.start)

    return np.concatenate([np.zeros(0, np.int64), *map_ahead(scan, chunks(len(first), 1 << 18))])


def _add_problem(problems: list[Problem], kind: str, where: Bools, noun: str, why: str) -> None:
    count = int(np.count_nonzero(where))
    if count:
        problems.append(Problem(kind, f"{counted(count, noun)}: {why}", count))


def _without_overlap(at: Int64, size: Int64, good: Bools) -> Bools:
    """True for slabs that start outside any earlier slab: a record may look like a header by chance."""
    candidates = np.flatnonzero(good)
    ends = at[candidates] + size[candidates]
    if not (at[candidates][1:] < ends[:-1]).any():
        return good
    kept, free = np.zeros(len(good), bool), 0
    for index, start, end in zip(candidates.tolist(), at[candidates].tolist(), ends.tolist(), strict=True):
        if start >= free:
            kept[index], free = True, end
    return kept


def _covered(at: Int64, starts: Int64, size: Int64) -> Bools:
    """Whether each line is in one of the slabs, which are sorted and do not overlap."""
    if not len(starts):
        return np.zeros(len(at), bool)
    slab = np.searchsorted(starts, at, side="right") - 1
    return np.asarray((slab >= 0) & (at < starts[slab] + size[slab]))


def _three(x: Words, yz: Words) -> Int64:
    return _rows(lambda x, yz: np.stack([x, yz & 0xFFFF, yz >> 16], axis=1), x, yz)


def _rows(work: Callable[..., Words], *columns: Words) -> Int64:
    """(s, 3) work(columns), which treats rows alone; one row for all, which takes no memory, if all are equal."""
    count = len(columns[0])
    if all((column == column[:1]).all() for column in columns):
        return np.broadcast_to(work(*(column[:1] for column in columns)).astype(np.int64), (count, 3))
    found = np.empty((count, 3), np.int64)

    def fill(part: slice) -> None:
        found[part] = work(*(column[part] for column in columns))

    each(fill, shares(count))
    return found
