"""Takes slabs whose ring overran only when they are seen closed for the second time. In a ring that overran, a slot
always holds a record, perhaps an older one whose successor is in flight, so the slab is taken from a copy made
SETTLED_S after its end was seen.
"""

from __future__ import annotations

import time

import numpy as np

from .slab_search import Pieces, Slabs, U32s

SETTLED_S = 0.001
"""A warp's stores have arrived after this time; they take microseconds."""
_NONE = np.zeros(0, np.uint32)


class OverrunSlabs:
    """The closed overrun slabs of k stripes, and the times when they were seen."""

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
