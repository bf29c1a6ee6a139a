"""A warp's life in exclusive pieces: at each moment it is in one region, the innermost, or in none.

    n spans on a warp  ->  at most 2 n + 1 pieces, which add up to the warp's life

Pieces take many more bytes than records, so they are made for some warps at a time, used, and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .. import native
from ..tracedata.data import TraceData
from ..tracedata.nesting import parents, separated
from ..util.arrays import Bools, Float, Int64
from ..util.parallel import map_ahead
from ..util.runs import ranges
from .warp_regions import SPANS
from .warp_stats import warp_ends

Result = TypeVar("Result")
NONE = -1
"""The name of time in no region."""
PART = 1 << 17
"""Records of a part: fewer, and threads wait for one another; more, and pieces leave the cache."""
_COLUMNS = ("track", "name", "start", "end", "opens", "closes")
_KINDS = (np.int64, np.int64, np.float64, np.float64, np.bool_, np.bool_)


@dataclass(frozen=True, eq=False)
class Segments:
    """Pieces (p,) of positive length, warp after warp, within a warp in order of time.

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
    """(sorted names of spans, index of each of Trace.regions into them; -1 for points and for work in flight)."""
    own = [region.kind in SPANS and not region.flight for region in trace.regions]
    names = tuple(sorted({region.name for region, is_own in zip(trace.regions, own, strict=True) if is_own}))
    index = {name: number for number, name in enumerate(names)}
    codes = [index[region.name] if is_own else -1 for region, is_own in zip(trace.regions, own, strict=True)]
    return names, np.array(codes, np.int64)


def flatten(trace: TraceData) -> Segments:
    """The pieces of every warp; in a filtered trace of those with records. See Cutter.cut()."""
    return Cutter(trace).cut(trace.shown_warps)


class Cutter:
    """Cuts the lives of a trace's warps into pieces.

    Attributes:
        names: region names.
        recorded: rows of Trace.warps with records.
    """

    def __init__(self, trace: TraceData) -> None:
        self.names, self._code = span_names(trace)
        self._trace, self._ends = trace.even, warp_ends(trace)
        self._count = np.bincount(trace.track, minlength=len(trace.warps)).astype(np.int64)
        self._begin = np.cumsum(self._count) - self._count
        self.recorded = np.flatnonzero(self._count)

    def each(self, work: Callable[[Int64, Segments], Result], parts: list[Int64]) -> Iterator[tuple[Result, int]]:
        """(work(rows, their pieces), number of their records) for each part, in order; parallel."""
        return map_ahead(lambda rows: (work(rows, self.cut(rows)), int(self._count[rows].sum())), parts)

    def parts(self, rows: Int64, group: Int64 | None = None, size: int = PART) -> list[Int64]:
        """Rows of Trace.warps (r,), in parts.

        Args:
            rows: the rows.
            group: (r,) numbers; neighbors with the same one stay in one part.
            size: records of a part; with groups it may be more.
        """
        full = np.cumsum(self._count[rows] + 1) // size
        edges = np.flatnonzero(np.diff(np.arange(len(rows)) if group is None else group))  # the last row before each
        cuts = edges[np.flatnonzero(np.diff(full[edges], prepend=0))] + 1
        return [part for part in np.split(rows, cuts) if len(part)]

    def cut(self, rows: Int64) -> Segments:
        """The pieces of these rows of Trace.warps, in their order.

        A span with children keeps the time before its first child, between children, and after the last. Spans of
        unknown duration are left out. Where two spans cross without nesting, the shared time belongs to the earlier
        one.
        """
        pieces = self._compiled(rows) if native.available() else None
        return self._plain(rows) if pieces is None else pieces

    def _compiled(self, rows: Int64) -> Segments | None:
        """None if spans cross."""
        trace, warps, crossing = self._trace, self._trace.warps, np.zeros(1, np.int64)
        count = self._count[rows]
        room = int(2 * count.sum()) + len(rows)
        columns: list[Any] = [np.empty(room, kind) for kind in _KINDS]
        records = (self._code, trace.region, trace.start_ticks, trace.dur_cycles)
        clocks = (warps.first_tick, warps.start_ns, warps.tick_ns, self._ends)
        inputs = map(np.ascontiguousarray, (rows, self._begin[rows], count, *records, *clocks))
        made = native.call("pieces", len(rows), *inputs, room, *columns, crossing)
        return None if crossing[0] else Segments(self.names, *(column[room - made :] for column in columns))

    def _plain(self, rows: Int64) -> Segments:
        trace, warps = self._trace, self._trace.warps
        at = ranges(self._begin[rows], self._count[rows])
        place = np.repeat(np.arange(len(rows), dtype=np.int32), self._count[rows])
        keep = (trace.dur_cycles[at] > 0) & (self._code[trace.region[at]] >= 0)  # without length, without a piece
        at, place = at[keep], place[keep]
        start = trace.start_ticks[at]
        end = start + trace.dur_cycles[at]
        tick, origin, pace = warps.first_tick[rows], warps.start_ns[rows], warps.tick_ns[rows]
        last, ends = tick.copy(), self._ends[rows]
        last[place] = end  # the last assignment wins
        seen = origin + (last - tick) * pace
        tail = np.flatnonzero(ends > seen)  # the time of a warp after its last region
        of, name, begin, until, opens, closes = _cut(self._code[trace.region[at]], place, start, end, tick)
        columns: list[Any] = [
            (of, tail),
            (name, np.full(len(tail), NONE)),
            (origin[of] + (begin - tick[of]) * pace[of], seen[tail]),
            (origin[of] + (until - tick[of]) * pace[of], ends[tail]),
            (opens, last[tail] == tick[tail]),
            (closes, np.ones(len(tail), bool)),
        ]
        order = np.lexsort((np.append(begin, last[tail]), np.append(of, tail)))
        columns = [np.concatenate(pair)[order] for pair in columns]
        return Segments(self.names, rows[columns[0]], *columns[1:])


def _cut(
    name: Int64, track: npt.NDArray[np.int32], start: Int64, end: Int64, first_tick: Int64
) -> tuple[Int64, Int64, Int64, Int64, Bools, Bools]:
    """(track, name, begin, end, opens, closes) of the pieces of spans, in ticks: before each span the enclosing one's
    piece, and its own last piece. first_tick: of each track.
    """
    start = separated(start, end, track)
    left = start < end
    if not left.all():  # the rest belongs to spans that end together with one that they cross
        name, track, start, end = name[left], track[left], start[left], end[left]
    parent = parents(start, end, track)
    inner = np.flatnonzero(parent >= 0)
    outer = parent[inner]
    owner = np.full(len(track), NONE, np.int64)
    owner[inner] = name[outer]
    before = first_tick[track]
    before[inner] = start[outer]
    first = np.ones(len(track), bool)
    for level in _levels(parent):  # siblings are adjacent in their level
        same = np.flatnonzero((parent[level[1:]] == parent[level[:-1]]) & (track[level[1:]] == track[level[:-1]]))
        before[level[same + 1]] = end[level[same]]
        first[level[same + 1]] = False
    last, alone = start.copy(), np.ones(len(track), bool)
    last[outer], alone[outer] = end[inner], False  # the last child's: spans are in order of end
    begin, until = np.concatenate([before, last]), np.concatenate([start, end])
    there = np.flatnonzero(until > begin)
    rows, names = np.concatenate([track, track]).astype(np.int64), np.concatenate([owner, name])
    opens = np.concatenate([first, alone])
    return rows[there], names[there], begin[there], until[there], opens[there], there >= len(track)


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
