"""Where an SM's clock did not keep its rate: a line of its own for every block.

Under load the clocks of a GPU change within microseconds, and those of its GPCs differ (an H200 in an attention
kernel: by 1 % between GPCs, by 1.5 % from one wave of blocks to the next). No line fits all anchors of an SM then. A
block's line runs through the middle of the SM's band (anchors.py) where its first warp starts and where its last one
ends. All warps of a block share the line, so what was in order in cycles stays in order. Between its ends a block's
time may bow away from the line; by how much is estimated, from how much rates differ for sure and from anchors of
other blocks in between.
What lives here: these lines. What does not: where one line is enough (axis.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .anchors import FASTEST, SLOWEST, Anchors, Bools, Float, Int64, Rates, Rows, band, between

_MARGIN = 1.25
"""From one anchor to the next a clock is at most so much faster or slower than all that the launches show."""


@dataclass(frozen=True)
class Lines:
    """ns = offset + x * rate, one for each slab. error: half the band's width where the line runs through it. bow: how
    far the time may bow away from the line between its ends, an estimate. Both in ns."""

    offset: Float
    rate: Float
    error: Float
    bow: Float


@dataclass(frozen=True)
class _Chords:
    """Lines through the first and the last anchor of some; cycles: between these; bounds: of their rates."""

    offset: Float
    rate: Float
    error: Float
    begin: Float
    cycles: Float
    bounds: Rates


def lines(anchors: Anchors, group: Int64, launch: Int64, block: Int64, usual: Float, tick: int) -> Lines:
    """Per slab (s,) the line of its block. group (an SM in a launch), launch, block: indices per slab, from 0 without
    holes. usual: per slab the rate where its own anchors do not bound it."""
    rows = Rows.of(group[anchors.slab])
    first = np.flatnonzero(rows.row[1:] == rows.row[:-1])
    last = first + 1
    steps = between(anchors, first, last, tick)
    told = steps.close & (steps.least <= steps.most)
    known = np.clip(np.concatenate([steps.middle[told], usual]), FASTEST, SLOWEST)
    count = len(rows.first)
    rates = Rates(np.full(count, known.min() / _MARGIN), np.full(count, known.max() * _MARGIN))
    low, high = band(anchors, rows, tick, rates)
    sms = _chords(anchors, rows.first, rows.last, low, high, usual[anchors.slab])
    own = _chords(anchors, *_ends(block[anchors.slab]), low, high, sms.rate[group[anchors.slab]])
    bow = _bow(own, sms, group, launch, block, np.bincount(anchors.slab, minlength=len(block)) < 2)
    bow += _missed(anchors, own, block, first, last, low, high, launch)[launch]
    return Lines(own.offset[block], own.rate[block], own.error[block], bow)


def _ends(key: Int64) -> tuple[Int64, Int64]:
    """For each key, from 0 without holes, the indices of the first and the last that have it."""
    index = np.arange(len(key))
    first, last = np.empty((2, int(key.max()) + 1), np.int64)
    first[key[::-1]] = index[::-1]  # of several the last one stays
    last[key] = index
    return first, last


def _chords(anchors: Anchors, first: Int64, last: Int64, low: Float, high: Float, usual: Float) -> _Chords:
    """One for each pair of a first and a last anchor. usual: per anchor, the rate where a pair is too close to tell."""
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
    """Per slab: a clock that changes steadily within a block, by as much as from one block of the SM to the next;
    where there is no next, by as much as the launch's SMs differ."""
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
    """Per slab by how much, in ns per cycle, rates of blocks with its key differ for sure."""
    least, most = np.full(int(key.max()) + 1, -np.inf), np.full(int(key.max()) + 1, np.inf)
    np.maximum.at(least, key, bounds.least[block])
    np.minimum.at(most, key, bounds.most[block])
    return np.asarray(np.maximum(least - most, 0.0)[key])


def _missed(
    anchors: Anchors, own: _Chords, block: Int64, first: Int64, last: Int64, low: Float, high: Float, launch: Int64
) -> Float:
    """Per launch: how far the line of a block misses the next or the last anchor of its SM that lies within it."""
    missed = np.zeros(int(launch.max()) + 1)
    for one, by in ((first, last), (last, first)):
        other, x = block[anchors.slab[by]], anchors.x[one]
        inside = (x >= own.begin[other]) & (x <= own.begin[other] + own.cycles[other])
        line = own.offset[other] + x * own.rate[other]
        miss = np.maximum(low[one] - line, line - high[one])
        np.maximum.at(missed, launch[anchors.slab[one]], np.where(inside, miss, 0.0))
    return missed
