"""Finds the slabs in a copy of claimed memory, and which of them are complete. Pure functions.

Compiled if possible: one pass from head to head, which reads only the words that must be checked. numpy looks at every
unit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from kscope import native
from kscope.capture import layout, wire
from kscope.capture.heads import is_head, log2_of, sizes

U32s = npt.NDArray[np.uint32]
Units = npt.NDArray[np.uint32]
"""(n, 8): units of 32 bytes."""
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_LOG2 = layout.MIN_LOG2_RECORDS, layout.MAX_LOG2_RECORDS


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


@dataclass(frozen=True)
class Slabs:
    """Slabs found in a copy, ascending; each field is (s,).

    Attributes:
        at: unit of the head.
        piece: index of the part.
        units: size.
        closed: the end is there, and as many records as the slab should hold.
        position: of the claim.
        over: more records were written than the slab has room for.
    """

    at: Ints
    piece: Ints
    units: Ints
    closed: Bools
    position: U32s
    over: Bools

    def take(self, which: Bools) -> Slabs:
        """The slabs that a mask chooses."""
        if which.all():
            return self
        return Slabs(**{field.name: getattr(self, field.name)[which] for field in fields(self)})


def looks_whole(units: Units) -> Bools:
    """Which units are the heads of slabs, (n,)."""
    log2 = log2_of(units)
    return np.asarray(is_head(units) & (log2 >= _LOG2[0]) & (log2 <= _LOG2[1]))


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
    closed = heads[:, 7] != 0
    steps = np.uint32(settled >> wire.TIME_SHIFT & 0xFFFFFFFF)
    early = (steps - heads[:, 5]).view(np.int32) > 0 if settled else np.zeros(len(at), bool)
    needed = np.where(closed & ~early, np.minimum(count, room), 0)
    if needed.any():
        there = np.concatenate([[0], np.cumsum(units.reshape(-1, 4)[:, 1] != 0)])
        first = (at + wire.HEAD_UNITS) * wire.RECORDS_PER_UNIT
        closed &= there[first + needed] - there[first] == needed
    position = (at - pieces.first[piece]).astype(np.uint32) + pieces.tail[piece]
    return Slabs(at, piece, size, closed, position, count > room)


def _compiled(units: Units, pieces: Pieces, settled: int) -> Slabs:
    most = int(pieces.first[-1] - pieces.first[0]) // wire.slab_units(_LOG2[0]) + 1
    at, piece, size = np.empty((3, most), np.int64)
    closed, over = np.empty((2, most), bool)
    position = np.empty(most, np.uint32)
    parts = len(pieces.stripe), pieces.first, pieces.tail
    n = native.call("claims", units, *parts, *_LOG2, settled, at, piece, size, closed, position, over)
    return Slabs(at[:n], piece[:n], size[:n], closed[:n], position[:n], over[:n])
