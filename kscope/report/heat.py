"""The overview: the main region of the warps per SM and time, and how busy they were, at several levels.

A span adds its time to the bins that it covers, exactly, and subtracts it from its parent, so a bin holds self times:

    edge at x, bin i = floor(x):  bin i gets 1 - frac(x), every later bin gets 1
    span:                         its first edge minus its last
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from ..tracedata.nesting import parents
from ..util.arrays import Bytes, Float, Int64
from .scene import SPAN, Part, Scene

MOST_NAMES = 63
"""Number of distinct names in the overview; the others share one code."""
NOTHING = 255
MOST_SHARES = 24
"""Number of names with self time at the coarsest level, for searching."""
_STEP = 4  # bins of a level that make one of the next
_COARSEST, _FINEST = 1 << 10, 1 << 14
_NOISE = 1e-7  # rounding error of the sum of many edges
_CELLS = 1 << 17  # name x bin of one place that are worth having at once


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of one place and level.

    Attributes:
        name: (bins,) uint8, the name with the most self time, or NOTHING.
        busy, alive: (bins,) uint8, warps in a region and warps running; 255 is the number of rows of the fullest SM.
        shares: (names, bins) warps in each of the first MOST_SHARES names, of the coarsest level.
    """

    name: Bytes
    busy: Bytes
    alive: Bytes
    shares: Bytes


PLANES = tuple(field.name for field in fields(Bins))


def levels(scene: Scene) -> list[int]:
    """Bins of each level, coarsest first, at most a place's number of records: closer, the page draws the records."""
    names = min(len(scene.names), MOST_NAMES + 1)
    per_place = max(len(scene.trace) // max(1, len(scene.drawn.places)), 1)
    bins = [_COARSEST]
    while bins[-1] < _FINEST and bins[-1] * _STEP <= per_place and bins[-1] * _STEP * max(names, 1) <= _CELLS:
        bins.append(bins[-1] * _STEP)
    return bins


class Heat:
    """The bins of one place, filled part by part."""

    def __init__(self, scene: Scene, bins: list[int]) -> None:
        self._scene, self._bins = scene, bins
        self._names = min(len(scene.names), MOST_NAMES + 1)
        self._width = bins[-1] + 2
        self._per_ns = bins[-1] / scene.drawn.span
        self._edges = np.zeros(max(self._names, 1) * self._width)
        self._alive = np.zeros(self._width)

    def add(self, part: Part) -> None:
        """Count the spans and warps of a part."""
        codes, drawn = self._scene.codes, self._scene.drawn
        span = np.flatnonzero(codes.kind[part.code] == SPAN)
        code, end = part.code[span], part.end[span]
        parent = parents(end - part.dur[span], end, part.warp[span].astype(np.int32))
        child = np.flatnonzero(parent >= 0)
        name = np.minimum(codes.name[code], self._names - 1)
        from_ = part.begin_ns[span] * self._per_ns
        to = from_ + part.dur_ns[span] * self._per_ns
        self._count(name, from_, to, 1.0)
        self._count(name[parent[child]], from_[child], to[child], -1.0)
        some = slice(part.first, part.last)
        for at, sign in ((drawn.start[some], 1.0), (drawn.end[some], -1.0)):
            self._alive += self._edge(np.zeros(len(at), np.int64), at * self._per_ns, self._width) * sign

    def _count(self, name: Int64, begin: Float, end: Float, sign: float) -> None:
        if len(name):
            self._edges += (self._edge(name, begin, self._edges.size) - self._edge(name, end, self._edges.size)) * sign

    def _edge(self, name: Int64, at: Float, size: int) -> Float:
        at = np.clip(at, 0.0, self._bins[-1])
        whole = at.astype(np.int64)
        key = name * self._width + whole
        rest = np.bincount(key, weights=at - whole, minlength=size)
        found: Float = np.bincount(key, minlength=size).astype(np.float64) - rest
        found[1:] += rest[:-1]
        return found

    def bins_of_levels(self, most: int) -> list[Bins]:
        """The place at each level; `most`: rows of the fullest place."""
        bins = self._bins[-1]
        time = np.cumsum(self._edges.reshape(-1, self._width)[:, :bins], axis=1)
        np.maximum(time, 0.0, out=time)
        alive = np.cumsum(self._alive)[:bins]
        found = []
        for bins in reversed(self._bins):
            busy = time.sum(axis=0)
            name = time.argmax(axis=0).astype(np.uint8)
            name[busy <= _NOISE] = NOTHING
            shares = time[:MOST_SHARES] if bins == self._bins[0] else time[:0]
            found.append(Bins(name, _share(busy / most), _share(alive / most), _share(shares / most)))
            time = time.reshape(len(time), -1, _STEP).mean(axis=2)
            alive = alive.reshape(-1, _STEP).mean(axis=1)
        return found[::-1]


def _share(part: Float) -> Bytes:
    """0 to 1 as 0 to 255; nonzero stays nonzero."""
    return np.asarray(np.ceil(np.clip(part - _NOISE, 0.0, 1.0) * 255), np.uint8)
