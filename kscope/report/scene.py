"""The scene of a report: names in order, and the records of one SM at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..analysis.summary import Summary
from ..capture.layout import Kind
from ..tracedata.data import TraceData
from ..tracedata.nesting import MOST_LEVELS, layers, nest
from ..util.arrays import Float, Int64
from ..util.parallel import chunks, each
from .drawn_warps import DrawnWarps, arrange
from .pack import narrow

SPAN, INSTANT, COUNTER, UNKNOWN = range(4)
"""Ways to draw a record. UNKNOWN: a span longer than 32-bit clocks can measure."""
MOST_LINES = 128
_PART = 1 << 19  # records that are handled, and unpacked in the page, at a time


@dataclass(frozen=True, eq=False)
class Codes:
    """(c,) int64 by code: name (index into Scene.names), kind, line, region (index into trace.regions)."""

    name: Int64
    kind: Int64
    line: Int64
    region: Int64


@dataclass(frozen=True, eq=False)
class Scene:
    """code: (n,) the code of each record. names: longest total first."""

    trace: TraceData
    drawn: DrawnWarps
    names: tuple[str, ...]
    code: npt.NDArray[np.unsignedinteger]
    codes: Codes


@dataclass(frozen=True, eq=False)
class Part:
    """The records (m,) of rows [first, last) of the scene, all of one place.

    Attributes:
        at: index into the trace's columns.
        warp: index into scene.drawn.
        code: as in Scene.
        end: even ticks (TraceData.even) after the warp's first.
        dur: even ticks, 0 for points.
        begin_ns, dur_ns: after drawn.base; duration.
    """

    place: int
    first: int
    last: int
    at: Int64
    warp: Int64
    code: npt.NDArray[np.unsignedinteger]
    end: Int64
    dur: Int64
    begin_ns: Float
    dur_ns: Float


def scene(trace: TraceData, summary: Summary) -> Scene:
    """The scene of a trace; `summary` is the trace's own, and determines the order of names."""
    total = defaultdict[str, float](float)
    for row in summary.regions:
        total[row.region] += row.warp_time_ns
    used = np.zeros(len(trace.regions), bool)
    used[np.unique(trace.region)] = True
    shown = {region.name for region, seen in zip(trace.regions, used.tolist(), strict=True) if seen}
    names = tuple(sorted(shown, key=lambda name: (-total[name], name)))
    code, codes = _codes(trace, names)
    return Scene(trace, arrange(trace), names, code, codes)


def _codes(trace: TraceData, names: tuple[str, ...]) -> tuple[npt.NDArray[np.unsignedinteger], Codes]:
    number = {name: index for index, name in enumerate(names)}
    kinds = np.array([_KINDS.get(region.kind, INSTANT) for region in trace.regions], np.int64)
    line = _lines(trace, kinds)
    key = np.empty(len(trace), np.uint32)
    known = np.zeros(len(trace.regions) * MOST_LINES * 2, bool)

    def work(part: slice) -> None:
        region = trace.region[part].astype(np.uint32)
        unknown = (trace.dur_cycles[part] < 0).astype(np.uint32)
        found = key[part]
        found[:] = (region * np.uint32(MOST_LINES) + line[part]) * np.uint32(2) + unknown
        known[found] = True

    each(work, chunks(len(trace)))
    keys = np.flatnonzero(known)
    renumber = np.zeros(len(known), narrow(np.array([len(keys)])).dtype)
    renumber[keys] = np.arange(len(keys))
    code = np.empty(len(trace), renumber.dtype)
    each(lambda part: renumber.take(key[part], out=code[part], mode="clip"), chunks(len(trace)))
    region = keys // (2 * MOST_LINES)
    kind = kinds[region]
    kind[(kind == SPAN) & (keys % 2 == 1)] = UNKNOWN
    name = np.array([number.get(found.name, 0) for found in trace.regions], np.int64)[region]
    return code, Codes(name, kind, keys // 2 % MOST_LINES, region)


_KINDS: dict[int, int] = {Kind.SPAN: SPAN, Kind.SPAN_VALUE: SPAN, Kind.COUNTER: COUNTER}


def _lines(trace: TraceData, kinds: Int64) -> npt.NDArray[np.uint8]:
    """The line of each record: its depth; crossing spans and then counters are below."""
    end = trace.start_ticks + np.maximum(trace.dur_cycles, 0)
    if trace.user_tracks:
        return _below(trace, end, kinds)
    depth, crossing = nest(trace.start_ticks, end, trace.track)
    if trace.filtered:
        depth = trace.depth
    most = int(depth.max(initial=0))
    if crossing.any():
        depth, most = _apart(depth, trace, np.flatnonzero(trace.is_span), end)
    counters = np.flatnonzero(kinds == COUNTER)
    if np.isin(trace.region, counters).any():
        below = np.zeros(len(kinds), np.int64)
        below[counters] = most + 1 + np.arange(len(counters))
        counts = kinds[trace.region] == COUNTER
        depth = depth.copy()
        depth[counts] = np.minimum(below[trace.region[counts]], MOST_LINES - 1)
    return depth


def _below(trace: TraceData, end: Int64, kinds: Int64) -> npt.NDArray[np.uint8]:
    """Lines with user tracks: each track has its own lines below those of the warp and of earlier tracks."""
    line, most = np.zeros(len(trace), np.int64), -1
    counts = kinds[trace.region] == COUNTER
    own = trace.user_track
    for user in range(-1, len(trace.user_tracks)):
        at = np.flatnonzero((own == user) & ~counts)
        if len(at):
            depth, crossing = nest(trace.start_ticks[at], end[at], trace.track[at])
            if crossing.any():
                spans = np.flatnonzero(trace.is_span[at])
                part = trace.take(at)
                depth, _ = _apart(depth, part, spans, end[at])
            line[at] = depth.astype(np.int64) + most + 1
            most = int(line[at].max())
    for region in np.flatnonzero(kinds == COUNTER).tolist():
        at = np.flatnonzero(trace.region == region)
        if len(at):
            most += 1
            line[at] = most
    return np.minimum(line, MOST_LINES - 1).astype(np.uint8)


def _apart(
    depth: npt.NDArray[np.uint8], trace: TraceData, where: Int64, end: Int64
) -> tuple[npt.NDArray[np.uint8], int]:
    """Depths with the crossing spans `where` nested among themselves, below all others; and the largest depth."""
    layer = np.minimum(layers(trace.start_ticks[where], end[where], trace.track[where]), MOST_LINES - 1)
    depth, below = depth.copy(), 0
    for number in range(int(layer.max(initial=0)) + 1):
        at = where[layer == number]
        level = nest(trace.start_ticks[at], end[at], trace.track[at])[0]
        depth[at] = np.minimum(level.astype(np.int64) + below, MOST_LINES - 1)
        below = min(below + min(int(level.max(initial=0)), MOST_LEVELS) + 1, MOST_LINES - 1)
    return depth, int(depth.max(initial=0))


def parts(scene: Scene) -> list[list[tuple[int, int]]]:
    """For each place ranges of warps, with about half a million records each."""
    drawn = scene.drawn
    found: list[list[tuple[int, int]]] = [[] for _ in drawn.places]
    edges = np.searchsorted(drawn.place, np.arange(len(drawn.places) + 1)).tolist()
    sums = np.cumsum(drawn.count)
    for place, (first, last) in enumerate(pairwise(edges)):
        while first < last:
            before = int(sums[first] - drawn.count[first])
            following = max(first + 1, int(np.searchsorted(sums[:last], before + _PART, "right")))
            found[place].append((first, following))
            first = following
    return found


def gathered(scene: Scene, ranges: list[tuple[int, int]]) -> Iterator[Part]:
    """The records of one place, range after range."""
    trace, drawn = scene.trace.even, scene.drawn
    for first, last in ranges:
        count = drawn.count[first:last]
        offset = np.cumsum(count) - count
        warp = np.repeat(np.arange(first, last), count)
        at = np.arange(int(count.sum())) + np.repeat(drawn.first[first:last] - offset, count)
        rows = drawn.rows[first:last]
        dur = np.maximum(trace.dur_cycles[at], 0)
        begin = trace.start_ticks[at] - np.repeat(trace.warps.first_tick[rows], count)
        pace = np.repeat(trace.warps.tick_ns[rows], count)
        begin_ns = begin * pace + np.repeat(drawn.start[first:last], count)
        place = int(drawn.place[first])
        yield Part(place, first, last, at, warp, scene.code[at], begin + dur, dur, begin_ns, dur * pace)
