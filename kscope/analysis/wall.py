"""Wall time of regions: how long at least one warp was in them. Time in which several warps overlap counts once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tracedata.data import TraceData
from ..util import parallel
from ..util.arrays import Bools, Float, Int64
from ..util.runs import added, numbered
from .warp_regions import SPANS, WarpRegions

_LONGEST = 1 << 61
"""Rows times time stays below, so that all spans fit one 64-bit axis."""
_FINEST = 1024
"""Steps of a ns."""
_LEAST_BINS, _MOST_BINS, _PER_BIN = 1 << 10, 1 << 20, 8


@dataclass(frozen=True)
class _Axis:
    """Integer steps for all rows, one row after another, so that spans of different rows do not meet."""

    trace: TraceData  # with even ticks
    row_of: Int64  # by group of a warp, and name: -1 for none
    name_of: Int64  # by Trace.regions
    group: Int64  # by Trace.warps
    origin: float
    steps: float  # of a ns
    zone: int  # steps of a row

    def row(self, at: slice | Int64) -> Int64:
        """Rows of records; -1 for none."""
        return np.asarray(self.row_of[self.group[self.trace.track[at]], self.name_of[self.trace.region[at]]])

    def steps_of(self, at: Int64, row: Int64) -> tuple[Int64, Int64]:
        """First and last steps of spans in rows."""
        trace, warps = self.trace, self.trace.warps
        track = trace.track[at]
        pace = warps.tick_ns[track]
        start = (trace.start_ticks[at] - warps.first_tick[track]) * pace + (warps.start_ns[track] - self.origin)
        begin, end = (row * self.zone + self._steps(ns) for ns in (start, start + trace.dur_cycles[at] * pace))
        return begin, end

    def _steps(self, ns: Float) -> Int64:
        return np.clip(ns * self.steps, 0, self.zone - 2).astype(np.int64)


def wall_ns(trace: TraceData, found: WarpRegions, group: Int64, codes: Int64) -> Float:
    """(rows,) ns: the length of the union of each row's spans. Spans of unknown duration do not count.

    The length of a union of spans needs their order, but sorting all spans is slow. So time is cut into bins. A bin
    that a span from an earlier bin covers to its end adds only the last end of the spans that begin in it; spans of the
    other bins are sorted.

    Args:
        trace: the trace.
        found: its warps and regions.
        group: (w,) the group of each warp.
        codes: (rows,) group * len(found.names) + name of each row, in ascending order.
    """
    trace = trace.even
    if not (used := found.count > 0).any():
        return np.zeros(len(codes))
    axis = _axis(trace, found, used, group, codes)
    shift = max(0, (axis.zone * len(codes)).bit_length() - _bits(len(trace)))
    bins = (axis.zone * len(codes) >> shift) + 1
    parts = parallel.chunks(len(trace))
    tops = np.full((parallel.workers(), bins), -1, np.int64)  # the last end of the spans that begin in each bin
    bin_of = np.full(len(trace), bins, np.uint32)

    def note(worker: int) -> None:
        for part in parts[worker :: len(tops)]:
            row = axis.row(part)
            there = np.flatnonzero((row >= 0) & (trace.dur_cycles[part] > 0))
            at = there + part.start
            begin, end = axis.steps_of(at, row[there])
            bin_of[at] = begin >> shift
            np.maximum.at(tops[worker], begin >> shift, end)

    parallel.each(note, range(len(tops)))
    top = tops.max(axis=0)
    reach = np.concatenate([[-1], np.maximum.accumulate(top)[:-1]])
    covered = reach >= (np.arange(bins) + 1) << shift
    whole = np.flatnonzero(covered & (top >= 0))
    skipped = np.append(covered, True)

    def outside(part: slice) -> tuple[Int64, Int64]:
        at = np.flatnonzero(~skipped[bin_of[part]]) + part.start
        return axis.steps_of(at, axis.row(at))

    rest = list(parallel.map_ahead(outside, parts))
    begin = np.concatenate([whole << shift, *(one for one, _ in rest)])
    end = np.concatenate([top[whole], *(other for _, other in rest)])
    if not len(begin):  # no span lasts a cycle
        return np.zeros(len(codes))
    order = np.argsort(begin)
    gain = added(begin[order], end[order])
    zone = begin[order] // axis.zone
    return np.asarray(np.bincount(zone, weights=gain, minlength=len(codes)) / axis.steps, np.float64)


def _axis(trace: TraceData, found: WarpRegions, used: Bools, group: Int64, codes: Int64) -> _Axis:
    warps, names = trace.warps, len(found.names)
    index = {name: number for number, name in enumerate(found.names)}
    row_of = numbered(codes // names * (names + 1) + codes % names, (int(group.max()) + 1) * (names + 1), -1)

    def extent(part: slice) -> tuple[float, float]:
        """The begin of the first span of a part, and a time after all of them."""
        which = used[part]
        track = found.track[part][which]
        pace, tick = warps.tick_ns[track], warps.first_tick[track]
        ticks = found.first[part][which], (found.last[part] + found.total[part])[which]
        first, last = (warps.start_ns[track] + (one - tick) * pace for one in ticks)
        return float(first.min(initial=np.inf)), float(last.max(initial=-np.inf))

    firsts, lasts = zip(*parallel.map_ahead(extent, parallel.chunks(len(found))), strict=True)
    origin = min(firsts)
    span = max(max(lasts) - origin, 1.0)
    steps = min(float(_FINEST), _LONGEST / (span * len(codes)))
    return _Axis(
        trace, row_of.reshape(-1, names + 1),
        np.array([index.get(one.name, names) if one.kind in SPANS else names for one in trace.regions], np.int64),
        group, origin, steps, int(span * steps) + 2,
    )  # fmt: skip


def _bits(records: int) -> int:
    """Bits of a bin's number."""
    return min(max(records // _PER_BIN, _LEAST_BINS), _MOST_BINS).bit_length()
