"""Clock drift: if an SM's clock changed its rate, every block gets its own line.

Under load the clocks of a GPU change within microseconds, and those of its GPCs differ (an H200 in an attention kernel:
by 1 % between GPCs, by 1.5 % between waves of blocks). Then no line fits all anchors of an SM. A block's line runs
through the middle of the SM's band (anchors.py) at the start of its first warp and at the end of its last one. All
warps of a block share the line, so their order in cycles is kept. Between its ends, time may bow away from the line; by
how much is estimated from how much rates certainly differ, and from anchors of other blocks in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .anchors import FASTEST, SLOWEST, Anchors, Bools, Float, Int64, Rates, Rows, band, between

_MARGIN = 1.25
"""Between two anchors a clock is at most so much faster or slower than the launches show."""


@dataclass(frozen=True)
class Lines:
    """ns = offset + x * rate for each slab. error: half the band's width at the line, ns. bow: an estimate of how far
    time may bow away from the line between its ends, ns.
    """

    offset: Float
    rate: Float
    error: Float
    bow: Float


@dataclass(frozen=True)
class _Chords:
    """Lines through two anchors each. cycles: between them. bounds: of their rates."""

    offset: Float
    rate: Float
    error: Float
    begin: Float
    cycles: Float
    bounds: Rates


def lines(anchors: Anchors, group: Int64, launch: Int64, block: Int64, usual: Float, tick: int) -> Lines:
    """The line of each slab's block, (s,).

    Args:
        anchors: anchors of the slabs.
        group: (s,) SM in a launch, from 0 without gaps.
        launch: (s,) launch, from 0 without gaps.
        block: (s,) block, from 0 without gaps.
        usual: (s,) the rate if a slab's own anchors do not bound it.
        tick: the timer's step, ns.
    """
    rows = Rows.of(group[anchors.slab])
    first = np.flatnonzero(rows.row[1:] == rows.row[:-1])
    last = first + 1
    steps = between(anchors, first, last, tick)
    certain = steps.close & (steps.least <= steps.most)
    known = np.clip(np.concatenate([steps.middle[certain], usual]), FASTEST, SLOWEST)
    count = len(rows.first)
    rates = Rates(np.full(count, known.min() / _MARGIN), np.full(count, known.max() * _MARGIN))
    low, high = band(anchors, rows, tick, rates)
    sms = _chords(anchors, rows.first, rows.last, low, high, usual[anchors.slab])
    own = _chords(anchors, *_ends(block[anchors.slab]), low, high, sms.rate[group[anchors.slab]])
    bow = _bow(own, sms, group, launch, block, np.bincount(anchors.slab, minlength=len(block)) < 2)
    bow += _missed(anchors, own, block, first, last, low, high, launch)[launch]
    return Lines(own.offset[block], own.rate[block], own.error[block], bow)


def _ends(key: Int64) -> tuple[Int64, Int64]:
    """For each key, from 0 without gaps, the indices of its first and last occurrence."""
    index = np.arange(len(key))
    first, last = np.empty((2, int(key.max()) + 1), np.int64)
    first[key[::-1]] = index[::-1]  # the last assignment wins
    last[key] = index
    return first, last


def _chords(anchors: Anchors, first: Int64, last: Int64, low: Float, high: Float, usual: Float) -> _Chords:
    """Lines through pairs of a first and a last anchor. usual: per anchor, the rate if a pair is too close to bound
    it.
    """
    begin, cycles = anchors.x[first], anchors.x[last] - anchors.x[first]
    some = np.maximum(cycles, 1.0)
    bounds = Rates(
        np.where(cycles > 0, (low[last] - high[first]) / some, 0.0),
        np.where(cycles > 0, (high[last] - low[first]) / some, np.inf),
    )
    rate = np.where(bounds.close, bounds.middle, np.clip(usual[first], bounds.least, bounds.most))
    middle, half = (low + high) / 2, (high - low) / 2
    offset = (middle[first] + middle[last] - (2 * begin + cycles) * rate) / 2
    error = np.maximum(half[first], half[last]) + np.abs(middle[last] - middle[first] - rate * cycles) / 2
    return _Chords(offset, rate, error, begin, cycles, bounds)


def _bow(own: _Chords, sms: _Chords, group: Int64, launch: Int64, block: Int64, unfinished: Bools) -> Float:
    """Per slab: the bow of a clock that changes steadily within a block, by as much as between consecutive blocks of
    the SM, or, if there is no next block, by as much as the launch's SMs differ.
    """
    open_ = np.zeros(len(own.rate), bool)
    open_[block[unfinished]] = True
    cycles = np.where(open_[block], sms.cycles[group], own.cycles[block])
    latest, earliest = np.full(len(sms.rate), -np.inf), np.full(len(sms.rate), np.inf)
    np.maximum.at(latest, group, own.begin[block])
    np.minimum.at(earliest, group, (own.begin + own.cycles)[block])
    waves = (latest > earliest)[group]
    differ = np.where(waves, _differ(own.bounds, block, group), _differ(own.bounds, block, launch))
    return np.asarray(differ * cycles / 8)


def _differ(bounds: Rates, block: Int64, key: Int64) -> Float:
    """Per slab: by how much, in ns per cycle, the rates of blocks with its key certainly differ."""
    least, most = np.full(int(key.max()) + 1, -np.inf), np.full(int(key.max()) + 1, np.inf)
    np.maximum.at(least, key, bounds.least[block])
    np.minimum.at(most, key, bounds.most[block])
    return np.asarray(np.maximum(least - most, 0.0)[key])


def _missed(
    anchors: Anchors, own: _Chords, block: Int64, first: Int64, last: Int64, low: Float, high: Float, launch: Int64
) -> Float:
    """Per launch: how far a block's line misses the next or the previous anchor of its SM within it."""
    missed = np.zeros(int(launch.max()) + 1)
    for one, by in ((first, last), (last, first)):
        other, x = block[anchors.slab[by]], anchors.x[one]
        inside = (x >= own.begin[other]) & (x <= own.begin[other] + own.cycles[other])
        line = own.offset[other] + x * own.rate[other]
        miss = np.maximum(low[one] - line, line - high[one])
        np.maximum.at(missed, launch[anchors.slab[one]], np.where(inside, miss, 0.0))
    return missed
