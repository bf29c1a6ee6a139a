"""One row per recording warp and region name, from which every table of durations is summed. Sums are exact (ticks are
integers), so a summary by SM, block or launch never reads the records again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import native
from ..capture.layout import Kind
from ..tracedata.data import TraceData
from ..tracedata.nesting import children_weight, track_aligned
from ..util.arrays import Float, Int64
from ..util.parallel import each
from ..util.runs import heads, order_by

Names = npt.NDArray[np.uint8 | np.uint16]
SPANS = (Kind.SPAN, Kind.SPAN_VALUE)
_COLUMNS = ("track", "name", "count", "unknown", "total", "own", "idle", "first", "last", "offset")
_FAR = np.iinfo(np.int64).max
_SLICE = 1 << 17
"""Records of a slice: fewer, and threads wait for one another; more, and columns leave the cache."""


@dataclass(frozen=True, eq=False)
class WarpRegions:
    """Rows (c,) of a warp and a region, each with its durations as a slice of `values`.

    Spans of unknown duration are in no sum.

    Attributes:
        names: sorted region names.
        track: row of Trace.warps.
        name: index into `names`.
        count, unknown: spans with a known and with an unknown duration.
        total, own: int64 ticks, sum of durations; the same without nested spans.
        idle: ticks directly before the spans in which the warp was in no region.
        first, last: ticks, the first and the last start.
        offset: index of the row's first duration in `values`.
        values: float64 ns, one per span of known duration.
        covered: (w,) ticks of each warp in regions.
        quiet: (w,) its longest time in no region, in ticks, without the time after its last region.
        last_end: (w,) tick of its last region's end.
    """

    names: tuple[str, ...]
    track: Int64
    name: Int64
    count: Int64
    unknown: Int64
    total: Int64
    own: Int64
    idle: Int64
    first: Int64
    last: Int64
    offset: Int64
    values: Float
    covered: Int64
    quiet: Int64
    last_end: Int64

    def __len__(self) -> int:
        return len(self.track)

    def by_region(self, trace: TraceData) -> Iterator[tuple[int, str, Int64]]:
        """(kernel, region name, rows with spans of known duration), in order of kernel and name."""
        used = np.flatnonzero(self.count > 0)
        kernel = trace.warps.kernel[self.track[used]]
        order = order_by(kernel, self.name[used])
        for part in np.split(order, heads(kernel[order], self.name[used][order])[1:]) if len(used) else []:
            yield int(kernel[part[0]]), self.names[int(self.name[used[part[0]]])], used[part]


def warp_regions(trace: TraceData, *, cycles: bool = False) -> WarpRegions:
    """The rows of a trace. 10 million records take about half a second on two cores.

    In a filtered trace, `own`, `idle`, `covered`, `quiet` and `last_end` are those of the unfiltered one: filtered
    records still enclose spans, are inside them, and fill time between them.

    Args:
        trace: the trace.
        cycles: ticks are those of the clock; else even ones (TraceData.even), which `tick_ns` turns into ns.
    """
    trace = trace if cycles else trace.even
    names = tuple(sorted({region.name for region in trace.regions if region.kind in SPANS}))
    pass_ = _Pass(trace, names)
    if trace.filtered and len(trace.whole.warps) == len(trace.warps):
        pass_.nest_whole()
    each(pass_.work, pass_.parts)
    return pass_.finish()


def under_tick(trace: TraceData, found: WarpRegions) -> Int64:
    """(c,) spans of each row shorter than their timer's tick."""
    if not trace.warps.timer.any():
        return np.zeros(len(found), np.int64)
    before = np.append(0, np.cumsum(found.values < trace.tick_ns))
    short = before[found.offset + found.count] - before[found.offset]
    return np.where(trace.warps.timer[found.track], short, 0)


class _Pass:
    """The columns of every part, and the warps that they fill."""

    def __init__(self, trace: TraceData, names: tuple[str, ...]) -> None:
        self.trace, self.names = trace, names
        index = {name: number for number, name in enumerate(names)}
        points = len(names)  # all other records sort after the spans
        codes = [index[region.name] if region.kind in SPANS else points for region in trace.regions]
        self.of_region = np.array(codes, np.uint8 if points < 1 << 8 else np.uint16)
        warps = len(trace.warps)
        self.covered, self.quiet = np.zeros(warps, np.int64), np.zeros(warps, np.int64)
        self.last_end = trace.warps.first_tick.copy()
        self.nested: tuple[Int64, Int64] | None = None  # own and idle ticks of each record, if known before
        self.values = np.empty(len(trace))
        self.parts = track_aligned(trace.track, _SLICE)
        # rows of a part go where no other part's do, and stay there if they are as many as they can be
        each = points * (1 + int(trace.dur_cycles.min(initial=0) < 0))  # rows of a warp
        most = [min(part.stop - part.start, self._warps(part) * each) for part in self.parts]
        self.place = dict(zip((part.start for part in self.parts), np.cumsum([0, *most]).tolist(), strict=False))
        self.rows = dict[int, int]()
        self.columns = [np.empty(sum(most), np.int64) for _ in _COLUMNS]

    def _warps(self, part: slice) -> int:
        track = self.trace.track
        return int(track[part.stop - 1]) - int(track[part.start]) + 1

    def nest_whole(self) -> None:
        """Set the columns that depend on records outside the trace's filter."""
        whole = self.trace.whole
        outer = _Pass(whole, tuple(sorted({region.name for region in whole.regions if region.kind in SPANS})))
        own, idle = np.zeros((2, len(whole)), np.int64)

        def work(part: slice) -> None:
            track, start, took = whole.track[part], whole.start_ticks[part], whole.dur_cycles[part]
            place = np.flatnonzero((took >= 0) & (outer.of_region.take(whole.region[part]) < len(outer.names)))
            own[part][place], idle[part][place] = outer._nested(track[place], start[place], took[place])

        each(work, track_aligned(whole.track, _SLICE))
        kept = self.trace.kept
        self.nested = own[kept], idle[kept]
        self.covered, self.quiet, self.last_end = outer.covered, outer.quiet, outer.last_end

    def _compiled(self, part: slice) -> bool:
        """Same as work(); False for spans that need numpy: unknown, empty and crossing ones, and other records."""
        trace, warps, place = self.trace, self.trace.warps, self.place[part.start]
        records = trace.track[part], trace.start_ticks[part], trace.dur_cycles[part], trace.region[part]
        of_warps = self.values[part], self.covered, self.quiet, self.last_end
        rows = native.call(
            "regions", part.stop - part.start, len(self.names), *map(np.ascontiguousarray, records),
            self.of_region.astype(np.uint16), warps.first_tick, warps.tick_ns, part.start, *of_warps,
            *(column[place:] for column in self.columns),
        )  # fmt: skip
        self.rows[part.start] = rows
        return rows > 0

    def work(self, part: slice) -> None:
        if self.nested is None and native.available() and self._compiled(part):
            return
        trace = self.trace
        track, start, took = trace.track[part], trace.start_ticks[part], trace.dur_cycles[part]
        name = self.of_region.take(trace.region[part])
        known = took >= 0
        if not (known.all() and int(name.max(initial=0)) < len(self.names)):
            known &= name < len(self.names)
            lost = ~known & (name < len(self.names))
            place = np.flatnonzero(known)
            extra = self._unknown(track[lost], name[lost])
            track, start, took, name = track[place], start[place], took[place], name[place]
        else:
            extra, place = None, np.arange(len(track))
        if self.nested is None:
            own, idle = self._nested(track, start, took)
        else:
            own, idle = (column[part][place] for column in self.nested)
        order = np.argsort(name, kind="stable")  # of 8 or 16 bits: a radix sort
        track, name, start, took = track.take(order), name.take(order), start.take(order), took.take(order)
        edges = heads(track, name)
        size, row, at = np.diff(edges, append=len(track)), track[edges].astype(np.int64), part.start
        np.multiply(took, np.repeat(trace.warps.tick_ns[row], size), out=self.values[at : at + len(took)])
        columns = [
            row, name[edges].astype(np.int64), size, np.zeros(len(edges), np.int64),
            *(np.add.reduceat(column, edges) for column in (took, own.take(order), idle.take(order))),
            np.minimum.reduceat(start, edges), np.maximum.reduceat(start, edges), edges + at,
        ]  # fmt: skip
        if extra is not None:
            columns = [np.concatenate(pair) for pair in zip(columns, extra, strict=True)]
        place, self.rows[at] = self.place[at], len(columns[0])
        for whole, column in zip(self.columns, columns, strict=True):
            whole[place : place + len(column)] = column

    def _unknown(self, track: npt.NDArray[np.int32], name: Names) -> list[Int64]:
        """Rows of the spans with an unknown duration."""
        pairs, count = np.unique(track.astype(np.int64) << 16 | name, return_counts=True)
        nothing = np.zeros(len(pairs), np.int64)
        first, last = np.full(len(pairs), _FAR), np.full(len(pairs), -_FAR)
        return [pairs >> 16, pairs & 0xFFFF, nothing, count, nothing, nothing, nothing, first, last, nothing]

    def _nested(self, track: npt.NDArray[np.int32], start: Int64, took: Int64) -> tuple[Int64, Int64]:
        """(own, idle) of spans: durations without nested spans; time in no region before them."""
        end = start + took
        held, root = children_weight(start, end, track, took)
        own, idle = took - held, np.zeros(len(took), np.int64)
        if not len(root):
            return own, idle
        of, begin, reach = track.take(root), start.take(root), end.take(root)
        before = np.empty_like(reach)
        before[1:] = reach[:-1]
        first = heads(of)
        rows = of[first]
        before[first] = self.trace.warps.first_tick[rows]
        gap = begin - before
        idle[root] = np.maximum(gap, 0)
        # spans that cross count once: the time shared with the previous one is the negative gap
        covered = reach - begin + np.minimum(gap, 0)
        covered[first] = (reach - begin)[first]
        self.covered[rows] = np.add.reduceat(covered, first)
        self.quiet[rows] = np.maximum.reduceat(idle[root], first)
        self.last_end[rows] = np.maximum.reduceat(reach, first)
        return own, idle

    def finish(self) -> WarpRegions:
        columns, count = self.columns, sum(self.rows.values())
        if count < len(columns[0]):
            parts = [slice(place, place + self.rows[at]) for at, place in self.place.items()]
            columns = [np.concatenate([column[part] for part in parts]) for column in columns]
        return WarpRegions(
            names=self.names, values=self.values, covered=self.covered, quiet=self.quiet, last_end=self.last_end,
            **dict(zip(_COLUMNS, columns, strict=True)),
        )  # fmt: skip
