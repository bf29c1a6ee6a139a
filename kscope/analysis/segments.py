"""A lane's life in exclusive pieces: at each instant it is in one region, the innermost, or in none.

For a span with children: the time before its first child, between two, and after the last is its own. So

    n spans on a lane  ->  at most 2 n + 1 pieces, which add up to the lane's life

What lives here: this cut, of whole columns or slice by slice. What does not: what overlaps what (overlap.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..decoding.nesting import lane_aligned, parents
from ..trace import Trace
from .cells import SPANS
from .lanes import lane_ends

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
NONE = -1
"""The name of the time in no region."""


@dataclass(frozen=True, eq=False)
class Segments:
    """Pieces (p,) of positive length, in no order. track: row of Trace.warps. name: index into `names`, or NONE.
    start, end: float64 ns on the trace's axis."""

    names: tuple[str, ...]
    track: Int64
    name: Int64
    start: Float
    end: Float

    def __len__(self) -> int:
        return len(self.track)

    @property
    def ns(self) -> Float:
        """Lengths."""
        return np.asarray(self.end - self.start)


def span_names(trace: Trace) -> tuple[tuple[str, ...], Int64]:
    """(sorted names of spans, index of each of Trace.regions into them; -1 for points)."""
    names = tuple(sorted({region.name for region in trace.regions if region.kind in SPANS}))
    index = {name: number for number, name in enumerate(names)}
    codes = [index[region.name] if region.kind in SPANS else -1 for region in trace.regions]
    return names, np.array(codes, np.int64)


def flatten(trace: Trace) -> Segments:
    """The pieces of every lane of a trace (of a filtered one: of the lanes that it still has records of). Spans of
    unknown duration are left out; what two spans hold that cross without nesting belongs to the earlier."""
    names, code = span_names(trace)
    parts, last = list[Piece](), trace.warps.first_tick.copy()
    for track, region, start, end in _slices(trace, code):
        parts.append(_cut(trace, code, track, region, start, end))
        final = np.flatnonzero(np.append(track[1:] != track[:-1], True)) if len(track) else track
        last[track[final]] = end[final]
    parts.append(_tails(trace, last))
    rows, name = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    first, until = np.concatenate([part[2] for part in parts]), np.concatenate([part[3] for part in parts])
    there = np.flatnonzero(until > first)
    return Segments(names, rows[there], name[there], first[there], until[there])


def recorded(trace: Trace, pieces: Segments) -> Segments:
    """The pieces of lanes that have records: the others were in no region all their life."""
    has = np.bincount(trace.track, minlength=len(trace.warps)) > 0
    at = np.flatnonzero(has[pieces.track])
    return Segments(pieces.names, pieces.track[at], pieces.name[at], pieces.start[at], pieces.end[at])


Piece = tuple[Int64, Int64, Float, Float]


def _slices(trace: Trace, code: Int64) -> Iterator[tuple[Int64, Int64, Int64, Int64]]:
    """(track, region, start, end) of the spans of lanes, some hundred thousand at a time."""
    for part in lane_aligned(trace.track, 1 << 17):
        keep = (trace.dur_cycles[part] > 0) & (code >= 0)[trace.region[part]]  # without length, without a piece
        start = trace.start_ticks[part][keep]
        yield (
            trace.track[part][keep].astype(np.int64),
            trace.region[part][keep].astype(np.int64),
            start,
            start + trace.dur_cycles[part][keep],
        )


def _cut(trace: Trace, code: Int64, track: Int64, region: Int64, start: Int64, end: Int64) -> Piece:
    """Pieces of the spans of some lanes: before each one, and its own last piece."""
    name, parent = code[region], parents(start, end, track.astype(np.int32))
    inner = np.flatnonzero(parent >= 0)
    before, last_child = _edges(trace, track, start, end, parent)
    owner = np.full(len(track), NONE, np.int64)
    owner[inner] = name[parent[inner]]
    warps = trace.warps
    pace, tick, begin = warps.tick_ns[track], warps.first_tick[track], warps.start_ns[track]

    def ns(ticks: Int64) -> Float:
        return np.asarray(begin + (ticks - tick) * pace)

    starts, ends = ns(start), ns(end)
    return (
        np.concatenate([track, track]),
        np.concatenate([owner, name]),
        np.concatenate([ns(before), ns(last_child)]),
        np.concatenate([starts, ends]),
    )


def _edges(trace: Trace, track: Int64, start: Int64, end: Int64, parent: Int64) -> tuple[Int64, Int64]:
    """(where the piece before each span begins, where each span's own last piece begins)."""
    inner = np.flatnonzero(parent >= 0)
    before = trace.warps.first_tick[track]
    before[inner] = start[parent[inner]]
    for level in _levels(parent):  # siblings stand one after another in their level
        same = np.flatnonzero((parent[level[1:]] == parent[level[:-1]]) & (track[level[1:]] == track[level[:-1]]))
        before[level[same + 1]] = end[level[same]]
    last = start.copy()
    last[parent[inner]] = end[inner]  # the last child's, as spans stand in order of end
    # of two siblings that cross, the earlier keeps what both hold
    return before, np.where(before > start, np.minimum(np.maximum(last, before), end), last)


def _levels(parent: Int64) -> Iterator[Int64]:
    """Indices of the spans that no other holds, of those in these, and so on."""
    depth, above, deeper = np.zeros(len(parent), np.uint8), parent.copy(), np.flatnonzero(parent >= 0)
    while len(deeper):
        depth[deeper] += 1
        next_above = parent[above[deeper]]
        above[deeper] = next_above
        deeper = deeper[next_above >= 0]
    for level in range(int(depth.max(initial=0)) + 1):
        yield np.flatnonzero(depth == level)


def _tails(trace: Trace, last: Int64) -> Piece:
    """The time of each lane after `last`, the end of its last region, or its start where it has none."""
    warps = trace.warps
    rows = np.arange(len(warps))
    if trace.filtered:
        rows = np.flatnonzero(np.bincount(trace.track, minlength=len(warps)))
    ends = lane_ends(trace)
    seen = warps.start_ns + (last - warps.first_tick) * warps.tick_ns
    return rows, np.full(len(rows), NONE, np.int64), seen[rows], ends[rows]
