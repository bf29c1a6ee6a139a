"""Totals per group of warps: lifetime, time in no region, dropped records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names
from ..tracedata.recording_facts import CLOCKS
from ..util.arrays import Float, Int64
from ..util.reduction import Rows, reduced
from ..util.runs import count_distinct, group_equal, most_of, summed
from ..util.text import counted
from .groups import Groups, Key
from .warp_regions import WarpRegions, under_tick


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
    warps, rows = trace.warps, trace.shown_warps
    kept = np.bincount(trace.track, minlength=len(warps)) if trace.filtered else warps.records
    ends = warp_ends(trace)
    quiet = np.empty(len(rows))

    def of(part: slice) -> Rows:
        row = rows[part]
        start, pace = warps.start_ns[row], warps.tick_ns[row]
        life = ends[row] - start
        idle = np.maximum(life - found.covered[row] * pace, 0)
        tail = ends[row] - (start + (found.last_end[row] - warps.first_tick[row]) * pace)
        quiet[part] = np.maximum(found.quiet[row] * pace, tail)
        dropped = np.maximum(warps.written[row] - warps.records[row], 0)
        sums = np.ones(len(row)), kept[row], dropped, ~warps.finished[row], life, idle
        return Rows(groups.code[row], sums, most=[quiet[part]])

    code, all_rows = groups.code[rows], reduced(len(rows), of)
    columns = [np.zeros(len(groups)) for _ in all_rows.sums]
    for column, sums in zip(columns, all_rows.sums, strict=True):
        column[all_rows.code] = sums
    count, records, dropped, unfinished, alive, without = (column.tolist() for column in columns)
    launches, mean, most, grids = _times(trace, groups, rows, ends)
    blocks = _distinct(code, len(groups), warps.block_key[rows]).tolist()
    worst = np.full(len(groups), -1)
    longest = np.flatnonzero(quiet == all_rows.most[0][all_rows.of])[::-1]
    worst[code[longest]] = longest  # of several the first lane, which is assigned last
    named = np.flatnonzero(worst >= 0)
    labels = dict(zip(named.tolist(), warps.labels(rows[worst[named]]).strings(), strict=True))
    kernels = kernel_names(trace)
    return tuple(
        WarpStats(
            kernels[kernel], key, launches=launches[at], blocks=blocks[at], warps=int(count[at]),
            grid_blocks=grids[at],
            records=int(records[at]), dropped=int(dropped[at]), unfinished=int(unfinished[at]), time_ns=mean[at],
            max_time_ns=most[at], alive_ns=alive[at], idle_ns=without[at],
            longest_idle_ns=float(quiet[worst[at]]) if at in labels else 0.0, longest_idle_in=labels.get(at, ""),
        )
        for at, (key, kernel) in enumerate(zip(groups.keys, groups.kernel.tolist(), strict=True))
    )  # fmt: skip


def _times(
    trace: TraceData, groups: Groups, shown: Int64, ends: Float
) -> tuple[list[int], list[float], list[float], list[int]]:
    """(launches, mean and longest time from a launch's first start to its last end, blocks in the launches' grids) of
    every group.
    """
    warps, width, many = trace.warps, len(trace.launches), len(groups)

    def of(part: slice) -> Rows:
        row = shown[part]
        return Rows(groups.code[row] * width + warps.launch[row], least=[warps.start_ns[row]], most=[ends[row]])

    times = reduced(len(shown), of)
    group, launch = np.divmod(times.code, max(1, width))
    took = times.most[0] - times.least[0]
    longest = most_of(group, took, many, 0.0)
    count = np.bincount(group, minlength=many)
    sizes = np.array([one.grid for one in trace.launches], np.int64).reshape(-1, 3).prod(axis=1)
    blocks = np.zeros(many, np.int64)
    np.add.at(blocks, group, sizes[launch])
    mean = summed(group, took, many) / np.maximum(count, 1)
    return count.tolist(), mean.tolist(), longest.tolist(), blocks.tolist()


def _distinct(code: Int64, groups: int, block: Int64) -> Int64:
    """(groups,) number of blocks, counted per launch."""
    member, _, place = group_equal(block)
    if groups > 1:
        member, _, _ = group_equal(code * len(member) + place)
    return np.bincount(code[member], minlength=groups)


def notes(trace: TraceData, found: WarpRegions) -> tuple[str, ...]:
    """Remarks on the recording as a whole."""
    warps = trace.warps
    lines = []
    if len(warps):
        shown = trace.shown_warps
        launches = counted(count_distinct(warps.launch[shown]), "launch")
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
    """The accuracy of a GPU's times, in words."""
    warps = trace.warps
    timer = bool(warps.timer.any())
    return (
        f"globaltimer ticks every {trace.tick_ns} ns; SMs are aligned within {warps.ends_error_ns.max():,.0f} ns"
        f" where warps start and end, and within {warps.error_ns.max():,.0f} ns between; durations are "
        + ("multiples of the tick" if timer else "in SM cycles, exact")
    )
