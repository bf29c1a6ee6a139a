"""Finds the slabs in a copy of claimed memory, and which of them are complete. Pure functions: compiled threads go from
head to head and read only the words that must be checked; the numpy version checks every unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kscope import native
from kscope.capture import layout, wire
from kscope.capture.heads import finished, is_head, log2_of, sizes
from kscope.util.arrays import Bools

U32s = npt.NDArray[np.uint32]
Units = npt.NDArray[np.uint32]
"""(n, 8): units of 32 bytes."""
Ints = npt.NDArray[np.int64]
LOG2 = layout.MIN_LOG2_RECORDS, layout.MAX_LOG2_RECORDS
_CHUNK = 1 << 14
"""Units that a thread searches at a time, as in claims.c."""


@dataclass(frozen=True)
class Pieces:
    """Copied parts of stripes, one after the other; each field is (p,).

    Attributes:
        stripe: index of the stripe.
        first: first unit, and after the last part the end: (p + 1,).
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

    @staticmethod
    def of(stripe: Ints, tail: U32s, units: Ints, whole: Bools, skipped: U32s, head: U32s) -> Pieces:
        """Parts of `units` units each, one after the other."""
        first = np.zeros(len(units) + 1, np.int64)
        np.cumsum(units, out=first[1:])
        return Pieces(stripe, first, tail, whole, skipped, head)

    @property
    def units(self) -> Ints:
        """Units of each part."""
        return self.first[1:] - self.first[:-1]


@dataclass(frozen=True)
class Slabs:
    """Slabs found in a copy, ascending; each field but `opens` is (s,).

    Attributes:
        at: unit of the head.
        log2: log2 of the records for which the slab has room.
        closed: the end is there, and all records of the slab.
        over: more records were written than the slab has room for.
        opens: (p + 1,) where the slabs of each part begin, and their number.
        overrun: number of slabs with `over`.
    """

    at: U32s
    log2: npt.NDArray[np.uint8]
    closed: Bools
    over: Bools
    opens: Ints
    overrun: int

    def with_closed(self, closed: Bools) -> Slabs:
        """The slabs, with other ones complete."""
        return replace(self, closed=closed)

    def units(self, which: slice) -> Ints:
        """Sizes of slabs."""
        return np.asarray(wire.HEAD_UNITS + (np.int64(1) << self.log2[which].astype(np.int64)) // wire.RECORDS_PER_UNIT)

    def of(self, part: int) -> slice:
        """The slabs of a part."""
        return slice(*self.opens[part : part + 2].tolist())

    def before(self, end: Ints) -> tuple[Ints, Ints]:
        """(True for slabs that begin before unit `end` (p,) of their part, the first of each part's among them (p +
        1,)).
        """
        parts = range(len(end))
        mine = [self.of(part) for part in parts]
        counts = [np.searchsorted(self.at[mine[part]], np.uint32(end[part])) for part in parts]
        which = [np.arange(one.start, one.start + count) for one, count in zip(mine, counts, strict=True)]
        return np.concatenate(which), np.append(0, np.cumsum(counts))


def looks_whole(units: Units) -> Bools:
    """True for units that are the heads of slabs, (n,)."""
    log2 = log2_of(units)
    return np.asarray(is_head(units) & (log2 >= LOG2[0]) & (log2 <= LOG2[1]))


def find(units: Units, pieces: Pieces, settled: int = 0) -> Slabs:
    """All slabs that lie within one part.

    Args:
        units: (m, 8) uint32.
        pieces: the parts.
        settled: %globaltimer, ns. The stores of warps that ended before it have arrived; the records of later ones are
            checked one by one.
    """
    if native.available():
        return _compiled(units, pieces, settled)
    low, high = int(pieces.first[0]), int(pieces.first[-1])
    at = np.flatnonzero(looks_whole(units[low:high])) + low
    heads = units[at]
    piece = np.searchsorted(pieces.first, at, side="right") - 1
    size = sizes(heads)
    good = at + size <= pieces.first[1:][piece]
    at, piece, size, heads = at[good], piece[good], size[good], heads[good]
    count, room = heads[:, 6].astype(np.int64), (size - wire.HEAD_UNITS) * wire.RECORDS_PER_UNIT
    closed = finished(heads)
    steps = np.uint32(settled >> wire.TIME_SHIFT & 0xFFFFFFFF)
    early = (steps - heads[:, 5]).view(np.int32) > 0 if settled else np.zeros(len(at), bool)
    needed = np.where(closed & ~early, np.minimum(count, room), 0)
    if needed.any():
        there = np.concatenate([[0], np.cumsum(units.reshape(-1, 4)[:, 1] != 0)])
        first = (at + wire.HEAD_UNITS) * wire.RECORDS_PER_UNIT
        closed &= there[first + needed] - there[first] == needed
    opens = np.searchsorted(piece, np.arange(len(pieces.stripe) + 1))
    over = finished(heads) & (count > room)
    overrun = int(np.count_nonzero(over))
    return Slabs(at.astype(np.uint32), log2_of(heads).astype(np.uint8), closed, over, opens, overrun)


def most_slabs(units: int, parts: int) -> int:
    """Rows that the columns of the compiled search must have."""
    return units // wire.slab_units(LOG2[0]) + units // _CHUNK + parts + 1


def _compiled(units: Units, pieces: Pieces, settled: int) -> Slabs:
    parts, size = len(pieces.stripe), int(pieces.first[-1] - pieces.first[0])
    most = most_slabs(size, parts)
    at, log2 = np.empty(most, np.uint32), np.empty(most, np.uint8)
    closed, over = np.empty((2, most), bool)
    opens, overrun = np.empty(parts + 1, np.int64), np.empty(1, np.int64)
    inputs = units, parts, pieces.first, *LOG2, settled, native.threads()
    n = native.call("claims", *inputs, at, log2, closed, over, opens, overrun)
    return Slabs(at[:n], log2[:n], closed[:n], over[:n], opens, int(overrun[0]))
