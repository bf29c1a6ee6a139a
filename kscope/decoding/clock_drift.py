"""Clock drift: if an SM's clock changed its rate, every block gets a separate line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..util.arrays import Float, Int64
from .anchors import Anchors, Rates, Rows, band


@dataclass(frozen=True)
class Lines:
    """ns = offset + x * rate for each slab. bend: distance by which the SM's anchors certainly miss one line, ns."""

    offset: Float
    rate: Float
    bend: Float


def lines(anchors: Anchors, group: Int64, block: Int64, usual: Float, tick: int, within: tuple[float, float]) -> Lines:
    """The line of each slab's block, (s,).

    It runs through the middle of the SM's band (anchors.py) at the start of the block's first warp and at the end of
    its last one. All warps of a block share it, so their order in cycles is kept.

    Args:
        anchors: anchors of the slabs.
        group: (s,) SM in a launch, from 0 without gaps.
        block: (s,) block, from 0 without gaps.
        usual: (s,) the rate if a slab's own anchors do not bound it.
        tick: the timer's step, ns.
        within: the least and the most ns per cycle.
    """
    rows = Rows.of(group[anchors.slab])
    count = len(rows.first)
    rates = Rates(np.full(count, within[0]), np.full(count, within[1]))
    low, high = band(anchors, rows, tick, rates)
    offset, rate = _chords(anchors, rows.first, rows.last, low, high, usual[anchors.slab])
    line = offset[rows.row] + anchors.x * rate[rows.row]
    bend = np.maximum.reduceat(np.maximum(low - line, line - high), rows.first)
    offset, rate = _chords(anchors, *_ends(block[anchors.slab]), low, high, rate[group[anchors.slab]])
    return Lines(offset[block], rate[block], bend[group])


def _ends(key: Int64) -> tuple[Int64, Int64]:
    """For each key, from 0 without gaps, the indices of its first and last occurrence."""
    index = np.arange(len(key))
    first, last = np.empty((2, int(key.max()) + 1), np.int64)
    first[key[::-1]] = index[::-1]  # the last assignment wins
    last[key] = index
    return first, last


def _chords(anchors: Anchors, first: Int64, last: Int64, low: Float, high: Float, usual: Float) -> tuple[Float, Float]:
    """Offset and rate of lines through pairs of a first and a last anchor.

    usual: per anchor, the rate if a pair is too close to bound it.
    """
    begin, cycles = anchors.x[first], anchors.x[last] - anchors.x[first]
    some = np.maximum(cycles, 1.0)
    bounds = Rates(
        np.where(cycles > 0, (low[last] - high[first]) / some, 0.0),
        np.where(cycles > 0, (high[last] - low[first]) / some, np.inf),
    )
    rate = np.where(bounds.close, bounds.middle, np.clip(usual[first], bounds.least, bounds.most))
    middle = (low + high) / 2
    return (middle[first] + middle[last] - (2 * begin + cycles) * rate) / 2, rate
