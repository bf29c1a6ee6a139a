"""Finds the slabs in a copy of claimed memory, and which of them are complete. Pure functions.

Slabs of one size mostly follow each other without a gap. Such a run is found by stepping from header to header, and
only the words that must be checked are read. What is mixed or full of gaps is scanned line by line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kscope.capture import layout

U32s = npt.NDArray[np.uint32]
Lines = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_MOST_RUNS = 16
"""Runs of a part before it is scanned."""
_LEAST_LINES = 256
"""Lines of a part, on average, from which on runs are faster than a scan."""
_WORDS = layout.UNIT // 4


@dataclass(frozen=True)
class Pieces:
    """Copied parts of stripes, one after the other in lines; each field is (p,).

    Attributes:
        stripe: index of the stripe.
        first: first line, and after the last part the end: (p + 1,).
        tail: position of the first unit.
        whole: the part reaches to head.
        skipped, head: as read before the copy.
    """

    stripe: Ints
    first: Ints
    tail: U32s
    whole: Bools
    skipped: U32s
    head: U32s


@dataclass(frozen=True)
class Slabs:
    """Slabs found in lines, ascending; each field is (s,).

    Attributes:
        at: line of the header.
        piece: index of the part.
        units: size.
        closed: the end is there, and as many records as the slab should hold.
        epoch: the session.
        position: of the claim.
        over: records were overwritten.
    """

    at: Ints
    piece: Ints
    units: Ints
    closed: Bools
    epoch: U32s
    position: U32s
    over: Bools


@dataclass(frozen=True)
class _Run:
    """`count` headers from line `at` on, `units` apart."""

    at: int
    count: int
    units: int


def find(lines: Lines, pieces: Pieces, settled: int = 0) -> Slabs:
    """All slabs with a complete header at the place that it names, within one part.

    Args:
        lines: (m, 16) uint32.
        pieces: the parts in lines.
        settled: %globaltimer, ns. The stores of warps that ended before it have arrived; the records of later ones are
            checked one by one.
    """
    low, high = int(pieces.first[0]), int(pieces.first[-1])
    runs = _all_runs(lines, pieces)
    if runs is None:
        at = np.flatnonzero(lines[low : high - 1].reshape(-1)[::_WORDS] == layout.HEADER_WORD) + low
        begin, end = lines.take(at, axis=0), lines.take(at + 1, axis=0)
    else:
        at, begin, end = _joined(lines, runs)
    piece = np.repeat(np.arange(len(pieces.stripe)), np.diff(np.searchsorted(at, pieces.first)))
    where = (at + (pieces.tail - pieces.first[:-1])[piece]).astype(np.uint32)
    log2 = _log2(begin).astype(np.int64)
    units = layout.HEADER_UNITS + (1 << log2) // layout.RECORDS_PER_UNIT
    good = at + units <= pieces.first[1:][piece]
    good &= begin[:, 13] == where
    good &= begin[:, 14] == pieces.stripe.astype(np.uint32)[piece]
    good &= _checked(begin, end)
    if not good.all():
        at, piece, units, begin, end = at[good], piece[good], units[good], begin[good], end[good]
        runs = None
    count = end[:, 13].astype(np.int64)
    room = (units - layout.HEADER_UNITS) * layout.RECORDS_PER_UNIT
    closed = end[:, 15] == (end[:, 13] ^ end[:, 8] ^ np.uint32(layout.DONE_WORD))
    ended = np.ascontiguousarray(end[:, 10:12]).view("<u8")[:, 0]
    needed = np.where(closed & (ended >= np.uint64(settled)), np.minimum(count, room), 0)
    if not needed.any():
        pass
    elif runs is None:
        closed &= _arrived(lines[low:high], at - low, units) >= needed
    else:
        closed &= _complete(lines, runs, needed)
    ring = begin[:, 11] >> np.uint32(layout.FLAG_SHIFT) & np.uint32(layout.FLAG_STOP) == 0
    return Slabs(at, piece, units, closed, begin[:, 1], begin[:, 13], ring & (count > room))


def _all_runs(lines: Lines, pieces: Pieces) -> list[_Run] | None:
    """The runs of all parts, ascending; None if a scan is faster."""
    if pieces.first[-1] - pieces.first[0] < _LEAST_LINES * len(pieces.stripe):
        return None
    found: list[_Run] = []
    for first, stop in zip(pieces.first[:-1].tolist(), pieces.first[1:].tolist(), strict=True):
        runs = _runs(lines, first, stop)
        if runs is None:
            return None
        found += runs
    return found


def _runs(lines: Lines, at: int, stop: int) -> list[_Run] | None:
    """The runs in lines [at, stop); None if there are too many."""
    found: list[_Run] = []
    while at < stop - 1:
        if lines[at, 0] != layout.HEADER_WORD:
            ahead = np.flatnonzero(lines[at : stop - 1, 0] == layout.HEADER_WORD)
            if not len(ahead):
                break
            at += int(ahead[0])
        if len(found) == _MOST_RUNS:
            return None
        units = layout.slab_units(int(_log2(lines[at : at + 1])[0]))
        headers = lines[at : max(at, stop - units + 1) : units]
        if not len(headers):  # it continues behind the copy
            at += 1
            continue
        step = np.arange(len(headers), dtype=np.uint32) * np.uint32(units)
        follows = (headers[:, 0] == layout.HEADER_WORD) & (headers[:, 13] - headers[0, 13] == step)
        follows &= _log2(headers) == _log2(headers[:1])
        breaks = np.flatnonzero(~follows)
        count = int(breaks[0]) if len(breaks) else len(headers)
        found.append(_Run(at, count, units))
        at += count * units
    return found


def _joined(lines: Lines, runs: list[_Run]) -> tuple[Ints, Lines, Lines]:
    """Every run's header lines: their indices, the lines, and the lines after them."""
    none = np.zeros((0, _WORDS), np.uint32)
    at = [run.at + np.arange(run.count) * run.units for run in runs]
    begin = [lines[run.at :: run.units][: run.count] for run in runs]
    end = [lines[run.at + 1 :: run.units][: run.count] for run in runs]
    return np.concatenate([*at, np.zeros(0, np.int64)]), np.concatenate([*begin, none]), np.concatenate([*end, none])


def _log2(begin: Lines) -> U32s:
    """Each slab's number of records, as an exponent of two."""
    return np.asarray(begin[:, 11] >> np.uint32(layout.LOG2_SHIFT) & np.uint32(31))


def _checked(begin: Lines, end: Lines) -> Bools:
    """Whether HEADER["check"] is right: the xor of words 0..15 and 16..20 is 0."""
    left, right = begin.view(np.uint64), end.view(np.uint64)
    fold = left[:, 0] ^ left[:, 1]
    for column in (*(left[:, i] for i in range(2, 8)), right[:, 0], right[:, 1]):
        fold ^= column
    folded = (fold ^ fold >> np.uint64(32)).astype(np.uint32) ^ end[:, 4]
    return np.asarray(folded == 0)


def _complete(lines: Lines, runs: list[_Run], needed: Ints) -> Bools:
    """Whether the first `needed` records of each slab have arrived: an id is never 0, and memory is cleared before
    use.
    """
    complete = np.ones(len(needed), bool)
    row = 0
    for run in runs:
        rows = slice(row, row + run.count)
        row, most = rows.stop, int(needed[rows].max(initial=0))
        if not most:
            continue
        slabs = lines[run.at :][: run.count * run.units].reshape(run.count, run.units * _WORDS)
        ids = slabs[:, layout.HEADER_BYTES // 4 + 1 :: layout.RECORD_BYTES // 4][:, :most]
        some = np.flatnonzero(needed[rows])
        there = (ids if len(some) == run.count else ids[some]) != 0
        mine = needed[rows][some]
        if int(mine.min()) < most:
            there |= np.arange(most) >= mine[:, None]
        complete[rows][some] = there.all(axis=1)
    return complete


def _arrived(lines: Lines, at: Ints, units: Ints) -> Ints:
    """Number of records of each slab that have arrived."""
    if not len(at):
        return np.zeros(0, np.int64)
    there = lines.reshape(-1)[1::4] != 0
    in_line = there.view(np.uint32) * np.uint32(0x01010101) >> np.uint32(24)
    if (units == layout.HEADER_UNITS + 1).all():
        return np.asarray(in_line.take(at + 2), np.int64)
    bounds = np.stack([at + layout.HEADER_UNITS, at + units], axis=1).ravel()
    if bounds[-1] == len(in_line):
        bounds = bounds[:-1]
    return np.asarray(np.add.reduceat(in_line, bounds, dtype=np.int64)[::2])
