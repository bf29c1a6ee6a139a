"""The critical path through a block: from the end of its last region back to a start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..capture.blocks import BlockSelection
from ..capture.layout import Kind
from ..errors import UsageError
from ..tracedata import filters
from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..tracedata.kernel_names import kernel_names
from ..util.arrays import Float, Int64
from ..util.runs import ordinals, ranges
from ..util.text import counted, nearest, some
from .display import Shown
from .overlap import NO_REGION, WAIT_WORDS
from .pipelines.edges import barrier_edges
from .pipelines.events import has_records
from .segments import NONE, flatten, span_names
from .warp_stats import warp_ends

_LONG = 2.0
"""A wait longer than this multiple of the shortest one of its name was blocked."""


@dataclass(frozen=True)
class Edge:
    """The end of region `signal` satisfies region `wait`, `lag` rounds later.

    Edge("ask", "wait_ready")             the k-th wait_ready of a warp waits for the k-th ask of the block's warps
    Edge("multiply", "wait_empty", 4)     ... for the (k - 4)-th multiply: four buffers; the first four wait for
    none
    """

    signal: str
    wait: str
    lag: int = 0


GivenEdge = Edge | tuple[str, str] | tuple[str, str, int]


def as_edges(given: Iterable[GivenEdge]) -> tuple[Edge, ...]:
    """Pairs (signal, wait) and triples (signal, wait, lag) as edges. Raises UsageError for anything else."""
    found = []
    for one in given:
        parts: object = (one.signal, one.wait, one.lag) if isinstance(one, Edge) else one
        match parts:
            case (str(signal), str(wait)):
                edge = Edge(signal, wait)
            case (str(signal), str(wait), int(lag)):
                edge = Edge(signal, wait, lag)
            case _:
                raise UsageError(
                    f'edge {one!r}: expected (signal, wait) or (signal, wait, lag), such as ("load", "wait_full")'
                )
        found.append(edge)
    return tuple(found)


@dataclass(frozen=True)
class Step:
    """A part of the path.

    Attributes:
        kind: "run" on a warp, or "flight" from a signal's end to the end of the wait for it.
        lane: the warp's label; for a flight, the waiting warp's.
        start_ns, end_ns: ns after the trace's origin.
        via: "signal -> wait" for a flight.
    """

    kind: Literal["run", "flight"]
    warp: str
    start_ns: float
    end_ns: float
    via: str = ""


@dataclass(frozen=True, repr=False)
class Path(Shown):
    """The critical path of a block.

    Attributes:
        kernel, launch: the block's kernel and launch.
        block: coordinates, as "0,8".
        total_ns: its length.
        steps: in order of time, without gaps.
        parts: (region, ns, share of the path), longest first.
        unmatched: waits whose signal was not recorded or came after they ended.
        caveat: as in Info.
    """

    kernel: str
    launch: int
    block: str
    total_ns: float
    steps: tuple[Step, ...]
    parts: tuple[tuple[str, float, float], ...]
    unmatched: int
    caveat: str


def critical_path(trace: TraceData, edges: Iterable[Edge], launch: int = 0, block: BlockSelection = 0) -> Path:
    """The critical path of one block.

    The edges name which region's end satisfies which region's wait. If several warps signal, the latest counts. If both
    regions carry a value, values are matched instead of ordinals. A wait is *blocked* if its signal came after it
    began, or if it took more than twice the shortest wait of its name (the signaled work, such as a copy, was still in
    flight). From a blocked wait the path goes to the signal; otherwise it stays on its warp.

    Args:
        trace: the trace.
        edges: signals and the waits that they satisfy; empty for those of barriers, recorded with auto="pipeline".
        launch: index into Trace.launches.
        block: one block, as for Trace.filter().

    Raises:
        UsageError: no block or several, no records, an edge with a region that is not in the block, or a negative
            lag.
    """
    edges = tuple(edges)
    if not edges and not has_records(trace):
        raise UsageError(f"no edge: name a region that signals and one that waits for it; {candidates(trace)}")
    mine = filters.select(trace, {"launch": launch, "block": block})
    if not len(mine) or not mine.is_span.any():
        raise UsageError(f"launch {launch}, block {block}: no records; see kscope summary --by launch,block")
    if (mine.block != mine.block[0]).any():
        raise UsageError(f"block {block}: several blocks; a path goes through one block")
    known = {mine.regions[number].name for number in np.unique(mine.region[mine.is_span]).tolist()}
    for edge in edges:
        for name in (edge.signal, edge.wait):
            if name not in known:
                raise UsageError(f"{edge.signal}:{edge.wait}: no region {name!r} in this block, which has "
                                 f"{some(sorted(known))}{nearest(name, known)}")  # fmt: skip
        if edge.lag < 0:
            raise UsageError(f"{edge.signal}:{edge.wait}:{edge.lag}: expected a lag of 0 or more")
    return _path(trace, mine, edges, launch)


def path_of_last_block(trace: TraceData, edges: Iterable[Edge], launch: int) -> Path | None:
    """The critical path of the block of a launch that ends last.

    Args:
        trace: the trace.
        edges: as for critical_path(); those with a region that the block does not have are left out. Without edges the
            path stays on one warp.
        launch: index into Trace.launches.

    Returns:
        The path; None if no span of the launch was recorded.

    Raises:
        UsageError: as critical_path().
    """
    rows = np.flatnonzero(trace.warps.launch == launch)
    first, last = (np.searchsorted(trace.track, rows, side) for side in ("left", "right"))
    ends = np.where(last > first, np.nan_to_num(warp_ends(trace)[rows]), -np.inf)
    block = trace.warps.block[rows]
    of_last = np.flatnonzero(block == block[ends.argmax()]) if len(rows) else rows
    mine = trace.take(ranges(first[of_last], (last - first)[of_last]))
    if not mine.is_span.any():
        return None
    known = {mine.regions[number].name for number in np.unique(mine.region[mine.is_span]).tolist()}
    return _path(trace, mine, tuple(edge for edge in edges if {edge.signal, edge.wait} <= known), launch)


def _path(trace: TraceData, mine: TraceData, edges: tuple[Edge, ...], launch: int) -> Path:
    """The critical path through `mine`, a trace's records of one block."""
    waits = _Waits.of(mine, edges)
    steps = _walk(mine, waits)
    parts = _parts(mine, steps)
    total = steps[-1].end_ns - steps[0].start_ns
    kernel = kernel_names(mine)[int(mine.warps.kernel[mine.track[0]])]
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    shares = tuple((name, ns, ns / total if total > 0 else 0.0) for name, ns in ranked)
    rows = sorted({step.row for step in steps})
    label = dict(zip(rows, mine.warps.labels(np.array(rows)).strings(), strict=True))
    steps_named = tuple(Step(step.kind, label[step.row], step.start_ns, step.end_ns, step.via) for step in steps)
    at = mine.warps.blocks(mine.track[:1].astype(np.int64)).strings()[0]
    return Path(kernel, launch, at, total, steps_named, shares, waits.unmatched, info(trace).caveat)


def candidates(trace: TraceData) -> str:
    """The regions of a trace for an error, waits first."""
    names = sorted({one.name for one in trace.regions if one.known and one.kind in (Kind.SPAN, Kind.SPAN_VALUE)})
    waiting = [name for name in names if any(word in name.lower() for word in WAIT_WORDS)]
    rest = [name for name in names if name not in waiting]
    return f"this trace has waits {some(waiting)}, and regions {some(rest)}"


@dataclass(frozen=True)
class _Step:
    kind: Literal["run", "flight"]
    row: int
    start_ns: float
    end_ns: float
    via: str = ""


@dataclass
class _Waits:
    """By warp the blocked waits as (end, signal's end, signal's warp, via), in order of end."""

    by_row: dict[int, list[tuple[float, float, int, str]]] = field(default_factory=dict)
    unmatched: int = 0

    @staticmethod
    def of(trace: TraceData, edges: tuple[Edge, ...]) -> _Waits:
        found = _Waits()
        names, code = span_names(trace)
        name = np.where(trace.dur_cycles >= 0, code[trace.region], -1)
        if not edges and has_records(trace):
            found._barriers(trace)
        for edge in edges:
            signals, waits = (np.flatnonzero(name == names.index(one)) for one in (edge.signal, edge.wait))
            found._add(trace, edge, signals, waits)
        for blocked in found.by_row.values():
            blocked.sort()
        return found

    def _barriers(self, trace: TraceData) -> None:
        """Add the waits for barriers, with the phases of the barriers."""
        whole, edges = trace.whole, barrier_edges(trace)
        begin, took = whole.start_ns[edges.wait], np.nan_to_num(whole.dur_ns[edges.wait])
        own = np.isin(edges.wait, trace.kept)
        shortest = float(took.min(initial=np.inf))
        blocked = own & ((edges.issued_ns > begin) | (took > _LONG * shortest))
        for at in np.flatnonzero(blocked).tolist():
            wait, signal = int(edges.wait[at]), int(edges.signal[at])
            stop = float(begin[at] + took[at])
            names = (whole.regions[int(whole.region[one])].name for one in (signal, wait))
            via = " -> ".join(dict.fromkeys(names))  # a wait may include its signal
            row = int(whole.track[signal])
            came = min(float(edges.issued_ns[at]), stop)
            self.by_row.setdefault(int(whole.track[wait]), []).append((stop, came, row, via))
        self.unmatched += edges.unknown

    def _add(self, trace: TraceData, edge: Edge, signals: Int64, waits: Int64) -> None:
        end = trace.start_ns + np.nan_to_num(trace.dur_ns)
        signal_key, wait_key = _keys(trace, edge, signals, waits)
        last: dict[float, tuple[float, int]] = {}
        for key, at in zip(signal_key.tolist(), signals.tolist(), strict=True):
            last[key] = max(last.get(key, (-np.inf, 0)), (float(end[at]), int(trace.track[at])))
        shortest = float(trace.dur_ns[waits].min()) if len(waits) else 0.0
        least = float(wait_key.min()) if len(wait_key) else 0.0
        for key, at in zip(wait_key.tolist(), waits.tolist(), strict=True):
            if key - least < edge.lag:
                continue
            stop, begin = float(end[at]), float(trace.start_ns[at])
            came, row = last.get(key - edge.lag, (np.inf, 0))
            if came > stop + float(trace.warps.error_ns[trace.track[at]]):
                self.unmatched += 1
            elif came > begin or float(trace.dur_ns[at]) > _LONG * shortest:
                via = f"{edge.signal} -> {edge.wait}"
                self.by_row.setdefault(int(trace.track[at]), []).append((stop, min(came, stop), row, via))


def _keys(trace: TraceData, edge: Edge, signals: Int64, waits: Int64) -> tuple[Float, Float]:
    """The keys to match: values if all records have one, else ordinals per warp.

    Raises UsageError if the first records of a warp were overwritten: its ordinals are unknown.
    """
    values = trace.value[signals], trace.value[waits]
    if all(len(value) and not np.isnan(value).any() for value in values):
        return values
    rows = np.unique(trace.track[np.concatenate([signals, waits])])
    gone = int((trace.warps.written[rows] > trace.warps.records[rows]).sum())
    if gone and any(problem.kind == "overwritten" for problem in trace.problems):
        raise UsageError(
            f"{edge.signal}:{edge.wait}: {counted(gone, 'warp')} lost the first records to newer ones: "
            "ordinals are unknown; give both regions a value, or record more (records=)"
        )
    return ordinals(trace.track[signals]).astype(np.float64), ordinals(trace.track[waits]).astype(np.float64)


def _walk(trace: TraceData, waits: _Waits) -> list[_Step]:
    """Walk backward from the last region's end.

    Each step goes back in time or to a wait not yet visited, so the walk terminates.
    """
    final = trace.start_ns + np.nan_to_num(trace.dur_ns)
    row, time = int(trace.track[final.argmax()]), float(final.max())
    steps, ahead = list[_Step](), {row: len(found) for row, found in waits.by_row.items()}
    while True:
        mine, left = waits.by_row.get(row, []), ahead.get(row, 0)
        while left and mine[left - 1][0] > time:
            left -= 1
        if not left:
            steps.append(_Step("run", row, float(trace.warps.start_ns[row]), time))
            return steps[::-1]
        stop, came, signaller, via = mine[left - 1]
        while left and mine[left - 1][0] == stop:  # waits that end together are one
            left -= 1
        ahead[row] = left
        steps.append(_Step("run", row, stop, time))
        steps.append(_Step("flight", row, came, stop, via))
        row, time = signaller, came


def _parts(trace: TraceData, steps: list[_Step]) -> dict[str, float]:
    """ns of the path by region."""
    parts: dict[str, float] = {}
    runs: dict[int, list[tuple[float, float]]] = {}
    for step in steps:
        if step.kind == "flight":
            label = f"{step.via} (in flight)"
            parts[label] = parts.get(label, 0.0) + step.end_ns - step.start_ns
        else:
            runs.setdefault(step.row, []).append((step.start_ns, step.end_ns))
    pieces = flatten(trace)
    time = np.zeros(len(pieces.names) + 1)
    for row, spells in runs.items():
        first, last = np.searchsorted(pieces.track, [row, row + 1])
        mine, (start, end) = pieces.take(np.arange(first, last)), np.array(spells).T
        low, high = np.searchsorted(mine.end, start, "right"), np.searchsorted(mine.start, end, "left")
        count = np.maximum(high - low, 0)  # pieces that each run touches
        run = np.repeat(np.arange(len(count)), count)
        at = ranges(low, count)
        inside = np.minimum(mine.end[at], end[run]) - np.maximum(mine.start[at], start[run])
        time += np.bincount(mine.name[at] - NONE, weights=np.maximum(inside, 0), minlength=len(time))
    names = [NO_REGION, *pieces.names]
    return parts | {names[number]: float(time[number]) for number in np.flatnonzero(time > 0).tolist()}
