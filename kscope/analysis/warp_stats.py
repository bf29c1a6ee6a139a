"""Totals per group of warps: lifetime, time in no region, dropped records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names
from ..tracedata.recorded import CLOCKS
from ..util.runs import extents, group_equal
from ..util.text import counted
from .groups import Groups, Key
from .warp_regions import WarpRegions, under_tick

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WarpStats:
    """Warps of one kernel and group. Times in ns.

    Attributes:
        kernel, key: the group.
        launches, blocks, warps: launches, blocks and warps (with AllThreads, lanes).
        grid_blocks: blocks of these launches' grids; more than `blocks` where some did not record or are filtered out.
        records, dropped: records in the capture, and lost records.
        unfinished: warps without an end.
        time_ns, max_time_ns: from a launch's first start to its last end: mean and longest.
        alive_ns, idle_ns: total lifetime, and the part of it in no region.
        longest_idle_ns, longest_idle_in: the longest time of a warp in no region, and the warp.
    """

    kernel: str
    key: Key
    launches: int
    blocks: int
    warps: int
    grid_blocks: int
    records: int
    dropped: int
    unfinished: int
    time_ns: float
    max_time_ns: float
    alive_ns: float
    idle_ns: float
    longest_idle_ns: float
    longest_idle_in: str


def warp_ends(trace: TraceData) -> Float:
    """(w,) ns: each warp's end; of an unfinished one its last clock, see Warps.last_tick."""
    warps = trace.warps
    return np.where(warps.finished, warps.end_ns, warps.start_ns + (warps.last_tick - warps.first_tick) * warps.tick_ns)


def warp_stats(trace: TraceData, groups: Groups, found: WarpRegions) -> tuple[WarpStats, ...]:
    """One row per group, in the order of `groups`; in a filtered trace of the warps with records."""
    warps = trace.warps
    kept = np.bincount(trace.track, minlength=len(warps)) if trace.filtered else warps.records
    rows = trace.shown_warps
    ends = warp_ends(trace)
    life = ends - warps.start_ns
    idle = np.maximum(life - found.covered * warps.tick_ns, 0)
    tail = ends - (warps.start_ns + (found.last_end - warps.first_tick) * warps.tick_ns)
    quiet = np.maximum(found.quiet * warps.tick_ns, tail)
    code = groups.code[rows]

    def add(column: Float | Int64 | npt.NDArray[np.bool_]) -> list[Any]:
        return list(np.bincount(code, weights=column[rows], minlength=len(groups)).tolist())

    launches, mean, most, grids = _times(trace, code, len(groups), warps.launch[rows], warps.start_ns[rows], ends[rows])
    blocks = _distinct(code, len(groups), warps.launch[rows], warps.block[rows]).tolist()
    records, dropped, unfinished = add(kept), add(np.maximum(warps.written - warps.records, 0)), add(~warps.finished)
    count, alive, without = np.bincount(code, minlength=len(groups)).tolist(), add(life), add(idle)
    longest, worst = np.full(len(groups), -np.inf), np.full(len(groups), -1)
    np.maximum.at(longest, code, quiet[rows])
    of_longest = np.flatnonzero(quiet[rows] == longest[code])[::-1]
    worst[code[of_longest]] = rows[of_longest]  # of several the first lane, which is assigned last
    named = np.flatnonzero(worst >= 0)
    labels = dict(zip(named.tolist(), warps.labels(worst[named]).strings(), strict=True))
    kernels = kernel_names(trace)
    return tuple(
        WarpStats(
            kernels[kernel], key, launches=launches[at], blocks=blocks[at], warps=count[at],
            grid_blocks=grids[at],
            records=int(records[at]), dropped=int(dropped[at]), unfinished=int(unfinished[at]), time_ns=mean[at],
            max_time_ns=most[at], alive_ns=alive[at], idle_ns=without[at],
            longest_idle_ns=float(quiet[worst[at]]) if at in labels else 0.0, longest_idle_in=labels.get(at, ""),
        )
        for at, (key, kernel) in enumerate(zip(groups.keys, groups.kernel.tolist(), strict=True))
    )  # fmt: skip


def _times(
    trace: TraceData, code: Int64, groups: int, launch: Int64, start: Float, end: Float
) -> tuple[list[int], list[float], list[float], list[int]]:
    """(launches, mean and longest time from a launch's first start to its last end, blocks in the launches' grids) of
    every group.
    """
    member, _, index = group_equal(code * len(trace.launches) + launch)
    first, last = extents(index, len(member), start, end)
    of, took = code[member], last - first
    count, longest = np.bincount(of, minlength=groups), np.zeros(groups)
    np.maximum.at(longest, of, took)
    sizes = np.array([one.grid for one in trace.launches], np.int64).reshape(-1, 3).prod(axis=1)
    blocks = np.zeros(groups, np.int64)
    np.add.at(blocks, of, sizes[launch[member]])
    mean = np.bincount(of, weights=took, minlength=groups) / np.maximum(count, 1)
    return count.tolist(), mean.tolist(), longest.tolist(), blocks.tolist()


def _distinct(code: Int64, groups: int, launch: Int64, block: Int64) -> Int64:
    """(groups,) number of blocks, counted per launch."""
    member, _, place = group_equal(launch * (int(block.max(initial=0)) + 1) + block)
    if groups > 1:
        member, _, _ = group_equal(code * len(member) + place)
    return np.bincount(code[member], minlength=groups)


def notes(trace: TraceData, found: WarpRegions) -> tuple[str, ...]:
    """Remarks on the recording as a whole."""
    warps = trace.warps
    lines = []
    if len(warps):
        shown = trace.shown_warps
        launches = counted(len(np.unique(warps.launch[shown])), "launch")
        lines.append(f"{counted(len(trace), 'record')} of {counted(len(shown), warps.noun)} in {launches}")
        foreign = trace.recorded.clock == "foreign" and trace.tick_ns > 1
        steps = f"; its times are multiples of {trace.tick_ns} ns" * foreign
        lines.append(_axis(trace) if trace.recorded.clock == "gpu" else CLOCKS[trace.recorded.clock] + steps)
    short = int(under_tick(trace, found).sum())
    if short:
        lines.append(f"{counted(short, 'span')} shorter than a tick: indistinguishable from 0 ns")
    if trace.tuning_launches:
        lines.append(f"{counted(trace.tuning_launches, 'launch')} of autotuning left out: they ran without regions")
    return tuple(lines)


def _axis(trace: TraceData) -> str:
    """How exact the times of a GPU are."""
    warps = trace.warps
    timer = bool(warps.timer.any())
    return (
        f"globaltimer ticks every {trace.tick_ns} ns; SMs are aligned within {warps.ends_error_ns.max():,.0f} ns"
        f" where warps start and end, and within {warps.error_ns.max():,.0f} ns between; durations are "
        + ("multiples of the tick" if timer else "in SM cycles, exact")
    )
