"""What a timeline shows of a trace: which records, on which tracks, in whole nanoseconds.

Tracks are rows of trace.warps; where spans of one lane cross without nesting, which viewers cannot
draw, the later ones go to further tracks of that lane. What lives here: this choice, the same for
every format. What does not: any format.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..capture import Problem
from ..layout import Kind
from ..nesting import lanes
from ..trace import Trace

Int64 = npt.NDArray[np.int64]
UNFINISHED = "warp (unfinished)"
LIFETIME = "warp"
POINTS = (Kind.INSTANT, Kind.INSTANT_VALUE)


@dataclass(frozen=True, eq=False)
class Track:
    """A row of events: `row` of trace.warps; number 0, or more for spans that cross those before."""

    row: int
    number: int = 0


@dataclass(frozen=True, eq=False)
class Timeline:
    """Records (n,) in lane order and lifetimes (w,) of the warps that have records or none at all.

    begin, end: int64 ns after `origin` (UNIX ns), never negative, end >= begin; a point has end ==
    begin. track: int32 index into `tracks`. span: the record has a duration; the others are instants,
    counters, and spans of unknown duration. alive: rows of trace.warps whose lifetimes are drawn, with
    alive_begin and alive_end. problems: those of the trace, and what was left out.
    """

    trace: Trace
    begin: Int64
    end: Int64
    track: npt.NDArray[np.int32]
    span: npt.NDArray[np.bool_]
    tracks: tuple[Track, ...]
    alive: Int64
    alive_begin: Int64
    alive_end: Int64
    origin: int
    problems: tuple[Problem, ...]


def timeline(trace: Trace, limit: int | None = None) -> Timeline:
    """The timeline of a trace, or of its first `limit` records by time."""
    problems = list(trace.problems)
    total = len(trace)
    if limit is not None and total > limit:
        ticks = trace.start_ns
        last = np.partition(ticks, limit - 1)[limit - 1]
        trace = trace.take(np.flatnonzero(ticks <= last)[:limit])
        text = f"{total - limit:,} of {total:,} records were left out (the later ones): filter the trace, or raise limit="
        problems.insert(0, Problem("limited", text, total - limit))
    span = trace.is_span
    begin, end = _whole_ns(trace)
    used = np.zeros(len(trace.warps), bool)
    used[trace.track] = True
    alive = np.flatnonzero(used) if len(trace) < total or trace._whole is not None else np.arange(len(trace.warps))
    alive_begin = np.rint(trace.warps.start_ns[alive]).astype(np.int64)
    alive_end = np.rint(np.nan_to_num(trace.warps.end_ns[alive], nan=-(2.0**62))).astype(np.int64)
    last_seen = np.full(len(trace.warps), np.iinfo(np.int64).min)
    np.maximum.at(last_seen, trace.track, end)
    alive_end = np.maximum(np.maximum(alive_end, last_seen[alive]), alive_begin)
    base = min(int(begin.min(initial=0)), int(alive_begin.min(initial=0)))
    for column in (begin, end, alive_begin, alive_end):
        column -= base
    track, tracks = _tracks(trace, span)
    return Timeline(
        trace, begin, end, track, span, tracks, alive, alive_begin, alive_end, trace.origin + base, tuple(problems)
    )


def _whole_ns(trace: Trace) -> tuple[Int64, Int64]:
    """Starts and ends rounded to ns; rounding keeps order, so what nests still nests."""
    warps = trace.warps
    begin, end = np.empty(len(trace), np.int64), np.empty(len(trace), np.int64)
    for a in range(0, len(trace), 1 << 15):
        part = slice(a, a + (1 << 15))
        track = trace.track[part]
        pace, first = warps.tick_ns[track], warps.start_ns[track]
        ticks = (trace.start_ticks[part] - warps.first_tick[track]).astype(np.float64)
        begin[part] = np.rint(ticks * pace + first)
        ticks += np.maximum(trace.dur_cycles[part], 0)
        end[part] = np.rint(ticks * pace + first)
    return begin, end


def _tracks(trace: Trace, span: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int32], tuple[Track, ...]]:
    """The track of each record: its lane's, or a further one where spans cross."""
    tracks = [Track(row) for row in range(len(trace.warps))]
    where = slice(None) if span.all() else np.flatnonzero(span)
    start, track = trace.start_ticks[where], trace.track[where]
    lane = lanes(start, start + trace.dur_cycles[where], track)
    if not lane.any():
        return trace.track, tuple(tracks)
    result = trace.track.copy()
    moved = np.flatnonzero(lane)
    pairs, index = np.unique(np.stack([track[moved], lane[moved]], axis=1), axis=0, return_inverse=True)
    at = np.arange(len(trace))[where][moved]
    result[at] = (len(tracks) + index).astype(np.int32)
    tracks += [Track(row, number) for row, number in pairs.tolist()]
    return result, tuple(tracks)
