"""Slabs whose ring overran are taken only when they are seen closed for the second time.

A warp's stores may arrive in another order than they were made. In a slab with room for all records, each one is
checked: its id is never 0. In a ring that overran, a slot always holds a record, perhaps still an older one, and a
store in flight would land in memory that is already reused. So the end of such a slab is only noted at first, and the
slab is taken from a copy made SETTLED_S later; stores take microseconds.
"""

from __future__ import annotations

import time

import numpy as np

from .slab_search import Pieces, Slabs, U32s

SETTLED_S = 0.001
"""From this time on, a warp's stores have arrived."""
_NONE = np.zeros(0, np.uint32)


class OverrunSlabs:
    """The closed overrun slabs of k stripes, and when they were seen."""

    def __init__(self, stripes: int) -> None:
        self._noted: list[tuple[U32s, float]] = [(_NONE, 0.0)] * stripes

    def settled(self, slabs: Slabs, pieces: Pieces, requested: float) -> Slabs:
        """The slabs of a copy; overrun ones count as closed only if they were noted long enough before.

        Args:
            slabs: the copy's slabs.
            pieces: the copy's parts.
            requested: time.monotonic() when the copy was requested.
        """
        if not slabs.overrun:
            return slabs
        closed = slabs.closed.copy()
        for piece, stripe in enumerate(pieces.stripe.tolist()):
            which = slabs.of(piece)
            mine = which.start + np.flatnonzero(slabs.over[which] & slabs.closed[which])
            if not len(mine):
                continue
            noted, since = self._noted[stripe]
            early = requested - since < SETTLED_S
            position = slabs.at[mine] - pieces.first[piece].astype(np.uint32) + pieces.tail[piece]
            closed[mine[early | ~np.isin(position, noted)]] = False
            if not early:
                self._noted[stripe] = position, time.monotonic()
        return slabs.with_closed(closed)
