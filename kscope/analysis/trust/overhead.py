"""The cost of recording: per region, and a trace with that cost subtracted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...capture.model import Problem
from ...errors import UsageError
from ...tracedata.data import T, TraceData
from ...tracedata.kernel_names import kernel_names
from ...tracedata.warps import last_ends
from ...util.arrays import Bools, Int64
from ...util.text import counted
from ..warp_regions import warp_regions
from ..warp_stats import warp_ends


@dataclass(frozen=True)
class RegionCost:
    """SM cycles that one region adds to its warp, and how many of them are part of its duration.

    `cycles` are two clock reads, a few instructions and a store; `inside` of them are between the two clock reads, and
    the rest belongs to the enclosing region. `kscope doctor` measures both on the device in use. Points (instants,
    counters) cost cycles - inside.
    """

    cycles: float
    inside: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.inside <= self.cycles < 1e6:
            raise UsageError(f"RegionCost({self.cycles:g}, inside={self.inside:g}): expected 0 <= inside <= cycles")


@dataclass(frozen=True)
class Overhead:
    """The cost of a region's records.

    Attributes:
        kernel, region: their names.
        count: records.
        cost_ns: total cost.
        share: of the total lifetime of the kernel's warps.
        inside_part: share of the region's total duration that is its own clock reads; NaN without duration.
    """

    kernel: str
    region: str
    count: int
    cost_ns: float
    share: float
    inside_part: float


def overheads(trace: TraceData, cost: RegionCost) -> tuple[Overhead, ...]:
    """One row per kernel and region, costliest first. Overwritten records are not included.

    Raises:
        UsageError: clock="globaltimer", whose ticks are not cycles.
    """
    _cycles_only(trace)
    found, warps = warp_regions(trace), trace.warps
    life = np.bincount(warps.kernel, weights=warp_ends(trace) - warps.start_ns, minlength=len(trace.kernels))
    rows: dict[tuple[int, int], list[float]] = {}
    for track, name, count, unknown, total in zip(
        *(column.tolist() for column in (found.track, found.name, found.count, found.unknown, found.total)), strict=True
    ):
        row = rows.setdefault((int(warps.kernel[track]), name), [0, 0.0, 0.0, 0.0])
        pace = float(warps.tick_ns[track])
        row[0] += count + unknown
        row[1] += (count + unknown) * cost.cycles * pace
        row[2] += count * cost.inside * pace
        row[3] += total * pace
    overheads_found, kernels = [], kernel_names(trace)
    for (kernel, name), (count, ns, inside, total) in rows.items():
        share = ns / float(life[kernel]) if life[kernel] > 0 else float("nan")
        own = inside / total if total > 0 else float("nan")
        overheads_found.append(Overhead(kernels[kernel], found.names[name], int(count), ns, share, own))
    return tuple(sorted(overheads_found, key=lambda row: (row.kernel, -row.cost_ns)))


def compensate(trace: T, cost: RegionCost) -> T:
    """The trace as if marks cost nothing: each clock read moves forward by the cost of the marks before it.

    Holds for durations on one warp whose marks delay it, such as a loop of arithmetic. If a warp waits for another one,
    for memory or at a barrier, the wait hides part of the cost: then too much is subtracted, and the true duration lies
    between both traces. Concurrency is no longer measured. Regions around overwritten records keep the cost of these.
    Adds a problem of kind `compensated`.

    Raises:
        UsageError: clock="globaltimer", whose tick is longer than a region's cost; or a filtered trace.
    """
    _cycles_only(trace)
    if trace.filtered:
        raise UsageError("compensate(): a filtered trace lacks marks; compensate first, then filter")
    start, took = trace.start_ticks.copy(), trace.dur_cycles.copy()
    clipped = 0
    changes = np.flatnonzero(trace.track[1:] != trace.track[:-1]) + 1
    points = ~trace.is_span
    for a, b in zip([0, *changes.tolist()], [*changes.tolist(), len(trace)], strict=True):
        if a < b:
            clipped += _clip_warp(start[a:b], took[a:b], points[a:b], cost)
    warps = trace.warps
    instants = np.bincount(trace.track[points], minlength=len(warps))
    saved = warps.written * cost.cycles - instants * cost.inside
    seen = last_ends(np.bincount(trace.track, minlength=len(warps)), start, took, warps.first_tick)
    text = (
        f"{cost.cycles:g} cycles per region were subtracted, {cost.inside:g} of them from its duration: too much"
        f" if a warp waited anyway; {counted(clipped, 'duration')} would be below 0; concurrency is unknown"
    )
    last = np.maximum(seen, np.rint(warps.last_tick - saved).astype(np.int64))
    end = np.maximum(warps.start_ns + (seen - warps.first_tick) * warps.tick_ns, warps.end_ns - saved * warps.tick_ns)
    problems = (*trace.problems, Problem("compensated", text, clipped))
    moved = replace(warps, last_tick=last, end_ns=end)
    return replace(trace, start_ticks=start, dur_cycles=took, warps=moved, problems=problems)


def _clip_warp(start: Int64, took: Int64, points: Bools, cost: RegionCost) -> int:
    """Move one warp's records in place; returns how many durations would be negative."""
    count = len(start)
    tick = np.concatenate([start, start + np.maximum(took, 0)])
    price = np.repeat([cost.inside, cost.cycles - cost.inside], count)
    price[:count][points] = 0.0  # a point has one clock reading
    leaves = np.repeat([0, 1], count)
    order = np.lexsort((leaves, tick))
    before = np.cumsum(price[order]) - price[order]
    moved = np.empty(2 * count)
    moved[order] = tick[order] - before
    below = int(np.count_nonzero(moved[count:] < moved[:count] - 0.5))
    moved[order] = np.maximum.accumulate(moved[order])  # nested spans stay nested
    whole = np.rint(moved).astype(np.int64)
    known = took >= 0
    start[:] = whole[:count]
    took[known] = (whole[count:] - whole[:count])[known]
    return below


def _cycles_only(trace: TraceData) -> None:
    if trace.warps.timer.any():
        raise UsageError(
            'this capture was recorded with clock="globaltimer", whose tick exceeds the cost of a region;'
            ' record with clock="cycles"'
        )
