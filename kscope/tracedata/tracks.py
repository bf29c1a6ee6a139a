"""The user's tracks: regions that are drawn and summed up on a row below their warp.

with kscope.region("load", track="loads"):        name in the metadata: load \x1f loads
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from ..util.arrays import Int64
from .data import NO_TRACK, TraceData


def spread(trace: TraceData) -> tuple[TraceData, Int64, Int64]:
    """Give every user track of a warp a separate row, below all others.

    Returns:
        The trace (unchanged if no record has a track), the track of each row (w,), and the original row of each row
        (w,). Rows of tracks count only their own records; dropped records stay with the original row.
    """
    if trace.filtered and trace.regions == trace.whole.regions:
        whole, track_of, rows = spread(trace.whole)
        if whole is trace.whole:
            return trace, track_of, rows
        kept = np.zeros(len(whole), bool)
        kept[trace.kept] = True
        return whole.take(np.flatnonzero(kept[np.argsort(_rows(trace.whole)[0], kind="stable")])), track_of, rows
    count, width = len(trace.warps), len(trace.user_tracks)
    track, pairs = _rows(trace)
    if not len(pairs):
        return trace, np.full(count, NO_TRACK, np.int64), np.arange(count)
    order = np.argsort(track, kind="stable")  # within a row records stay in order of end
    rows = np.concatenate([np.arange(count), pairs // width])
    warps = replace(trace.warps, **{one.name: getattr(trace.warps, one.name)[rows] for one in fields(trace.warps)})
    added = np.bincount(track, minlength=count + len(pairs))[count:]
    warps.records[count:], warps.written[count:] = added, added
    columns = {name: getattr(trace, name)[order] for name in ("region", "start_ticks", "dur_cycles", "bits")}
    made = replace(trace, track=track[order].astype(np.int32), warps=warps, **columns)
    return made, np.concatenate([np.full(count, NO_TRACK, np.int64), pairs % width]), rows


def _rows(trace: TraceData) -> tuple[Int64, Int64]:
    """(n,) the new row of each record; and of each added row warp * tracks + track, ascending."""
    of_region = trace.region_tracks().astype(np.int64)
    own = of_region[trace.region] if (of_region != NO_TRACK).any() else np.zeros(0, np.int64)
    moved = np.flatnonzero(own != NO_TRACK)
    pairs, which = np.unique(trace.track[moved] * np.int64(len(trace.user_tracks)) + own[moved], return_inverse=True)
    track = trace.track.astype(np.int64)
    track[moved] = len(trace.warps) + which.ravel()
    return track, pairs
