"""SM clocks that changed their rate within a launch: their time as a line with bends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..util.arrays import Float, Int64
from ..util.parallel import filled

_FAR = float(1 << 61)
"""Larger ticks belong to damaged clocks."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves (c,) through knots (k,). A curve has two knots or more, and is straight before and after them.

    All warps of an SM in a launch share a curve, so an earlier clock is an earlier time in all of them. A trace maps
    the clocks of such warps to even ticks, which all have the warp's mean length (TraceData.even).

    Attributes:
        first: (c + 1,) int64, first knot of each curve.
        tick: int64, ascending within a curve.
        ns: float64, ns after the curve's first knot, never descending.
    """

    first: Int64
    tick: Int64
    ns: Float

    def __len__(self) -> int:
        return len(self.first) - 1

    @staticmethod
    def none() -> Curves:
        """No curves."""
        return Curves(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))

    @staticmethod
    def joined(parts: Sequence[Curves]) -> Curves:
        """The curves of all parts, in their order."""
        knots = np.cumsum([0, *(len(part.tick) for part in parts)])
        first = [part.first[:-1] + before for part, before in zip(parts, knots.tolist(), strict=False)]
        return Curves(
            np.concatenate([*first, knots[-1:]]).astype(np.int64),
            np.concatenate([np.zeros(0, np.int64), *(part.tick for part in parts)]),
            np.concatenate([np.zeros(0), *(part.ns for part in parts)]),
        )

    @cached_property
    def _slope(self) -> Float:
        """(k,) ns per tick from each knot to the next one; from a curve's last one to the first of the next curve."""
        return np.append(np.diff(self.ns) / np.maximum(np.diff(self.tick), 1), 0.0)

    def _piece(self, curve: npt.NDArray[np.integer], column: Int64 | Float, values: Int64 | Float) -> Int64:
        """The first knot of the piece that contains each value of a column."""
        low, high = self.first[curve], self.first[np.add(curve, 1)] - 1
        for _ in range(int(np.diff(self.first).max(initial=2) - 2).bit_length()):  # bisection for all at once
            middle, wide = (low + high) >> 1, high - low > 1
            late = column[middle] > values
            high = np.where(wide & late, middle, high)
            low = np.where(wide & ~late, middle, low)
        return np.asarray(low, np.int64)

    def ns_at(self, curve: npt.NDArray[np.integer], tick: Int64) -> Float:
        """(m,) ns after each curve's first knot at ticks (m,); where ticks ascend, it never descends."""

        def work(part: slice) -> Float:
            ticks = tick[part]
            at = self._piece(curve[part], self.tick, ticks)
            found = self.ns[at] + (ticks - self.tick[at]) * self._slope[at]
            return np.where(ticks < self.tick[at + 1], np.minimum(found, self.ns[at + 1]), found)

        return filled(len(tick), np.float64, work)

    def tick_at(self, curve: npt.NDArray[np.integer], ns: Float) -> Int64:
        """(m,) ticks at which curves have times (m,), in ns after their first knot."""
        at = self._piece(curve, self.ns, ns)
        slope = self._slope[at]
        after = np.divide(ns - self.ns[at], slope, out=np.zeros(len(ns)), where=slope > 0)
        return self.tick[at] + _whole(after)


@dataclass(frozen=True, eq=False)
class Lives:
    """Maps ticks of warps (w,) on curves to even ones, with the same first and last tick.

    Attributes:
        curves: the curves.
        curve: (w,) int32, the warp's, -1 for none.
        first, last: (w,) ticks between which a warp lived.
    """

    curves: Curves
    curve: npt.NDArray[np.int32]
    first: Int64
    last: Int64

    @cached_property
    def bent(self) -> npt.NDArray[np.bool_]:
        """(w,) bool: the warps on curves, except those without duration."""
        return np.asarray((self.curve >= 0) & (self._length > 0) & (self.last > self.first))

    @cached_property
    def _begin(self) -> Float:
        return self._ns(self.first)

    @cached_property
    def _length(self) -> Float:
        return self._ns(self.last) - self._begin

    def _ns(self, tick: Int64) -> Float:
        found, there = np.zeros(len(self.curve)), np.flatnonzero(self.curve >= 0)
        found[there] = self.curves.ns_at(self.curve[there], tick[there])
        return found

    def pace(self) -> Float:
        """(w,) mean ns per tick; 0 for warps that are not bent."""
        found: Float = np.divide(self._length, self.last - self.first, out=np.zeros(len(self.curve)), where=self.bent)
        return found

    def even(self, row: npt.NDArray[np.integer], tick: Int64) -> Int64:
        """Ticks (m,) of rows (m,) as even ones. They keep their order, and those of warps without curve stay."""
        made: Int64 = tick.copy()
        at = np.flatnonzero(self.bent[row])
        if len(at):
            of = row[at]
            after = self.curves.ns_at(self.curve[of], tick[at]) - self._begin[of]
            steps = after * ((self.last - self.first)[of] / self._length[of])
            made[at] = self.first[of] + _whole(steps)
        return made

    def uneven(self, row: npt.NDArray[np.integer], tick: Int64) -> Int64:
        """The warps' own ticks at even ones (m,)."""
        made: Int64 = tick.copy()
        at = np.flatnonzero(self.bent[row])
        if len(at):
            of = row[at]
            after = (tick[at] - self.first[of]) * (self._length[of] / (self.last - self.first)[of])
            made[at] = self.curves.tick_at(self.curve[of], after + self._begin[of])
        return made


def _whole(ticks: Float) -> Int64:
    return np.rint(np.clip(ticks, -_FAR, _FAR)).astype(np.int64)
