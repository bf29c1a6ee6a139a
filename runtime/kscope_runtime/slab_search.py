"""Finds the slabs in a copy of claimed memory, and which of them are complete. Pure functions.

Compiled if possible: one pass from header to header, which reads only the words that must be checked. numpy scans every
line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kscope import native
from kscope.capture import layout

U32s = npt.NDArray[np.uint32]
Lines = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
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


def find(lines: Lines, pieces: Pieces, settled: int = 0) -> Slabs:
    """All slabs with a complete header at the place that it names, within one part.

    Args:
        lines: (m, 16) uint32.
        pieces: the parts in lines.
        settled: %globaltimer, ns. The stores of warps that ended before it have arrived; the records of later ones are
            checked one by one.
    """
    if native.available():
        return _compiled(lines, pieces, settled)
    low, high = int(pieces.first[0]), int(pieces.first[-1])
    at = np.flatnonzero(lines[low : high - 1].reshape(-1)[::_WORDS] == layout.HEADER_WORD) + low
    begin, end = lines.take(at, axis=0), lines.take(at + 1, axis=0)
    piece = np.repeat(np.arange(len(pieces.stripe)), np.diff(np.searchsorted(at, pieces.first)))
    where = (at + (pieces.tail - pieces.first[:-1])[piece]).astype(np.uint32)
    log2 = (begin[:, 11] >> np.uint32(layout.LOG2_SHIFT) & np.uint32(31)).astype(np.int64)
    units = layout.HEADER_UNITS + (1 << log2) // layout.RECORDS_PER_UNIT
    good = at + units <= pieces.first[1:][piece]
    good &= begin[:, 13] == where
    good &= begin[:, 14] == pieces.stripe.astype(np.uint32)[piece]
    good &= _checked(begin, end)
    if not good.all():
        at, piece, units, begin, end = at[good], piece[good], units[good], begin[good], end[good]
    count = end[:, 13].astype(np.int64)
    room = (units - layout.HEADER_UNITS) * layout.RECORDS_PER_UNIT
    closed = end[:, 15] == (end[:, 13] ^ end[:, 8] ^ np.uint32(layout.DONE_WORD))
    ended = np.ascontiguousarray(end[:, 10:12]).view("<u8")[:, 0]
    needed = np.where(closed & (ended >= np.uint64(settled)), np.minimum(count, room), 0)
    if needed.any():
        closed &= _arrived(lines[low:high], at - low, units) >= needed
    ring = begin[:, 11] >> np.uint32(layout.FLAG_SHIFT) & np.uint32(layout.FLAG_STOP) == 0
    return Slabs(at, piece, units, closed, begin[:, 1], begin[:, 13], ring & (count > room))


def _compiled(lines: Lines, pieces: Pieces, settled: int) -> Slabs:
    most = int(pieces.first[-1] - pieces.first[0]) // (layout.HEADER_UNITS + 1) + 1
    at, piece, units = np.empty((3, most), np.int64)
    closed, over = np.empty((2, most), bool)
    epoch, position = np.empty((2, most), np.uint32)
    stop_bit = layout.FLAG_STOP << layout.FLAG_SHIFT
    words = layout.HEADER_WORD, layout.DONE_WORD, layout.LOG2_SHIFT, stop_bit
    parts = len(pieces.stripe), pieces.first, pieces.tail, pieces.stripe
    columns = at, piece, units, closed, epoch, position, over
    n = native.call("claims", lines, *parts, *words, settled, *columns)
    return Slabs(at[:n], piece[:n], units[:n], closed[:n], epoch[:n], position[:n], over[:n])


def _checked(begin: Lines, end: Lines) -> Bools:
    """Whether HEADER["check"] is right: the xor of words 0..15 and 16..20 is 0."""
    left, right = begin.view(np.uint64), end.view(np.uint64)
    fold = left[:, 0] ^ left[:, 1]
    for column in (*(left[:, i] for i in range(2, 8)), right[:, 0], right[:, 1]):
        fold ^= column
    folded = (fold ^ fold >> np.uint64(32)).astype(np.uint32) ^ end[:, 4]
    return np.asarray(folded == 0)


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
