"""Figures beside the timeline: histograms, longest spans, and imbalance. A histogram's bins are the upper bits of the
duration as a float32: 64 of equal width per power of two, from one shift.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from ..util.arrays import Float, Int64
from .scene import SPAN, Part, Scene

MOST_NAMES = 512
"""Number of names with a histogram; the others are only in the table."""
LONGEST = 24
"""Number of listed spans per name."""
MOST_BLOCKS = 256
_SHIFT = 17  # 6 of 23 bits of mantissa remain


@dataclass(frozen=True, eq=False)
class Longest:
    """Spans (m,).

    Attributes:
        name: the name.
        warp: index into scene.drawn.
        begin_ns: after drawn.base.
        dur_ns: duration.
    """

    name: Int64
    warp: Int64
    begin_ns: Float
    dur_ns: Float


@dataclass(frozen=True, eq=False)
class Axes:
    """The axes of counts.

    Attributes:
        first, bins: the first bin and their number.
        warps, warp: number of warps; each row's warp.
        first_block, last_block: of each column; several blocks share a column if there are many.
        column: each row's column.
    """

    first: int
    bins: int
    warps: int
    warp: Int64
    first_block: Int64
    last_block: Int64
    column: Int64


def axes(scene: Scene) -> Axes:
    """The axes of a scene."""
    trace, drawn = scene.trace, scene.drawn
    paces = trace.warps.tick_ns[drawn.rows]
    longest = float(trace.even.dur_cycles.max(initial=0)) * float(paces.max(initial=1.0))
    first = int(bins_of(np.array([float(paces[paces > 0].min(initial=1.0)) / 2]))[0])
    last = int(bins_of(np.array([longest]))[0])
    warp, block = trace.warps.warp[drawn.rows].astype(np.int64), trace.warps.block[drawn.rows]
    blocks, rank = np.unique(block, return_inverse=True)
    columns = min(len(blocks), MOST_BLOCKS)
    heads = -(-np.arange(columns + 1) * len(blocks) // max(columns, 1))
    return Axes(
        first, max(last - first + 1, 1), int(warp.max(initial=0)) + 1, warp,
        blocks[heads[:-1]], blocks[heads[1:] - 1], rank.ravel() * columns // max(len(blocks), 1),
    )  # fmt: skip


class Figures:
    """Counts for one SM; merge() adds another's.

    Attributes:
        histogram: (names, bins) from axes.first on.
        by_place, by_warp, by_block: (names, places | warps | columns) ns.
    """

    def __init__(self, scene: Scene, axes: Axes) -> None:
        self._scene, self._axes = scene, axes
        self.names = min(len(scene.names), MOST_NAMES)
        self.histogram = np.zeros((self.names, axes.bins), np.int64)
        self.by_place = np.zeros((self.names, len(scene.drawn.places)))
        self.by_warp = np.zeros((self.names, axes.warps))
        self.by_block = np.zeros((self.names, len(axes.first_block)))
        self._longest: list[Longest] = []

    def add(self, part: Part) -> None:
        """Count a part."""
        codes = self._scene.codes
        name = codes.name[part.code]
        is_span = (codes.kind[part.code] == SPAN) & (name < self.names)
        at = np.flatnonzero(is_span)
        name, warp, ns = name[at], part.warp[at], part.dur_ns[at]
        bins = self._axes.bins
        bin_ = np.clip(bins_of(ns) - self._axes.first, 0, bins - 1)
        counts = np.bincount(name * bins + bin_, minlength=self.histogram.size).reshape(self.histogram.shape)
        self.histogram += counts
        self.by_place[:, part.place] += np.bincount(name, weights=ns, minlength=self.names)
        for table, column in ((self.by_warp, self._axes.warp), (self.by_block, self._axes.column)):
            key = name * table.shape[1] + column[warp]
            table += np.bincount(key, weights=ns, minlength=table.size).reshape(table.shape)
        # Bins from the top until there are enough: only their spans can be among the longest.
        above = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
        lowest = np.maximum((above >= LONGEST).sum(axis=1) - 1, 0)
        few = np.flatnonzero(bin_ >= lowest[name])
        self._longest.append(_top(Longest(name[few], warp[few], part.begin_ns[at][few], ns[few])))

    def merge(self, other: Figures) -> None:
        """Add the counts of another place."""
        self.histogram += other.histogram
        self.by_place += other.by_place
        self.by_warp += other.by_warp
        self.by_block += other.by_block
        self._longest += other._longest

    def longest(self) -> Longest:
        """The longest spans of each name, by name, longest first."""
        none, nothing = np.zeros(0, np.int64), np.zeros(0)
        found = [Longest(none, none, nothing, nothing), *self._longest]
        columns = ([getattr(one, field.name) for one in found] for field in fields(Longest))
        return _top(Longest(*map(np.concatenate, columns)))


def _top(found: Longest) -> Longest:
    order = np.lexsort((found.begin_ns, -found.dur_ns, found.name))
    name = found.name[order]
    order = order[np.arange(len(order)) - np.searchsorted(name, name) < LONGEST]
    return Longest(*(getattr(found, field.name)[order] for field in fields(Longest)))


def bins_of(ns: Float) -> Int64:
    """The bin of each duration."""
    return np.asarray(ns.astype(np.float32).view(np.uint32) >> np.uint32(_SHIFT), np.int64)
