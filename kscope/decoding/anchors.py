"""What anchors say of an SM's clock: bounds of its rate, and the band that its time lies in.

An anchor is a bracket: clock64 before, %globaltimer, clock64 after. The timer was read somewhere in the bracket, and
its true time is less than one tick after what it said; the time of the bracket's first cycle, T(x), is bounded so:

    time - (width + 1) * rate <= T(x) < time + tick

Between any two cycles of an SM the time that passes is bounded by the fastest and the slowest rate. All anchors of an
SM together are then a band around T, which is narrower than a tick where they are many or close together.
What lives here: these bounds. What does not: lines through the band (axis.py, bending.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FASTEST, SLOWEST = 0.2, 10.0
"""ns per cycle of any GPU: 5 GHz to 100 MHz; used only where anchors say less than that."""
WIDE = 0.02
"""A rate that its anchors bound no better than 2 % is taken from others, within the bounds."""


@dataclass(frozen=True)
class Anchors:
    """Anchors of one device, (a,): x, width in cycles and y in ns as float64 after the references, with slab indices.

    width is one cycle more than the two clocks are apart: the second was read before its count went on."""

    x: Float
    width: Float
    y: Float
    slab: Int64

    def of(self, slabs: Bools) -> Anchors:
        """Those of the slabs that a mask chooses, which are numbered anew."""
        kept = slabs[self.slab]
        number = np.cumsum(slabs) - 1
        return Anchors(self.x[kept], self.width[kept], self.y[kept], number[self.slab[kept]])


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
        """The same one for each of so many."""
        return Rates(np.broadcast_to(self.least, count), np.broadcast_to(self.most, count))


@dataclass(frozen=True)
class Rows:
    """Anchors sorted by (key, x), a row for each key. order: (a,) indices of anchors; row: (a,) the rows of these, from
    0; at: (a,) the row of each anchor; begin, end: (rows,) where in `order` each row has its first and its last."""

    order: Int64
    row: Int64
    at: Int64
    begin: Int64
    end: Int64

    @staticmethod
    def of(key: Int64, x: Float) -> Rows:
        order = np.lexsort((x, key))
        new = np.diff(key[order], prepend=-1) != 0
        begin, row = np.flatnonzero(new), np.cumsum(new) - 1
        at = np.empty(len(order), np.int64)
        at[order] = row
        return Rows(order, row, at, begin, np.append(begin[1:], len(order)) - 1)

    @property
    def first(self) -> Int64:
        return np.asarray(self.order[self.begin])

    @property
    def last(self) -> Int64:
        return np.asarray(self.order[self.end])

    def largest(self, values: Float) -> Int64:
        """For each row the index of an anchor whose value is the largest."""
        ordered = values[self.order]
        top = np.flatnonzero(ordered == np.maximum.reduceat(ordered, self.begin)[self.row])
        found: Int64 = self.first.copy()
        found[self.row[top]] = self.order[top]
        return found


def between(anchors: Anchors, first: Int64, last: Int64, tick: int) -> Rates:
    """What two anchors of an SM say of the rate between them."""
    elapsed = anchors.y[last] - anchors.y[first]
    longest = anchors.x[last] + anchors.width[last] - anchors.x[first]
    shortest = anchors.x[last] - anchors.x[first] - anchors.width[first]
    return Rates(
        np.where(longest > 0, (elapsed - tick) / longest, 0.0),
        np.where(shortest > 0, (elapsed + tick) / shortest, np.inf),
    )


def band(anchors: Anchors, rows: Rows, tick: int, rates: Rates) -> tuple[Float, Float]:
    """(low, high): the least and the most ns of each anchor's first cycle, by all anchors of its row. rates: per row,
    what a cycle takes at least and at most."""
    order, row = rows.order, rows.row
    x, y = anchors.x[order] - anchors.x[rows.first][row], anchors.y[order] - anchors.y[rows.first][row]
    fast, slow = rates.least[row], rates.most[row]
    least, most = y - anchors.width[order] * slow, y + tick
    back = row[-1] - row[::-1]
    low = np.maximum(
        _running(least - fast * x, row) + fast * x,
        _running((least - slow * x)[::-1], back)[::-1] + slow * x,
    )
    high = np.minimum(
        slow * x - _running(slow * x - most, row),
        fast * x - _running((fast * x - most)[::-1], back)[::-1],
    )
    fits = low <= high  # else an anchor is damaged, or the rates are wrong: each stands for itself
    out = np.empty((2, len(order)))
    start = anchors.y[rows.first][row]
    out[:, order] = np.where(fits, low, least) + start, np.where(fits, high, most) + start
    return out[0], out[1]


def _running(values: Float, row: Int64) -> Float:
    """The largest value so far within each row; rows follow one another and are numbered upwards."""
    lift = row * (np.ptp(values) + 1.0)
    return np.asarray(np.maximum.accumulate(values + lift) - lift, np.float64)
