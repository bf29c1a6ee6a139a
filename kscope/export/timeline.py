"""The content of a timeline, the same for every format: records on tracks, in whole nanoseconds. Viewers cannot draw
spans that cross without nesting, so the later ones go to additional tracks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..analysis.pipelines.edges import with_phases
from ..analysis.roles import Roles, roles
from ..analysis.warp_stats import warp_ends
from ..capture.model import Problem
from ..tracedata.data import TraceData
from ..tracedata.nesting import layers
from ..util.arrays import Int64
from ..util.parallel import chunks, each
from .flows import Flows, flows
from .peer_flows import peer_flows
from .view_options import View

EMPTY = "no records"
"""The slice of a warp without records, from its start to its end."""
MOST_EMPTY = 100_000
"""Warps without records that are drawn, the first by time; further ones make files large and show nothing."""
_FAR = float(1 << 60)
"""Times are clipped to this many ns around the first warp: damaged clocks may exceed 64 bits."""


@dataclass(frozen=True)
class Track:
    """A row of events that is not a warp's own: a user track, or one for crossing spans.

    Attributes:
        row: row of trace.warps.
        number: 0, or more for spans that cross those of lower numbers.
        user: name of the user track; empty for one of crossing spans of the warp's own track.
    """

    row: int
    number: int = 0
    user: str = ""

    @property
    def suffix(self) -> str:
        """Suffix of its name: user track and number."""
        return (f" {self.user}" if self.user else "") + (f" ({self.number + 1})" if self.number else "")


@dataclass(frozen=True, eq=False)
class Timeline:
    """Items: the trace's n records in order of warps, then one slice for each of the w drawn warps without records.

    Attributes:
        trace: the trace, limited.
        begin, end: (n + w,) int64, ns after `origin`, 0 <= begin <= end; equal for points.
        track: (n + w,) int32: below len(trace.warps) the track of that warp, then those of `more`.
        span: (n,) bool, the record has a duration; others are instants, counters and spans of unknown duration.
        more: tracks besides those of the warps.
        drawn: rows of trace.warps, ascending.
        empty: (w,) int64, those of them without records.
        roles: the roles of the rows of trace.warps.
        origin: UNIX ns.
        exact: (n + w,) float64, begins in unrounded ns after trace.origin; None without view.args.
        flows: arrows between records.
        view: the view options.
        problems: those of the trace, and of the limit.
    """

    trace: TraceData
    begin: Int64
    end: Int64
    track: npt.NDArray[np.int32]
    span: npt.NDArray[np.bool_]
    more: tuple[Track, ...]
    drawn: Int64
    empty: Int64
    roles: Roles
    origin: int
    exact: npt.NDArray[np.float64] | None
    flows: Flows
    view: View
    problems: tuple[Problem, ...]

    @property
    def tracks(self) -> int:
        """Number of tracks."""
        return len(self.trace.warps) + len(self.more)

    @property
    def rows(self) -> Int64:
        """(tracks,) row of trace.warps of each track."""
        return np.concatenate([np.arange(len(self.trace.warps)), np.array([one.row for one in self.more], np.int64)])


def first(trace: TraceData, limit: int | None) -> tuple[TraceData, list[Problem]]:
    """The first `limit` records by time, and a problem if there are more."""
    total = len(trace)
    if limit is None or total <= limit:
        return trace, []
    ticks = trace.start_ns
    last = np.partition(ticks, limit - 1)[limit - 1]
    text = f"{total - limit:,} of {total:,} records left out, the latest ones: filter the trace, or raise limit="
    before, ties = np.flatnonzero(ticks < last), np.flatnonzero(ticks == last)
    kept = np.sort(np.concatenate([before, ties[: limit - len(before)]]))
    return trace.take(kept), [Problem("limited", text, total - limit)]


def timeline(trace: TraceData, limit: int | None = None, view: View | None = None) -> Timeline:
    """Build a timeline.

    Args:
        trace: the trace.
        limit: keep only this many records, the first by time; None for all.
        view: view options; None for the defaults.
    """
    view = view or View()
    trace, problems = first(trace, limit)
    trace, phases = with_phases(trace)
    drawn, empty, hidden = _drawn(trace)
    begin, end, exact, base = _whole_ns(trace, empty, view.args)
    span = trace.is_span
    if not span.all():  # damaged instants may have two times
        points = np.flatnonzero(~span)
        end[points] = begin[points]
    track, more = _tracks(trace, span, begin, end)
    track = np.concatenate([track, empty.astype(np.int32)])
    arrows, unlinked = flows(trace, begin, end, view.flows)
    between, unmatched = peer_flows(trace, begin, end, view.peers)
    waited = Flows(phases.source, phases.target, np.ones(len(phases.source), bool))
    arrows = arrows.with_more(between).with_more(waited)
    return Timeline(
        trace, begin, end, track, span, more, drawn, empty, roles(trace), trace.origin + base, exact, arrows, view,
        (*problems, *hidden, *unlinked, *unmatched, *trace.problems),
    )  # fmt: skip


def _drawn(trace: TraceData) -> tuple[Int64, Int64, list[Problem]]:
    """Drawn rows of trace.warps: those with records, and in an unfiltered trace MOST_EMPTY of the others; and the rows
    without records.
    """
    used = np.zeros(len(trace.warps), bool)
    used[trace.track] = True
    empty = np.flatnonzero(~used)
    if trace.filtered or not len(empty):
        return np.flatnonzero(used), empty[:0], []
    kept = np.sort(empty[np.argsort(trace.warps.start_ns[empty], kind="stable")[:MOST_EMPTY]])
    used[kept] = True
    more = len(empty) - len(kept)
    text = f"{more:,} of {len(empty):,} warps without records left out, the latest ones"
    return np.flatnonzero(used), kept, [Problem("limited", text, more)] if more else []


def _whole_ns(trace: TraceData, empty: Int64, keep: bool) -> tuple[Int64, Int64, npt.NDArray[np.float64] | None, int]:
    """Begins and ends rounded to ns, exact begins if `keep`, and the subtracted base. Rounding is monotonic, so nesting
    is preserved."""
    warps, count = trace.warps, len(trace)
    begin, end = np.empty((2, count + len(empty)), np.int64)
    base = int(np.rint(warps.start_ns.min(initial=np.inf))) if len(warps) else 0
    first = np.clip(warps.start_ns - base, -_FAR, _FAR)
    exact, even = np.empty(count + len(empty)) if keep else None, trace.even

    def work(part: slice) -> None:
        track = trace.track[part].astype(np.intp)
        pace, start = warps.tick_ns[track], first[track]
        ticks = (even.start_ticks[part] - warps.first_tick[track]).astype(np.float64)
        ns = np.clip(ticks * pace + start, -_FAR, _FAR)
        begin[part] = np.rint(ns)
        if exact is not None:
            exact[part] = ns + base
        ticks += np.maximum(even.dur_cycles[part], 0)
        end[part] = np.rint(np.clip(ticks * pace + start, -_FAR, _FAR))

    each(work, chunks(count))
    begin[count:] = np.rint(first[empty])
    if exact is not None:
        exact[count:] = warps.start_ns[empty]
    lived = np.rint(np.clip(np.nan_to_num(warp_ends(trace)[empty] - base, nan=-1.0), -_FAR, _FAR))
    end[count:] = np.maximum(lived.astype(np.int64), begin[count:])
    least = int(begin.min(initial=0))
    if least < 0:  # only damaged records begin before their warp
        begin -= least
        end -= least
    return begin, end, exact, base + min(least, 0)


def _tracks(
    trace: TraceData, span: npt.NDArray[np.bool_], begin: Int64, end: Int64
) -> tuple[npt.NDArray[np.int32], tuple[Track, ...]]:
    """The track of each record, its warp's, the user's, or an additional one for crossing spans; and those besides the
    warps'."""
    result, more = _users(trace)
    users, count = len(more), len(trace)
    where: slice | Int64 = slice(count) if span.all() else np.flatnonzero(span)
    if users:
        where = np.flatnonzero(span)
        where = where[np.argsort(result[where], kind="stable")]  # spans of a track stay sorted by end
    track = result[where]
    layer = layers(begin[where], end[where], track)
    if not layer.any():
        return result, tuple(more)
    result = result.copy()
    moved = np.flatnonzero(layer)
    pairs, index = np.unique(np.stack([track[moved], layer[moved]], axis=1), axis=0, return_inverse=True)
    at = np.arange(count)[where][moved]
    first = len(trace.warps)
    result[at] = (first + users + index.ravel()).astype(np.int32)
    for base, number in pairs.tolist():
        more.append(Track(base, number) if base < first else replace(more[base - first], number=number))
    return result, tuple(more)


def _users(trace: TraceData) -> tuple[npt.NDArray[np.int32], list[Track]]:
    """The track of each record, user tracks numbered after warps, and the user tracks."""
    if not trace.user_tracks:
        return trace.track, []
    user = trace.user_track
    moved = np.flatnonzero(user >= 0)
    result = trace.track.copy()
    pairs, index = np.unique(np.stack([trace.track[moved], user[moved]], axis=1), axis=0, return_inverse=True)
    result[moved] = (len(trace.warps) + index.ravel()).astype(np.int32)
    return result, [Track(row, user=trace.user_tracks[number]) for row, number in pairs.tolist()]
