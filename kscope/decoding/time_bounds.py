"""Bounds on the error of a warp's times, for any change of the SM's clock between its anchors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import native
from ..util.arrays import Float, Int64
from ..util.parallel import each
from .anchors import FASTEST, SLOWEST, WIDE, Anchors, Rates, Rows, band, rate_between

_MARGIN = 1.25
"""A clock may be this much slower than the anchors show, and this much faster if the device's highest is unknown."""
_JITTER = 1 + 2e-4
"""A clock exceeds the device's highest by at most this factor."""
_STEP_KHZ = 15_000
"""SM clocks are multiples of it. An H100 runs for milliseconds one step above the highest that its driver states."""


@dataclass(frozen=True)
class Limits:
    """ns per cycle of a device.

    Attributes:
        briefly: the least, for a moment.
        fast: the least on average between two anchors: of the highest clock, as far as it may be exceeded.
        highest: of the highest clock itself.
        slow: the most.
    """

    briefly: float
    fast: float
    highest: float
    slow: float


def limits(anchors: Anchors, rows: Rows, tick: int, max_clock_khz: int) -> Limits:
    """The least and the most ns per cycle of the device.

    Args:
        anchors, rows: anchors of the device, in rows of one SM in one launch.
        tick: the timer's step, ns.
        max_clock_khz: the device's highest SM clock, 0 if unknown. If the anchors show a faster clock, the next
            step above that is the highest.
    """
    whole = _extremes(rate_between(anchors, rows.first, rows.last, tick))
    if native.available():
        found = [np.array([np.inf, -np.inf, np.inf]) for _ in rows.shares()]
        columns = rows.first, rows.last, anchors.x, anchors.width, anchors.y
        jobs = zip(rows.shares(), found, strict=True)
        each(lambda job: native.call("limits", *job[0], *columns, float(tick), WIDE, job[1]), jobs)
    else:
        first = np.flatnonzero(rows.row[1:] == rows.row[:-1])
        found = [_extremes(rate_between(anchors, first, first + 1, tick))]
    least, most, highest = (np.array([whole, *found]) * [1, -1, 1]).min(axis=0).tolist()
    if least == np.inf:
        least, most = FASTEST * _MARGIN, -SLOWEST / _MARGIN
    fast, slow = least / _MARGIN, -most * _MARGIN
    briefly = top = fast
    if max_clock_khz:
        possible = FASTEST < highest < np.inf  # else there are no anchors, or damaged ones
        seen_khz = 0.0 if not possible else np.ceil(1e6 / highest / _JITTER / _STEP_KHZ) * _STEP_KHZ
        highest_khz = max(max_clock_khz, seen_khz)
        fast, briefly = (1e6 / (khz * _JITTER) for khz in (highest_khz, highest_khz + _STEP_KHZ))
        top = 1e6 / highest_khz
    fast = max(fast, FASTEST)
    return Limits(max(briefly, FASTEST), fast, max(top, fast), min(max(slow, fast * _MARGIN), SLOWEST))


def _extremes(rates: Rates) -> Float:
    """Extremes of rates with consistent bounds: the least and the most middle of close bounds, and the least upper
    bound.
    """
    sound = rates.least <= rates.most
    close = rates.middle[sound & rates.close]
    return np.array([close.min(initial=np.inf), close.max(initial=-np.inf), rates.most[sound].min(initial=np.inf)])


def errors(
    anchors: Anchors, rows: Rows, tick: int, within: Limits, start: Float, rate: Float, ends: Float
) -> tuple[Float, Float]:
    """The largest error of each slab's line.

    docs/design/reliability.md derives them.

    Args:
        anchors, rows: anchors of s slabs, in rows of one SM in one launch.
        tick: the timer's step, ns.
        within: the limits of the clock.
        start: (s,) the line's ns at the slab's first anchor.
        rate: (s,) its ns per cycle.
        ends: (s,) cycles from the slab's first anchor to its last clock read.

    Returns:
        (s,) ns at the first anchor and at the end, and (s,) ns anywhere between them.
    """
    briefly, slow = within.briefly, within.slow
    whole = rows
    rows = unbroken(anchors, rows, tick, within)
    if native.available():
        first, last = np.empty((2, len(ends)), np.int64)
        whole.compiled("reach", anchors.slab, first, last)
        error, inside = np.empty((2, len(ends)))
        slabs = [np.ascontiguousarray(column) for column in (start, rate, ends)]
        columns = (
            anchors.x,
            anchors.width,
            anchors.y,
            float(tick),
            anchors.slab,
            briefly,
            within.fast,
            within.highest,
            slow,
        )
        rows.compiled("errors", *columns, *slabs, first, last, error, inside)
        return error, inside
    count = len(rows.first)
    low, high = band(anchors, rows, tick, Rates(np.full(count, briefly), np.full(count, slow)))
    first, last = reach(anchors, rows, ends)
    x = anchors.x
    error = _at_ends(x, first, last, (low, high), within, start, start + ends * rate, ends)

    # Between: the corners are compared with a chord of the row, and the chord with the slab's line.
    middle, origin = (low + high) / 2, x[rows.first]
    pace = (middle[rows.last] - middle[rows.first]) / np.maximum(x[rows.last] - origin, 1.0)
    chord = middle[rows.first][rows.row] + (x - origin[rows.row]) * pace[rows.row]
    above, below = _corners(x, rows, high - chord, chord - low, (low, high), pace[rows.row], within)
    to = np.maximum(last - 1, first)
    ahead = start - chord[first], start + (x[last] - x[first]) * rate - chord[last]
    above = _highest(above, first, to) - np.minimum(*ahead)
    below = _highest(below, first, to) + np.maximum(*ahead)
    return error, np.maximum(np.where(last > first, np.maximum(above, below), 0.0), error)


def along(
    anchors: Anchors, rows: Rows, within: Limits, band: tuple[Float, Float], value: Float, end: Float, ends: Float
) -> tuple[Float, Float]:
    """The largest error of a line that is straight between neighboring anchors, but may bend at each.

    Args:
        anchors: of s slabs.
        rows: of unbroken().
        within: the limits of the clock.
        band: bounds of the time of each anchor's first cycle.
        value: (a,) the line's ns there.
        end: (s,) the line's ns at the slab's last clock read.
        ends: (s,) cycles from the slab's first anchor to that.

    Returns:
        As errors().
    """
    low, high = band
    first, last = reach(anchors, rows, ends)
    error = _at_ends(anchors.x, first, last, band, within, value[first], end, ends)
    slope = np.append(np.diff(value) / np.maximum(np.diff(anchors.x), 1.0), 0.0)
    above, below = _corners(anchors.x, rows, high - value, value - low, band, slope, within)
    to = np.maximum(last - 1, first)
    inside = np.maximum(_highest(above, first, to), _highest(below, first, to))
    return error, np.maximum(np.where(last > first, inside, 0.0), error)


def _at_ends(
    x: Float, first: Int64, last: Int64, band: tuple[Float, Float], within: Limits, start: Float, end: Float,
    ends: Float,
) -> Float:  # fmt: skip
    """The largest error of ns at the slabs' first anchors and at their ends."""
    low, high = band
    beyond = np.maximum(x[first] + ends - x[last], 0.0)  # of the row's last anchor, where the bounds diverge
    error = np.maximum(high[last] + beyond * within.slow - end, end - low[last] - beyond * within.briefly)
    error[x[last] > x[first] + ends] = 0.0  # no anchor there: the next one bounds it, inside
    return np.maximum(error, np.maximum(high[first] - start, start - low[first]))


def _corners(
    x: Float, rows: Rows, above: Float, below: Float, band: tuple[Float, Float], slope: Float, within: Limits
) -> tuple[Float, Float]:
    """How far the time may be above and below a line between each anchor and the next one of its row.

    above, below: the same at the anchors. slope: (a,) the line's, ns per cycle.
    """
    low, high = band
    briefly, slow = within.briefly, within.slow
    cycles = np.append(np.diff(x), 0.0)
    cycles[rows.last] = 0.0
    after = np.minimum(np.arange(len(x)) + 1, rows.last[rows.row])
    gain = np.maximum(within.highest * cycles - low[after] + high, 0.0)
    up, down = np.full((2, len(x)), np.inf)
    for fast, more in ((briefly, 0.0), (within.fast, gain)):
        rising = np.clip((high[after] + more - high - fast * cycles) / (slow - fast), 0.0, cycles)
        falling = np.clip((slow * cycles - low[after] + low - more) / (slow - fast), 0.0, cycles)
        up = np.minimum(up, above + rising * (slow - slope))
        down = np.minimum(down, more + below - falling * (fast - slope))
    return np.maximum(np.maximum(above, above[after]), up), np.maximum(np.maximum(below, below[after]), down)


def reach(anchors: Anchors, rows: Rows, ends: Float) -> tuple[Int64, Int64]:
    """For each slab the index of its first anchor, and of its row's first anchor at its end or later, else the last."""
    first, found = np.empty((2, len(ends)), np.int64)
    index = np.arange(len(anchors.slab))
    found[anchors.slab] = index  # the last assignment wins
    first[anchors.slab[::-1]] = index[::-1]
    unfinished = np.flatnonzero((ends > 0) & (anchors.x[found] < anchors.x[first] + ends))
    stop = (anchors.x[first] + ends)[unfinished]
    before, last = found[unfinished] - 1, rows.last[rows.row[first[unfinished]]]
    while (last - before > 1).any():  # bisection in all rows at once
        half = (before + last) // 2
        seek, late = last - before > 1, anchors.x[half] >= stop
        before, last = np.where(seek & ~late, half, before), np.where(seek & late, half, last)
    found[unfinished] = last
    return first, np.minimum(found, rows.last[rows.row[first]])


def unbroken(anchors: Anchors, rows: Rows, tick: int, within: Limits) -> Rows:
    """The rows, cut where a clock was certainly outside its limits: it stopped, or an anchor is damaged."""
    if native.available():
        breaks = np.empty(len(anchors.x), bool)
        columns = anchors.x, anchors.width, anchors.y
        rows.compiled("breaks", *columns, float(tick), within.briefly, within.slow, breaks)
        return Rows.starting(np.flatnonzero(breaks), len(breaks))
    step = np.arange(len(anchors.x) - 1)
    rates = rate_between(anchors, step, step + 1, tick)
    broken = (rates.least > within.slow) | (rates.most < within.briefly)
    return Rows.of(np.cumsum(np.append(0, broken | (rows.row[1:] != rows.row[:-1]))))


def _highest(values: Float, first: Int64, last: Int64) -> Float:
    """The largest of values[first : last + 1], for many ranges at once."""
    found = np.empty(len(first))
    level = np.frexp((last - first + 1).astype(np.float64))[1] - 1  # of ranges of 2**level to 2**(level + 1) - 1
    for power in range(int(level.max(initial=0)) + 1):
        here = np.flatnonzero(level == power)
        found[here] = np.maximum(values[first[here]], values[last[here] + 1 - (1 << power)])
        values = np.maximum(values[: -(1 << power)], values[1 << power :]) if power < level.max() else values
    return found
