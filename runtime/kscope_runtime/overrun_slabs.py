"""Rings that ran over are taken when they are seen closed for the second time.

A lane's stores may arrive in another order than it made them. In a slab that has room for all records each one is
looked for: its id is never 0. Where a ring ran over, a slot holds a record in any case, perhaps still the one before
the newest, and a store on its way would land in memory that is somebody else's by then. So the end of such a slab is
only noted at first. It is taken from a copy that was asked for SETTLED_S later, and the store has that long to arrive;
stores take microseconds. What lives here: what was noted. What does not: anything of slabs with room (accounting.py).
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from .accounting import Pieces, Slabs, U32s

SETTLED_S = 0.001
_NONE = np.zeros(0, np.uint32)


class Twice:
    """For each of k stripes: the positions of slabs that ran over and were closed, and when that was seen. Threads
    may ask at once for different stripes."""

    def __init__(self, stripes: int) -> None:
        self._noted: list[tuple[U32s, float]] = [(_NONE, 0.0)] * stripes

    def settled(self, slabs: Slabs, pieces: Pieces, asked: float) -> Slabs:
        """The slabs of a copy that was asked for at that time.monotonic(); those that ran over are closed only where
        they were noted long enough before."""
        over = np.flatnonzero(slabs.over & slabs.closed)
        if not len(over):
            return slabs
        closed = slabs.closed.copy()
        bounds = np.searchsorted(slabs.piece[over], np.arange(len(pieces.stripe) + 1)).tolist()
        for piece, stripe in enumerate(pieces.stripe.tolist()):
            mine = over[bounds[piece] : bounds[piece + 1]]
            if not len(mine):
                continue
            noted, since = self._noted[stripe]
            early = asked - since < SETTLED_S
            closed[mine[early | ~np.isin(slabs.position[mine], noted)]] = False
            if not early:
                self._noted[stripe] = slabs.position[mine], time.monotonic()
        return replace(slabs, closed=closed)
