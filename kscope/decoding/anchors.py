"""Derives from anchors the bounds of an SM's clock rate and the band that contains its time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .. import native
from ..util.arrays import Bools, Float, Int64
from ..util.parallel import CHUNK, each, workers

FASTEST, SLOWEST = 0.2, 10.0
"""ns per cycle of any GPU: 5 GHz to 100 MHz; used only if the anchors give no tighter bound."""
WIDE = 0.02
"""Relative width above which a rate is taken from other anchors, within the bounds."""


@dataclass(frozen=True)
class Anchors:
    """Anchors of one device, (a,): x, width in cycles and y in ns as float64 after the references, with slab indices.

    width is the distance of the two clock reads plus one cycle, because the second read truncates. The anchors of an SM
    are contiguous, in order of x.
    """

    x: Float
    width: Float
    y: Float
    slab: Int64

    def at(self, which: slice | Int64) -> Anchors:
        """The anchors at the indices."""
        return Anchors(self.x[which], self.width[which], self.y[which], self.slab[which])

    def of(self, slabs: Bools) -> Anchors:
        """The anchors of the slabs in a mask, with slabs renumbered."""
        kept = self.at(np.flatnonzero(slabs[self.slab]))
        return Anchors(kept.x, kept.width, kept.y, (np.cumsum(slabs) - 1)[kept.slab])


@dataclass(frozen=True)
class Rates:
    """Bounds of rates, ns per cycle."""

    least: Float
    most: Float

    @property
    def middle(self) -> Float:
        return (self.least + self.most) / 2

    @property
    def close(self) -> npt.NDArray[np.bool_]:
        return self.most - self.least < WIDE * self.middle

    def spread(self, count: int) -> Rates:
        """The same rates for `many` rows."""
        return Rates(np.broadcast_to(self.least, count), np.broadcast_to(self.most, count))


@dataclass(frozen=True)
class Rows:
    """Neighboring anchors with one key each, (rows,): indices of their first and their last anchor."""

    first: Int64
    last: Int64

    @staticmethod
    def of(key: Int64) -> Rows:
        """The rows of anchors whose equal keys (a,) are adjacent."""
        return Rows.starting(np.flatnonzero(np.diff(key, prepend=key[:1] - 1)), len(key))

    @staticmethod
    def starting(first: Int64, anchors: int) -> Rows:
        """The rows that begin at `first` (rows,), of so many anchors."""
        return Rows(first, np.append(first[1:], anchors) - 1)

    @cached_property
    def row(self) -> Int64:
        """(a,) the row of each anchor, from 0."""
        return np.repeat(np.arange(len(self.first)), self.last - self.first + 1)

    def cuts(self, size: int = CHUNK) -> list[tuple[int, int]]:
        """Ranges of rows with about so many anchors, at least one row; without `size`, as many as fit a core's cache
        with numpy's temporaries.
        """
        cuts = np.unique(np.searchsorted(self.first, np.arange(0, self.first[-1] + 1, size))).tolist()
        return list(zip(cuts, [*cuts[1:], len(self.first)], strict=True))

    def shares(self) -> list[tuple[int, int]]:
        """Ranges of rows for compiled functions: as few as keep all threads busy."""
        return self.cuts(max(CHUNK, int(self.last[-1]) // (2 * workers())))

    def parts(self) -> list[tuple[slice, slice, Rows]]:
        """(which rows, which anchors, the same as rows of these alone) for each of the cuts."""
        found = []
        for a, b in self.cuts():
            begin, end = int(self.first[a]), int(self.last[b - 1]) + 1
            found.append((slice(a, b), slice(begin, end), Rows(self.first[a:b] - begin, self.last[a:b] - begin)))
        return found

    def compiled(self, name: str, *arguments: npt.NDArray[np.generic] | float) -> None:
        """Call a compiled function on all rows, in parallel."""
        each(lambda cut: native.call(name, *cut, self.first, self.last, *arguments), self.shares())

    def largest(self, values: Float) -> Int64:
        """For each row the index of an anchor whose value is the largest."""
        top = np.flatnonzero(values == np.maximum.reduceat(values, self.first)[self.row])
        found: Int64 = self.first.copy()
        found[self.row[top]] = top
        return found


def rate_between(anchors: Anchors, first: Int64, last: Int64, tick: int) -> Rates:
    """Bounds of the clock's rate between two anchors of an SM."""
    elapsed = anchors.y[last] - anchors.y[first]
    longest = anchors.x[last] + anchors.width[last] - anchors.x[first]
    shortest = anchors.x[last] - anchors.x[first] - anchors.width[first]
    return Rates(
        np.where(longest > 0, (elapsed - tick) / longest, 0.0),
        np.where(shortest > 0, (elapsed + tick) / shortest, np.inf),
    )


def tightest(anchors: Anchors, rows: Rows, rate: Float) -> tuple[Int64, Int64]:
    """(after, before): per row the anchors between which a line of its rate has the least room. It does not run under
    the first, nor over the second."""
    after, before = np.empty((2, len(rows.first)), np.int64)
    if native.available():
        rows.compiled("tightest", anchors.x, anchors.width, anchors.y, rate, after, before)
        return after, before

    def work(part: tuple[slice, slice, Rows]) -> None:
        which, where, mine = part
        some, pace = anchors.at(where), rate[which][mine.row]
        after[which] = mine.largest(some.y - (some.x + some.width) * pace) + where.start
        before[which] = mine.largest(some.x * pace - some.y) + where.start

    each(work, rows.parts())
    return after, before


def band(anchors: Anchors, rows: Rows, tick: int, rates: Rates) -> tuple[Float, Float]:
    """(low, high): the least and the most ns of each anchor's first cycle, by all anchors of its row.

    An anchor is a bracket: clock64 before, %globaltimer, clock64 after. The timer was read somewhere in the bracket,
    and the true time is less than one tick after the value read. The time T(x) of the bracket's first cycle is bounded
    by

        time - (width + 1) * rate <= T(x) < time + tick

    The fastest and the slowest rate bound the time between any two cycles of an SM. So all anchors of an SM give a band
    around T, which is narrower than a tick if they are many or close together. rates: per row, the least and the most
    ns of a cycle.
    """
    if native.available():
        low, high = np.empty((2, len(anchors.x)))
        columns = anchors.x, anchors.width, anchors.y
        rows.compiled("band", *columns, float(tick), rates.least, rates.most, low, high)
        return low, high
    return band_in_numpy(anchors, rows, tick, rates)


def band_in_numpy(anchors: Anchors, rows: Rows, tick: int, rates: Rates) -> tuple[Float, Float]:
    """The same, with or without compiled loops, which round differently."""
    low, high = np.empty((2, len(anchors.x)))

    def work(part: tuple[slice, slice, Rows]) -> None:
        which, where, mine = part
        bounds = Rates(rates.least[which], rates.most[which])
        low[where], high[where] = _band(anchors.at(where), mine, tick, bounds)

    each(work, rows.parts())
    return low, high


def _band(anchors: Anchors, rows: Rows, tick: int, rates: Rates) -> tuple[Float, Float]:
    row = rows.row
    x, y = anchors.x - anchors.x[rows.first][row], anchors.y - anchors.y[rows.first][row]
    fast, slow = rates.least[row], rates.most[row]
    least, most = y - anchors.width * slow, y + tick
    back = row[-1] - row[::-1]
    low = np.maximum(
        _running(least - fast * x, row) + fast * x,
        _running((least - slow * x)[::-1], back)[::-1] + slow * x,
    )
    high = np.minimum(
        slow * x - _running(slow * x - most, row),
        fast * x - _running((fast * x - most)[::-1], back)[::-1],
    )
    fits = low <= high  # else an anchor is damaged, or the rates are wrong: each is used alone
    start = anchors.y[rows.first][row]
    return np.where(fits, low, least) + start, np.where(fits, high, most) + start


def _running(values: Float, row: Int64) -> Float:
    """The largest value so far within each row; rows follow one another in ascending order."""
    lift = row * (np.ptp(values) + 1.0)
    return np.asarray(np.maximum.accumulate(values + lift) - lift, np.float64)
