"""What recording costs: per region, and a trace without that cost, as far as it can be told.

A region costs its lane `cycles`: two clock reads, a few instructions and a store. `inside` of them lie between its own
two clock readings, in its own duration; the rest lies behind it, in whatever region is around. `kscope doctor` measures
both on the device in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..capture.model import Problem
from ..errors import UsageError
from ..tracedata.data import T, TraceData
from ..tracedata.kernel_names import kernel_names
from ..tracedata.warps import last_ends
from ..util.text import counted
from .cells import cells
from .warp_stats import warp_ends

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RegionCost:
    """SM cycles that one region adds to its lane, and how many of them are in its own duration. Points (instants,
    counters) cost what a region costs without its inside."""

    cycles: float
    inside: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.inside <= self.cycles < 1e6:
            raise UsageError(f"RegionCost({self.cycles:g}, inside={self.inside:g}): expected 0 <= inside <= cycles")


@dataclass(frozen=True)
class Overhead:
    """What the records of a region cost their lanes: cost_ns in all, share of these lanes' lifetimes; inside_part: of
    its own total duration, what is its own two clock readings (NaN without duration)."""

    kernel: str
    region: str
    count: int
    cost_ns: float
    share: float
    inside_part: float


def overheads(trace: TraceData, cost: RegionCost) -> tuple[Overhead, ...]:
    """One row per kernel and region, costliest first; records that were overwritten are not in it.

    Shares are of the lifetimes of all lanes of the kernel. Raises UsageError for clock="globaltimer", whose ticks are
    no cycles."""
    _cycles_only(trace)
    found, warps = cells(trace), trace.warps
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
    """The trace as if marks cost nothing: every clock reading of a lane moved forward by what the marks before it cost.

    Holds for durations on one lane whose marks stand in its way, such as a loop of arithmetic. Where a warp waits for
    another one, for memory or for a barrier, part of the cost was hidden in the wait: then too much is subtracted, and
    the truth lies between both traces. What lanes did at the same time is no longer measured. Regions inside of which
    records were overwritten keep the cost of these. The trace says so in a problem of kind `compensated`. Raises
    UsageError for clock="globaltimer", whose tick is longer than a region's cost, and for a filtered trace, which does
    not know all marks.
    """
    _cycles_only(trace)
    if trace.filtered:
        raise UsageError("compensate(): a filtered trace has not all marks; compensate first, then filter")
    start, took = trace.start_ticks.copy(), trace.dur_cycles.copy()
    clipped = 0
    changes = np.flatnonzero(trace.track[1:] != trace.track[:-1]) + 1
    points = ~trace.is_span
    for a, b in zip([0, *changes.tolist()], [*changes.tolist(), len(trace)], strict=True):
        if a < b:
            clipped += _lane(start[a:b], took[a:b], points[a:b], cost)
    warps = trace.warps
    instants = np.bincount(trace.track[points], minlength=len(warps))
    saved = warps.written * cost.cycles - instants * cost.inside
    seen = last_ends(np.bincount(trace.track, minlength=len(warps)), start, took, warps.first_tick)
    text = (
        f"{cost.cycles:g} cycles per region were subtracted, {cost.inside:g} of them from its own duration: too much"
        f" where a warp waited anyway; {counted(clipped, 'duration')} would be below 0; what lanes did at the same time"
        " is not known"
    )
    return replace(
        trace,
        start_ticks=start,
        dur_cycles=took,
        warps=replace(
            warps,
            last_tick=np.maximum(seen, np.rint(warps.last_tick - saved).astype(np.int64)),
            end_ns=np.maximum(
                warps.start_ns + (seen - warps.first_tick) * warps.tick_ns, warps.end_ns - saved * warps.tick_ns
            ),
        ),
        problems=(*trace.problems, Problem("compensated", text, clipped)),
    )


def _lane(start: Int64, took: Int64, points: npt.NDArray[np.bool_], cost: RegionCost) -> int:
    """Moves one lane's records, in place; how many durations became less than nothing."""
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
    moved[order] = np.maximum.accumulate(moved[order])  # what nested still nests
    whole = np.rint(moved).astype(np.int64)
    known = took >= 0
    start[:] = whole[:count]
    took[known] = (whole[count:] - whole[:count])[known]
    return below


def _cycles_only(trace: TraceData) -> None:
    if trace.warps.timer.any():
        raise UsageError(
            'this capture was recorded with clock="globaltimer", whose ticks are longer than what a region costs;'
            ' record with clock="cycles"'
        )
