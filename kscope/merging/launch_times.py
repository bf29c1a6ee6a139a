"""Begin and end of each launch of a trace: the first claim and the last end of its recorded warps, with bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tracedata.data import TraceData
from ..util.arrays import Bools, Int64
from ..util.runs import least_of, most_of

_FAR = 1 << 62


@dataclass(frozen=True, eq=False)
class LaunchTimes:
    """Launches (l,), in int64 ns after the trace's origin.

    Attributes:
        first: the first claim.
        last: the last end of a warp that finished; for a launch without one its first claim.
        first_by: latest possible `first`.
        last_from: earliest possible `last`.
        device: index into trace.devices.
    """

    first: Int64
    last: Int64
    first_by: Int64
    last_from: Int64
    device: Int64

    @property
    def recorded(self) -> Bools:
        """True for launches with warps; the others have no times."""
        return self.first < _FAR


def launch_times(trace: TraceData) -> LaunchTimes:
    """The times of a trace's launches."""
    warps, count = trace.warps, len(trace.launches)
    error = np.ceil(np.nan_to_num(warps.ends_error_ns)) + 1  # 1 for rounding
    first, first_by = (least_of(warps.launch, begin, count, _FAR) for begin in (warps.start_ns, warps.start_ns + error))
    done = np.flatnonzero(warps.finished)
    ends = warps.end_ns[done], warps.end_ns[done] - error[done]
    last, last_from = (most_of(warps.launch[done], end, count, -_FAR) for end in ends)
    device = np.zeros(count, np.int64)
    device[warps.launch] = warps.device
    unfinished = last == -_FAR
    last[unfinished] = first[unfinished]
    last_from[unfinished] = first[unfinished] - error.max(initial=0.0)
    first, last, first_by, last_from = (np.rint(one).astype(np.int64) for one in (first, last, first_by, last_from))
    return LaunchTimes(first, last, first_by, last_from, device)
