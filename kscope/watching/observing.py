"""Observes a pool file over time: for how long each warp, and the whole program, has not changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..capture import wire
from ..capture.pools.pool_reading import Pool
from .warp_columns import FINISHED, Warps

_Slab = tuple[int, int, int, int]
"""Identity of a warp's slab: launch, block, warp, lane."""
_Value = TypeVar("_Value")


class Observer:
    """Observations of one pool so far.

    Attributes:
        unchanged_s: seconds without any change, at the last observation; None after the first one.
        enters_per_s: regions that were stored when entered, a second between the last two observations, by warps
            that were there at both; None after the first one.
    """

    def __init__(self) -> None:
        self.unchanged_s: float | None = None
        self.enters_per_s: float | None = None
        self._found: Warps | None = None
        self._since: list[float] = []  # by warp: first observation of its present state
        self._whole: tuple[object, ...] = ()
        self._changed = self._looked = 0.0

    def look(self, pool: Pool, found: Warps, now: float) -> list[float] | None:
        """Process an observation.

        Args:
            pool: the pool file.
            found: its warps.
            now: seconds, of a monotonic clock.

        Returns:
            (n,) seconds for which each unfinished warp has not changed, 0 for others; None at the first observation.
        """
        whole = *pool.state.values(), found.slabs, found.whole
        if whole != self._whole:
            self._whole, self._changed = whole, now
        before, since = self._found, [now] * len(found.state)
        if before is not None:
            seen = _by_slab(before, zip(before.version, self._since, strict=True))
            for row, (slab, version) in enumerate(zip(_slabs(found), found.version, strict=True)):
                known = seen.get(slab)
                if known is not None and known[0] == version:
                    since[row] = known[1]
            self.unchanged_s = now - self._changed
            self.enters_per_s = _entered(before, found) / (now - self._looked) if now > self._looked else None
        self._found, self._since, self._looked = found, since, now
        return None if before is None else [now - one for one in since]


def _entered(before: Warps, found: Warps) -> int:
    """Regions entered between two observations by the warps that are in both."""
    most = 1 << 32 - wire.SEQUENCE_SHIFT
    first, last = _by_slab(before, before.entered), _by_slab(found, found.entered)
    return sum((last[slab] - count) % most for slab, count in first.items() if slab in last)


def _slabs(found: Warps) -> Iterator[_Slab]:
    return zip(found.grid, found.block, found.warp, found.lane, strict=True)


def _by_slab(found: Warps, column: Iterable[_Value]) -> dict[_Slab, _Value]:
    """The values of unfinished warps."""
    rows = zip(_slabs(found), found.state, column, strict=True)
    return {slab: value for slab, state, value in rows if state != FINISHED}
