"""Finding slabs: which of a device's 64-byte lines are headers, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..capture.layout import (
    DONE_WORD,
    FLAG_ANY,
    FLAG_GLOBALTIMER,
    FLAG_LANES,
    FLAG_SHIFT,
    FLAG_STOP,
    HEADER,
    HEADER_UNITS,
    HEADER_WORD,
    LANE_BITS,
    LOG2_SHIFT,
    MAGIC,
    MAJOR,
    MAX_LOG2_RECORDS,
    MIN_LOG2_RECORDS,
    RECORDS_PER_UNIT,
    SMID_SHIFT,
    WARP_SHIFT,
    header_check,
)
from ..capture.model import Problem
from ..util.parallel import chunks, each, map_ahead
from ..util.text import counted

_LAST_CLOCK, _LAST_TIME = 1 << 58, 1 << 62
"""Clocks from here on are damage: 4 years of cycles, 146 years of ns after 1970."""
_HEADERS = 1 << 12
"""Headers that are read at a time: half a MiB."""

Int64 = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Slabs:
    """Slabs of one device in the order of its memory; every array has shape (s,).

    line: index of the header's first line. header: layout.HEADER records. log2: records that fit, as
    an exponent. finished: the end anchor was written. clock, fill and place are taken apart below.
    """

    line: Int64
    header: npt.NDArray[np.void]
    finished: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.line)

    def take(self, which: npt.NDArray[np.bool_] | Int64) -> Slabs:
        """The slabs that a mask or an index array chooses."""
        words = self.header.view(np.uint32).reshape(-1, 32)
        return Slabs(self.line[which], _headers(words[which]), self.finished[which])

    @cached_property
    def log2(self) -> Int64:
        return (self.header["place"] >> LOG2_SHIFT & 31).astype(np.int64)

    @cached_property
    def lane(self) -> npt.NDArray[np.uint8]:
        return (self.header["place"] & ((1 << LANE_BITS) - 1)).astype(np.uint8)

    @cached_property
    def warp(self) -> npt.NDArray[np.uint8]:
        return (self.header["place"] >> WARP_SHIFT & 31).astype(np.uint8)

    @cached_property
    def sm(self) -> npt.NDArray[np.uint16]:
        return (self.header["place"] >> SMID_SHIFT).astype(np.uint16)

    @cached_property
    def stop(self) -> npt.NDArray[np.bool_]:
        """Fill policy: the oldest records stay."""
        return np.asarray((self.header["place"] >> FLAG_SHIFT & FLAG_STOP) != 0)

    @cached_property
    def every(self) -> npt.NDArray[np.bool_]:
        """Every lane of the warp records."""
        return np.asarray((self.header["place"] >> FLAG_SHIFT & FLAG_LANES) != 0)

    @cached_property
    def in_turn(self) -> npt.NDArray[np.bool_]:
        """The lanes of the warp record in turn, and not all of them: their slabs are one lane's to a reader."""
        flags = self.header["place"] >> FLAG_SHIFT
        return np.asarray((flags & (FLAG_ANY | FLAG_LANES)) == FLAG_ANY)

    @cached_property
    def globaltimer(self) -> npt.NDArray[np.bool_]:
        """Records hold nanoseconds of %globaltimer instead of SM cycles."""
        return np.asarray((self.header["place"] >> FLAG_SHIFT & FLAG_GLOBALTIMER) != 0)

    @cached_property
    def block(self) -> Int64:
        """(s, 3) block index x, y, z."""
        return _three(self.header["ctaid_x"], self.header["ctaid_yz"])

    @cached_property
    def grid(self) -> Int64:
        """(s, 3) blocks of the grid along x, y, z."""
        return _three(self.header["nctaid_x"], self.header["nctaid_yz"])

    @cached_property
    def first_tick(self) -> Int64:
        """The warp's start on the clock of its records, 64-bit ticks."""
        return np.where(self.globaltimer, self.header["start_time"], self.header["start_clock"]).astype(np.int64)

    @cached_property
    def last_tick(self) -> Int64:
        """The warp's end on the clock of its records; 0 where it did not finish."""
        return np.where(self.globaltimer, self.header["end_time"], self.header["end_clock"]).astype(np.int64)


def find(lines: Words, epoch: int) -> tuple[Slabs, list[Problem]]:
    """The slabs among (n, 16) uint32 lines that the session `epoch` claimed, and what is wrong with the rest."""
    at = _candidates(lines)
    words, sound = np.empty((len(at), 32), np.uint32), np.empty(len(at), bool)

    def read(part: slice) -> None:
        both = (at[part, None] + np.arange(HEADER_UNITS)).ravel()
        np.take(lines, both, axis=0, out=words[part].reshape(-1, 16), mode="clip")
        sound[part] = header_check(words[part]) == _headers(words[part])["check"]

    each(read, chunks(len(at), _HEADERS))
    header = _headers(words)
    log2 = (header["place"] >> LOG2_SHIFT & 31).astype(np.int64)
    size = HEADER_UNITS + (1 << log2) // RECORDS_PER_UNIT
    ours = header["magic"] >> 8 == HEADER_WORD >> 8
    sane = (log2 >= MIN_LOG2_RECORDS) & (log2 <= MAX_LOG2_RECORDS)
    whole = ours & sane & sound
    fits = at + size <= len(lines)
    good = _without_overlap(at, size, whole & fits)
    covered = _covered(at, at[good], size[good])
    problems: list[Problem] = []
    torn = ours & ~whole & ~covered
    _add_problem(problems, "torn", torn, "torn slab header", "the claim was cut short, or the data is damaged")
    cut = whole & ~fits & ~covered
    _add_problem(problems, "cut", cut, "cut slab", "past the end of the data, records are lost")
    alien = ~ours & ~covered
    versions = ", ".join(f"{v >> 8}.{v & 255}" for v in np.unique(header["magic"][alien] & 0xFFFF)[:4].tolist())
    why = f"layout {versions}, and this kscope reads layout {MAJOR}: decode with the kscope that recorded"
    _add_problem(problems, "version", alien, "slab", why)
    foreign = good & (header["epoch"] != epoch)
    _add_problem(problems, "foreign", foreign, "slab", "claimed under another session, left out")
    senseless = good & ~foreign & ((header["start_clock"] >= _LAST_CLOCK) | (header["start_time"] >= _LAST_TIME))
    _add_problem(problems, "garbled", senseless, "slab", "impossible start time, left out")
    kept_slabs = np.flatnonzero(good & ~foreign & ~senseless)
    slabs = Slabs(at, header, _finished(header))
    return slabs if len(kept_slabs) == len(at) else slabs.take(kept_slabs), problems


def _headers(words: Words) -> npt.NDArray[np.void]:
    """Rows of 32 words as records: rows are selected several times faster than records."""
    return words.view(HEADER)[:, 0]


def _finished(header: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
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


def _add_problem(problems: list[Problem], kind: str, where: npt.NDArray[np.bool_], noun: str, why: str) -> None:
    count = int(np.count_nonzero(where))
    if count:
        problems.append(Problem(kind, f"{counted(count, noun)}: {why}", count))


def _without_overlap(at: Int64, size: Int64, good: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
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


def _covered(at: Int64, starts: Int64, size: Int64) -> npt.NDArray[np.bool_]:
    """Whether each line stands in one of the slabs, which are sorted and do not overlap."""
    if not len(starts):
        return np.zeros(len(at), bool)
    slab = np.searchsorted(starts, at, side="right") - 1
    return np.asarray((slab >= 0) & (at < starts[slab] + size[slab]))


def _three(x: Words, yz: Words) -> Int64:
    return np.stack([x, yz & 0xFFFF, yz >> 16], axis=1).astype(np.int64)
