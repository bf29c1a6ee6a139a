"""Curves of SM clocks that changed their rate: lines with as few bends as the anchors prove."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tracedata.clock_curves import Curves
from ..util.arrays import Bools, Float, Int64
from ..util.parallel import each
from . import time_bounds
from .anchors import Anchors, Rates, Rows, band_in_numpy

_ROUNDS = 40
"""Rounds of bends: each mostly halves the pieces. If they are not enough, all anchors that contradict a piece are
knots.
"""


@dataclass(frozen=True)
class Bent:
    """Times and bounds of slabs (s,) by curves.

    Attributes:
        curves: of rows (SMs in launches).
        curve: (s,) each slab's.
        start: (s,) ns at its first anchor.
        rate: (s,) mean ns per cycle; 0 if it lasted none.
        ends_error, error: (s,) largest error of its ends and of any of its times, ns.
    """

    curves: Curves
    curve: Int64
    start: Float
    rate: Float
    ends_error: Float
    error: Float


def fit(anchors: Anchors, rows: Rows, tick: int, within: time_bounds.Limits, reference: Int64, cycles: Float) -> Bent:
    """Curves through the anchors of slabs (s,).

    They run through the middle of the band (anchors.py) at some of the anchors, and bend only where anchors contradict
    a straight piece; see docs/design/reliability.md.

    Args:
        anchors: of these slabs.
        rows: a row of anchors for each SM in a launch.
        tick: the timer's step, ns.
        within: the limits of the clock.
        reference: (rows,) the SM's clock at x = 0.
        cycles: (s,) from the slab's first anchor to its last clock read.
    """
    unbroken = time_bounds.unbroken(anchors, rows, tick, within)
    rates = Rates(*(np.full(len(unbroken.first), one) for one in (within.briefly, within.slow)))
    low, high = band_in_numpy(anchors, unbroken, tick, rates)
    row = rows.row
    middle = _ascending((low + high) / 2, rows)
    bends, half = np.empty(len(row), bool), (high - low) / 2

    def work(part: tuple[slice, slice, Rows]) -> None:
        _, where, mine = part
        bends[where] = _bends(anchors.x[where], middle[where], half[where], mine)

    each(work, rows.parts())
    knots = np.flatnonzero(bends)
    of = row[knots]
    first = np.searchsorted(of, np.arange(len(rows.first) + 1))
    curves = Curves(first, anchors.x[knots].astype(np.int64) + reference[of], middle[knots] - middle[rows.first][of])
    piece = np.cumsum(bends) - 1
    slope = np.append(_over(np.diff(middle[knots]), np.diff(anchors.x[knots])), 0.0)
    value = middle[knots][piece] + (anchors.x - anchors.x[knots][piece]) * slope[piece]
    begin, _ = time_bounds.reach(anchors, unbroken, cycles)
    curve = row[begin]
    start = value[begin]
    clock = anchors.x[begin].astype(np.int64) + reference[curve] + cycles.astype(np.int64)
    at_end = middle[rows.first][curve] + curves.ns_at(curve, clock)
    errors = time_bounds.along(anchors, unbroken, within, (low, high), value, at_end, cycles)
    rate = np.divide(at_end - start, cycles, out=np.zeros(len(cycles)), where=cycles > 0)
    return Bent(curves, curve, start, rate, *errors)


def _ascending(values: Float, rows: Rows) -> Float:
    """The values, except those below an earlier one of their row, which only damaged anchors are."""
    falls = values[1:] < values[:-1]
    falls[rows.first[1:] - 1] = False
    for row in np.unique(rows.row[1:][falls]).tolist():
        part = slice(rows.first[row], rows.last[row] + 1)
        values[part] = np.maximum.accumulate(values[part])
    return values


def _bends(x: Float, middle: Float, half: Float, rows: Rows) -> Bools:
    """(a,) bool: the anchors at which the curve of their row bends, and the row's first and last.

    Between two knots, whose true times are within `half` of their middles, a straight clock is as near to the line
    through these as both together allow.
    """
    knots = np.zeros(len(x), bool)
    knots[rows.first] = knots[rows.last] = True
    at = np.arange(len(x))
    for left in reversed(range(_ROUNDS)):
        place = np.flatnonzero(knots)
        begin, value, room = x[place], middle[place], half[place]
        width = np.append(np.diff(begin), 0.0)
        slope, widens = (_over(np.append(np.diff(one), 0.0), width) for one in (value, room))
        piece = (np.cumsum(knots) - 1)[at]
        after = x[at] - begin[piece]
        inside = (after > 0) & (after < width[piece])
        at, piece, after = at[inside], piece[inside], after[inside]
        over = np.abs(middle[at] - value[piece] - after * slope[piece])
        over -= half[at] + room[piece] + after * widens[piece]
        far = over > 0
        if not far.any():
            break
        if not left:
            knots[at[far]] = True
        live = np.zeros(len(place), bool)
        live[piece[far]] = True
        kept = live[piece]
        at, piece, far, over = at[kept], piece[kept], far[kept], over[kept]
        a, b = place[piece], place[piece + 1]
        central = far & (4 * (at - a) > b - a) & (4 * (b - at) > b - a)  # else many equal bends take as many rounds
        knots[at[Rows.of(piece).largest(np.where(central, over + np.ptp(over), over))]] = True
    return knots


def _over(rise: Float, width: Float) -> Float:
    """Slopes; 0 where there is no width, or from one row to the next."""
    found: Float = np.divide(rise, width, out=np.zeros(len(rise)), where=width > 0)
    return found
