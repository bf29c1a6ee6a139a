"""Waits for barriers at which other blocks of the cluster arrive, whose clocks are known within a bound."""

from __future__ import annotations

import numpy as np

from ...tracedata.data import TraceData
from ...util.arrays import Int64
from . import events as be
from .events import Events

UNKNOWN_PHASE = -2
"""Below the number of the phase before the first one."""


def remote_waits(trace: TraceData, found: Events, done: Int64, parity: int) -> Int64:
    """The phases of the waits among the operations of one barrier, in their order; UNKNOWN_PHASE where none fits.

    The number of phases that had completed when such a wait ended is known as an interval. Of the phases in it that
    have the wait's parity, the wait is for the first one that the same warp has not waited for yet. This is wrong for a
    warp that skips two phases in a row.

    Args:
        trace: the trace.
        found: the operations, in order of time.
        done: number of phases with all their arrivals, after each operation.
        parity: of phase 0.
    """
    slack = int(found.slack.max())
    times = np.maximum.accumulate(np.where(found.operation == be.WAIT, found.end, found.start))
    numbers: list[int] = []
    last: dict[int, int] = {}
    for at in np.flatnonzero(found.operation == be.WAIT).tolist():
        end, row = int(found.end[at]), int(trace.track[found.record[at]])
        fewest, most = (_done(times, done, when) for when in (end - slack, end + slack))
        least = max(fewest - 2, last.get(row, UNKNOWN_PHASE) + 1, -1)
        phase = least + ((least - int(found.parity[at]) - parity) % 2)
        if phase > most - 1:
            phase = UNKNOWN_PHASE
        else:
            last[row] = phase
        numbers.append(phase)
    return np.array(numbers, np.int64)


def _done(times: Int64, done: Int64, when: int) -> int:
    before = int(np.searchsorted(times, when, side="right"))
    return int(done[before - 1]) if before else 0
