"""The time of each span in terms of samples, in clock cycles: samplers count cycles, not ns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...tracedata.data import TraceData
from ...tracedata.nesting import children_weight
from ...util.arrays import Int64
from .stalls import all_warps

PARTITIONS = 4
"""Partitions of an SM: consecutive warps of a block are in consecutive partitions."""
_PART = 1024
"""Steps of a tick: weights are whole numbers, so that nested ones subtract exactly."""


def own_times(trace: TraceData, spans: Int64) -> Int64:
    """Time of spans (n,), ascending, in terms of samples and without nested ones, in a separate unit; ticks if not all
    warps recorded, because the number of live warps is unknown then, and for the simulator, which samples every warp.

    Each partition of an SM has a sampler, which samples one live warp of the partition in each period. A warp that is
    alone there is sampled every time, one of four every fourth time. So time is divided by the partition's number of
    live warps.
    """
    track, start = trace.track[spans], trace.start_ticks[spans]
    took = trace.dur_cycles[spans]
    seen = took
    if len(spans) and all_warps(trace) and trace.recorded.clock == "gpu":
        seen = _weighed(trace, track, start, start + took)
    held, _ = children_weight(start, start + took, track, seen)
    return seen - held


def _weighed(trace: TraceData, track: npt.NDArray[np.int32], begin: Int64, end: Int64) -> Int64:
    """The integral of 1 over the warps of the partition that are alive. Warps of an SM read the same clock."""
    warps = trace.warps
    place = _places(trace)
    rows = np.arange(len(warps))
    first = np.flatnonzero(warps.lane == warps.lane.min(initial=0)) if len(np.unique(warps.lane)) > 1 else rows
    first = first[np.argsort(place[first], kind="stable")]
    found = np.zeros(len(track))
    order = np.argsort(place[track], kind="stable")
    places, edges = np.unique(place[track][order], return_index=True)
    low, high = (np.searchsorted(place[first], places, side) for side in ("left", "right"))
    for number, at in enumerate(np.split(order, edges[1:])):
        alive = first[low[number] : high[number]]
        moments = np.concatenate([warps.first_tick[alive], np.maximum(warps.last_tick, warps.first_tick)[alive]])
        by_time = np.argsort(moments, kind="stable")
        count = np.cumsum(np.where(by_time < len(alive), 1, -1))
        moments = moments[by_time]
        share = np.divide(1.0, count, out=np.ones(len(count)), where=count > 0)  # a record outside all lives
        total = np.concatenate([[0.0], np.cumsum(share[:-1] * np.diff(moments))])
        found[at] = np.interp(end[at], moments, total) - np.interp(begin[at], moments, total)
    return np.rint(found * _PART).astype(np.int64)


def _places(trace: TraceData) -> Int64:
    """The partition of each warp; the SM alone where blocks have no multiple of PARTITIONS warps, and begin at any
    partition.
    """
    warps = trace.warps
    sm = (warps.device.astype(np.int64) << 32 | warps.sm) * PARTITIONS
    whole = -(-warps.threads.prod(axis=1) // 32) % PARTITIONS == 0
    return sm + warps.warp % PARTITIONS if whole.all() else sm
