"""Wall time of regions: how long at least one warp was in them. Time in which several warps overlap counts once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..tracedata.data import TraceData

Int64 = npt.NDArray[np.int64]
_LONGEST = 1 << 61
"""Rows times time stays below, so that all intervals fit one 64-bit axis."""
_FINEST = 1024
"""Steps of a ns."""


def wall_ns(trace: TraceData, row: Int64, rows: int) -> npt.NDArray[np.float64]:
    """(rows,) ns: the length of the union of each row's spans.

    Args:
        trace: the trace.
        row: (n,) the row of each record; -1 for none. Records without a duration count for none.
        rows: how many rows there are.
    """
    at = np.flatnonzero((row >= 0) & (trace.dur_cycles > 0))
    if not len(at):
        return np.zeros(rows)
    of, start = row[at], trace.start_ns[at]
    end = start + trace.dur_ns[at]
    origin = float(start.min())
    span = max(float(end.max()) - origin, 1.0)
    steps = min(float(_FINEST), _LONGEST / (span * rows))
    # One axis for all rows, one row after another: intervals of different rows do not meet.
    base = of * (int(span * steps) + 2)
    begins = base + ((start - origin) * steps).astype(np.int64)
    ends = base + ((end - origin) * steps).astype(np.int64)
    order = np.argsort(begins)
    begins, reach = begins[order], np.maximum.accumulate(ends[order])
    before = np.concatenate([[begins[0]], reach[:-1]])
    gain = np.maximum(reach - np.maximum(begins, before), 0)
    return np.asarray(np.bincount(of[order], weights=gain, minlength=rows) / steps, np.float64)
