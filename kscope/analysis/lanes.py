"""What the recording lanes of a group did as a whole: how long they lived, how long in no region, what they lost.

What lives here: numbers per kernel and group, and the summary's notes. What does not: regions (summary.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace import Trace
from ..wording import counted
from .cells import Cells, under_tick
from .groups import Groups, Key

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LaneStats:
    """Lanes of one kernel and group; times in ns. time_ns: from the first start to the last end, the mean over the
    launches; max_time_ns: the longest. alive_ns: sum of the lanes' lifetimes. idle_ns: the part of it in no region.
    longest_idle_ns: the longest time that a lane was in none, and its name. dropped: records that the lanes wrote
    and the capture has not. unfinished: lanes without an end."""

    kernel: str
    key: Key
    launches: int
    blocks: int
    lanes: int
    records: int
    dropped: int
    unfinished: int
    time_ns: float
    max_time_ns: float
    alive_ns: float
    idle_ns: float
    longest_idle_ns: float
    longest_idle_in: str


def lane_ends(trace: Trace) -> Float:
    """(w,) ns: when each lane ended; one that did not finish counts to its last record."""
    warps, last = trace.warps, trace.warps.first_tick.copy()
    if len(trace):
        final = np.flatnonzero(np.append(trace.track[1:] != trace.track[:-1], True))  # of a lane: it ends last
        last[trace.track[final]] = trace.start_ticks[final] + np.maximum(trace.dur_cycles[final], 0)
    seen = warps.start_ns + np.maximum(last - warps.first_tick, 0) * warps.tick_ns
    return np.where(warps.finished, warps.end_ns, seen)


def lane_stats(trace: Trace, groups: Groups, found: Cells) -> tuple[LaneStats, ...]:
    """One row per group, in the order of `groups`; in a filtered trace of the lanes that still have records."""
    warps = trace.warps
    ends = lane_ends(trace)
    life = ends - warps.start_ns
    kept = np.bincount(trace.track, minlength=len(warps)) if trace.filtered else warps.records
    alive = kept > 0 if trace.filtered else np.ones(len(warps), bool)
    idle = np.maximum(life - found.covered * warps.tick_ns, 0)
    tail = ends - (warps.start_ns + (found.last_end - warps.first_tick) * warps.tick_ns)
    quiet = np.maximum(found.quiet * warps.tick_ns, tail)
    lanes = np.flatnonzero(alive)
    order = lanes[np.argsort(groups.code[lanes], kind="stable")]
    cuts = np.searchsorted(groups.code[order], np.arange(len(groups) + 1))
    rows = []
    for number, (key, kernel) in enumerate(zip(groups.keys, groups.kernel.tolist(), strict=True)):
        mine = order[cuts[number] : cuts[number + 1]]
        times = _times(warps.launch[mine], warps.start_ns[mine], ends[mine])
        worst = int(mine[quiet[mine].argmax()]) if len(mine) else -1
        rows.append(
            LaneStats(
                trace.kernels[kernel], key, len(times),
                blocks=_distinct(warps.launch[mine], warps.block[mine]), lanes=len(mine),
                records=int(kept[mine].sum()),
                dropped=int(np.maximum(warps.written[mine] - warps.records[mine], 0).sum()),
                unfinished=int(np.count_nonzero(~warps.finished[mine])),
                time_ns=float(times.mean()) if len(times) else 0.0,
                max_time_ns=float(times.max(initial=0.0)),
                alive_ns=float(life[mine].sum()), idle_ns=float(idle[mine].sum()),
                longest_idle_ns=float(quiet[worst]) if worst >= 0 else 0.0,
                longest_idle_in=warps.label(worst) if worst >= 0 else "",
            )
        )  # fmt: skip
    return tuple(rows)


def _times(launch: Int64, start: Float, end: Float) -> Float:
    """From first start to last end, of each launch."""
    if not len(launch):
        return np.zeros(0)
    order = np.argsort(launch, kind="stable")
    edges = np.flatnonzero(np.concatenate([[True], np.diff(launch[order]) != 0]))
    return np.asarray(np.maximum.reduceat(end[order], edges) - np.minimum.reduceat(start[order], edges))


def _distinct(launch: Int64, block: Int64) -> int:
    return len(np.unique(launch * (int(block.max(initial=0)) + 1) + block)) if len(block) else 0


def notes(trace: Trace, found: Cells) -> tuple[str, ...]:
    """What a reader should know of the recording as a whole."""
    warps = trace.warps
    said = []
    if len(warps):
        lanes, launches = counted(len(warps), "lane"), counted(len(trace.launches), "launch")
        said.append(f"{counted(len(trace), 'record')} of {lanes} in {launches}")
        timer = bool(warps.timer.any())
        axis = f"globaltimer ticks every {trace.tick_ns} ns; SMs are aligned within {warps.error_ns.max():.0f} ns"
        said.append(
            axis + ("; durations are multiples of the tick" if timer else "; durations are in SM cycles, exact")
        )
    short = int(under_tick(trace, found).sum())
    if short:
        said.append(f"{counted(short, 'span')} shorter than a tick: not told apart from 0 ns")
    return tuple(said)
