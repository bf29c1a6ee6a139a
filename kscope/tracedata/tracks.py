"""Tracks of the user's: regions that are drawn, and summed up, on a row of their own below their lane.

    with kscope.region("load", track="loads"):        name in the metadata: load \x1f loads

What lives here: which tracks a trace has, and a trace in which each is a lane. What does not: how a name carries its
track (marks.py), how a format draws it (export/).
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from .data import NO_TRACK, TraceData

Int64 = npt.NDArray[np.int64]


def spread(trace: TraceData) -> tuple[TraceData, Int64, Int64]:
    """(trace, track, lane): a trace where every user's track of a lane is a lane of its own, below all others; the
    track of each lane (w,), and which lane of the trace it belongs to. The same trace where no record has a track.
    Lanes of tracks have the records that are on them, and have lost none: what was dropped is told of the lane itself.
    """
    count = len(trace.warps)
    of_region = trace.region_tracks().astype(np.int64)
    own = of_region[trace.region] if (of_region != NO_TRACK).any() else np.zeros(0, np.int64)
    moved = np.flatnonzero(own != NO_TRACK)
    if not len(moved):
        return trace, np.full(count, NO_TRACK, np.int64), np.arange(count)
    width = len(trace.user_tracks)
    pairs, which = np.unique(trace.track[moved] * np.int64(width) + own[moved], return_inverse=True)
    track = trace.track.astype(np.int64)
    track[moved] = count + which.ravel()
    order = np.argsort(track, kind="stable")  # within a lane records stay in order of end
    rows = np.concatenate([np.arange(count), pairs // width])
    warps = replace(trace.warps, **{one.name: getattr(trace.warps, one.name)[rows] for one in fields(trace.warps)})
    added = np.bincount(which.ravel(), minlength=len(pairs))
    warps.records[count:], warps.written[count:] = added, added
    columns = {name: getattr(trace, name)[order] for name in ("region", "start_ticks", "dur_cycles", "bits")}
    made = replace(trace, track=track[order].astype(np.int32), warps=warps, **columns)
    return made, np.concatenate([np.full(count, NO_TRACK, np.int64), pairs % width]), rows
