"""Groups of operations: the operations on one barrier between two initializations, with its number of arrivals."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ...tracedata.data import TraceData
from ...util.arrays import Bools, Int64
from ...util.runs import fresh, ordinals
from . import events as be
from .events import Events, Homes
from .resynchronize import ways_to_count

Counts = dict[tuple[int, int], int]
"""(kernel, barrier) -> arrivals of a phase."""
FIRST = -(np.int64(1) << 62)


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of operations, in the order of the operations; arrays have shape (g,).

    Attributes:
        of: (n,) the group of each operation.
        first: index of its first operation.
        needed: arrivals of a phase; 0 if its phases are unknown.
        offset: arrivals of its first phase that came before its first record.
        life: number of earlier groups of its barrier.
        parity: of its phase 0: 1 if an odd number of phases came before its first record.
        uncounted, lost: number of groups without a known count, and of those whose count cannot be resumed.
        waits: number of waits of these groups.
    """

    of: Int64
    first: Int64
    needed: Int64
    offset: Int64
    life: Int64
    parity: Int64
    uncounted: int
    lost: int
    waits: int

    @staticmethod
    def among(trace: TraceData, homes: Homes, found: Events, counts: Counts, whole: Bools) -> Groups:
        """The groups of operations that are sorted by block, barrier and time.

        Args:
            trace: the trace.
            homes: its blocks.
            found: the operations.
            counts: the arrivals of phases, for barriers whose initialization is not among them.
            whole: (b,) True if the records of a block are complete from its start on.
        """
        new = fresh(found.home, found.barrier) | (found.operation == be.INIT)
        of, first = np.cumsum(new) - 1, np.flatnonzero(new)
        begun = found.operation[first] == be.INIT
        needed = np.where(begun, found.weight[first], 0)
        kernel = trace.warps.kernel[homes.row[found.home[first]]]
        keys = zip(kernel.tolist(), found.barrier[first].tolist(), strict=True)
        elsewhere = np.array([counts.get(key, 0) for key in keys], np.int64)
        needed = np.where(begun, needed, elsewhere)
        offset, parity = np.zeros((2, len(first)), np.int64)
        uncounted = (needed == 0) & ~_only_initialized(found, of, len(first))
        stop = np.append(first[1:], len(found))
        lost = np.zeros(len(first), bool)
        for group in np.flatnonzero(~whole[found.home[first]] & ~begun & (needed > 0)).tolist():
            ways = ways_to_count(found.take(np.arange(int(first[group]), int(stop[group]))), int(needed[group]))
            if len(ways) == 1:
                offset[group], parity[group] = ways[0]
            else:
                lost[group] = True
        needed = np.where(lost, 0, needed)
        waits = int(np.count_nonzero((found.operation == be.WAIT) & (needed[of] == 0)))
        life = ordinals(found.home[first], found.barrier[first])
        return Groups(of, first, needed, offset, life, parity, int(uncounted.sum()), int(lost.sum()), waits)


def _only_initialized(found: Events, of: Int64, count: int) -> Bools:
    return np.asarray(np.bincount(of, found.operation != be.INIT, count) == 0)


def counts_by_barrier(trace: TraceData, homes: Homes, found: Events) -> Counts:
    """(kernel, barrier) -> the arrivals of its phases, where all blocks of the kernel agree."""
    at = np.flatnonzero(found.operation == be.INIT)
    kernel = trace.warps.kernel[homes.row[found.home[at]]]
    counts: dict[tuple[int, int], set[int]] = defaultdict(set)
    for key, count in zip(
        zip(kernel.tolist(), found.barrier[at].tolist(), strict=True), found.weight[at].tolist(), strict=True
    ):
        counts[key].add(count)
    return {key: next(iter(several)) for key, several in counts.items() if len(several) == 1}


def window(trace: TraceData, homes: Homes) -> tuple[Int64, Int64]:
    """(b,) ticks from which, and to which, every warp of a block has all its records; FIRST and -FIRST where it has."""
    warps = trace.warps
    since, until = np.full(len(homes.row), FIRST), np.full(len(homes.row), -FIRST)
    missing = warps.written > warps.records
    if missing.any():
        start = trace.start_ticks.astype(np.int64)
        first, last = np.full(len(warps), -FIRST), np.full(len(warps), FIRST)
        end = start + np.maximum(trace.dur_cycles, 0)
        np.minimum.at(first, trace.track, end)
        np.maximum.at(last, trace.track, start)
        rows = np.flatnonzero(missing)
        if trace.recorded.options.get("fill") == "stop":
            np.minimum.at(until, homes.of[rows], last[rows])
        else:
            np.maximum.at(since, homes.of[rows], first[rows])
    threads = warps.threads.prod(axis=1)
    there = np.bincount(homes.of, minlength=len(homes.row))
    since[there < -(-threads[homes.row] // 32)] = -FIRST  # a warp did not record
    return since, until
