"""Observes a pool file over time: how long each warp, and the whole program, has not changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..capture import wire
from ..capture.pools.pool_reading import Pool
from .warps import Warps, keys, states


class Observer:
    """What was seen of one pool so far.

    Attributes:
        unchanged_s: since when nothing changed, seconds, as of the last look; None after the first one.
        enters_per_s: regions that were stored when entered, a second between the last two looks, by warps that were
            there at both; None after the first one.
    """

    def __init__(self) -> None:
        self.unchanged_s: float | None = None
        self.enters_per_s: float | None = None
        self._entered, self._looked = dict[Any, int](), 0.0
        self._seen: dict[Any, tuple[int, float]] = {}  # of each warp: its state, and when it was first seen
        self._whole: tuple[object, ...] = ()
        self._changed = 0.0
        self._looks = 0

    def look(self, pool: Pool, found: Warps, now: float) -> npt.NDArray[np.float64] | None:
        """Take in what was found.

        Args:
            pool: the pool file.
            found: its warps.
            now: seconds, of a clock that only goes forward.

        Returns:
            (n,) since when each unfinished warp is as it is, seconds; None at the first look.
        """
        state = states(found)
        seen, before = dict[Any, tuple[int, float]](), self._seen
        since = np.zeros(len(found))
        rows = np.flatnonzero(~found.finished)
        for row, key, value in zip(rows.tolist(), keys(found)[rows].tolist(), state[rows].tolist(), strict=True):
            known = before.get(key)
            seen[key] = known if known is not None and known[0] == value else (value, now)
            since[row] = now - seen[key][1]
        self._count(found, rows, now)
        whole = *pool.state[0].tolist(), len(found), int(np.bitwise_xor.reduce(state, initial=0))
        if whole != self._whole:
            self._whole, self._changed = whole, now
        self._seen, self._looks = seen, self._looks + 1
        self.unchanged_s = None if self._looks == 1 else now - self._changed
        return None if self._looks == 1 else since

    def _count(self, found: Warps, rows: npt.NDArray[np.int64], now: float) -> None:
        numbers = (found.word["sequence"][rows] >> np.uint32(wire.SEQUENCE_SHIFT)).tolist()
        entered = dict(zip(keys(found)[rows].tolist(), numbers, strict=True))
        most = 1 << 32 - wire.SEQUENCE_SHIFT
        more = sum((entered[key] - before) % most for key, before in self._entered.items() if key in entered)
        self.enters_per_s = more / (now - self._looked) if self._looks and now > self._looked else None
        self._entered, self._looked = entered, now
