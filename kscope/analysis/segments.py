"""A warp's life in exclusive pieces: at each moment it is in one region, the innermost, or in none.

A span with children keeps the time before its first child, between children, and after the last. So

    n spans on a warp  ->  at most 2 n + 1 pieces, which add up to the warp's life
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..tracedata.data import TraceData
from ..tracedata.nesting import lane_aligned, parents, separated
from .cells import SPANS
from .warp_stats import warp_ends

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
NONE = -1
"""The name of time in no region."""
_COLUMNS = ("track", "name", "start", "end", "opens", "closes")


@dataclass(frozen=True, eq=False)
class Segments:
    """Pieces (p,) of positive length, in no order.

    Attributes:
        names: region names.
        track: row of Trace.warps.
        name: index into `names`, or NONE.
        start, end: float64 ns after the trace's origin.
        opens, closes: bool, the first and the last piece of its span; with NONE, of its warp.
    """

    names: tuple[str, ...]
    track: Int64
    name: Int64
    start: Float
    end: Float
    opens: Bools
    closes: Bools

    def __len__(self) -> int:
        return len(self.track)

    @property
    def ns(self) -> Float:
        """Lengths, ns."""
        return np.asarray(self.end - self.start)

    def take(self, index: Int64) -> Segments:
        """The pieces at these indices."""
        return Segments(self.names, *(getattr(self, column).take(index) for column in _COLUMNS))


def span_names(trace: TraceData) -> tuple[tuple[str, ...], Int64]:
    """(sorted names of spans, index of each of Trace.regions into them; -1 for points)."""
    names = tuple(sorted({region.name for region in trace.regions if region.kind in SPANS}))
    index = {name: number for number, name in enumerate(names)}
    codes = [index[region.name] if region.kind in SPANS else -1 for region in trace.regions]
    return names, np.array(codes, np.int64)


def flatten(trace: TraceData) -> Segments:
    """The pieces of every warp; in a filtered trace of those with records.

    Spans of unknown duration are left out. Where two spans cross without nesting, the shared time belongs to the
    earlier one.
    """
    names, code = span_names(trace)
    parts, last = list[Segments](), trace.warps.first_tick.copy()
    for track, region, start, end in _slices(trace, code):
        parts.append(_cut(trace, names, code[region], track, start, end))
        final = np.flatnonzero(np.append(track[1:] != track[:-1], True)) if len(track) else track
        last[track[final]] = end[final]
    parts.append(_tails(trace, names, last))
    columns = ([getattr(part, column) for part in parts] for column in _COLUMNS)
    return Segments(names, *map(np.concatenate, columns))


def recorded(trace: TraceData, pieces: Segments) -> Segments:
    """The pieces of warps with records."""
    has = np.bincount(trace.track, minlength=len(trace.warps)) > 0
    return pieces if has.all() else pieces.take(np.flatnonzero(has[pieces.track]))


def by_lane(pieces: Segments) -> Int64:
    """Indices of pieces by warp and time. One sort if warp and time fit 62 bits: no clock ticks every 16th of a ns."""
    if not len(pieces):
        return np.zeros(0, np.int64)
    time = (pieces.start - pieces.start.min()) * 16
    width = float(time.max()) + 1
    if width * (int(pieces.track.max()) + 1) >= 1 << 62:
        return np.lexsort((pieces.start, pieces.track))
    return np.argsort(pieces.track * int(width) + time.astype(np.int64))


def _slices(trace: TraceData, code: Int64) -> Iterator[tuple[Int64, Int64, Int64, Int64]]:
    """(track, region, start, end) of spans, a few hundred thousand at a time."""
    for part in lane_aligned(trace.track, 1 << 17):
        keep = (trace.dur_cycles[part] > 0) & (code >= 0)[trace.region[part]]  # without length, without a piece
        start = trace.start_ticks[part][keep]
        yield (
            trace.track[part][keep].astype(np.int64),
            trace.region[part][keep].astype(np.int64),
            start,
            start + trace.dur_cycles[part][keep],
        )


def _cut(trace: TraceData, names: tuple[str, ...], name: Int64, track: Int64, start: Int64, end: Int64) -> Segments:
    """Pieces of the spans of some warps: before each span the enclosing one's piece, and its own last piece."""
    lane = track.astype(np.int32)
    start = separated(start, end, lane)
    left = start < end
    if not left.all():  # the rest is of spans that end together with one that they cross
        name, track, lane, start, end = name[left], track[left], lane[left], start[left], end[left]
    parent = parents(start, end, lane)
    inner = np.flatnonzero(parent >= 0)
    outer = parent[inner]
    owner = np.full(len(track), NONE, np.int64)
    owner[inner] = name[outer]
    before = trace.warps.first_tick[track]
    before[inner] = start[outer]
    first = np.ones(len(track), bool)
    for level in _levels(parent):  # siblings stand one after another in their level
        same = np.flatnonzero((parent[level[1:]] == parent[level[:-1]]) & (track[level[1:]] == track[level[:-1]]))
        before[level[same + 1]] = end[level[same]]
        first[level[same + 1]] = False
    last, alone = start.copy(), np.ones(len(track), bool)
    last[outer], alone[outer] = end[inner], False  # the last child's, as spans stand in order of end
    begin, until = np.concatenate([before, last]), np.concatenate([start, end])
    there = np.flatnonzero(until > begin)
    rows, final = np.concatenate([track, track])[there], there >= len(track)
    warps = trace.warps
    pace, tick, origin = warps.tick_ns[rows], warps.first_tick[rows], warps.start_ns[rows]
    return Segments(
        names, rows, np.concatenate([owner, name])[there], origin + (begin[there] - tick) * pace,
        origin + (until[there] - tick) * pace, np.concatenate([first, alone])[there], final,
    )  # fmt: skip


def _levels(parent: Int64) -> Iterator[Int64]:
    """Indices of top-level spans, then of those nested in them, and so on."""
    depth, above, deeper = np.zeros(len(parent), np.uint8), parent.copy(), np.flatnonzero(parent >= 0)
    while len(deeper):
        depth[deeper] += 1
        next_above = parent[above[deeper]]
        above[deeper] = next_above
        deeper = deeper[next_above >= 0]
    for level in range(int(depth.max(initial=0)) + 1):
        yield np.flatnonzero(depth == level)


def _tails(trace: TraceData, names: tuple[str, ...], last: Int64) -> Segments:
    """The time of each warp after `last`, the end of its last region, or its start if it has none."""
    warps = trace.warps
    rows = trace.shown_warps
    seen, ends = warps.start_ns + (last - warps.first_tick) * warps.tick_ns, warp_ends(trace)
    rows = rows[ends[rows] > seen[rows]]
    return Segments(
        names, rows, np.full(len(rows), NONE, np.int64), seen[rows], ends[rows],
        last[rows] == warps.first_tick[rows], np.ones(len(rows), bool),
    )  # fmt: skip
