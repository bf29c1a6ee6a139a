"""Joins the lanes of a warp that record in turn (Elected(any_lane=True)) into one row. The first lane to get to a mark
records it, each lane in a separate slab; for a reader it is one warp, with records in order of end.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..tracedata.clock_curves import Lives
from ..tracedata.data import TraceData
from ..util.arrays import Int64
from ..util.runs import fresh, most_of, numbered, order_by, starts


def join(trace: TraceData, in_turn: npt.NDArray[np.bool_]) -> TraceData:
    """The trace with one row per warp and launch for the rows (w,) that are in turn: that of its first lane."""
    if not in_turn.any():
        return trace
    warps = trace.warps
    rows = np.arange(len(warps))
    key = np.stack([warps.launch, warps.block, warps.warp.astype(np.int64), warps.device], axis=1)[in_turn]
    _, which = np.unique(key, axis=0, return_inverse=True)
    group = len(warps) + rows
    group[in_turn] = which.ravel()
    first = _firsts(group, warps.lane)
    kept = np.flatnonzero(first == rows)
    row = numbered(kept, len(warps))[first]  # for each old row
    changed: dict[str, Any] = {one.name: getattr(warps, one.name)[kept] for one in fields(warps)}
    for name in ("records", "written"):
        changed[name] = np.bincount(row, getattr(warps, name), len(kept)).astype(np.int64)
    changed["finished"] = np.bincount(row, ~warps.finished, len(kept)) == 0
    latest = most_of(row, np.where(warps.finished, warps.end_ns, -np.inf), len(kept), -np.inf)
    changed["end_ns"] = np.where(changed["finished"], latest, np.nan)
    np.maximum.at(changed["last_tick"], row, warps.last_tick)
    lives = Lives(trace.curves, changed["curve"], changed["first_tick"], changed["last_tick"])
    changed["tick_ns"] = np.where(lives.bent, lives.pace(), changed["tick_ns"])
    track = row[trace.track]
    end = trace.start_ticks + np.maximum(trace.dur_cycles, 0)
    several = np.bincount(row, minlength=len(kept)) > 1
    order = np.lexsort((np.where(several[track], end, np.arange(len(trace))), track))
    columns = {name: getattr(trace, name)[order] for name in ("region", "start_ticks", "dur_cycles", "bits")}
    return replace(trace, track=track[order].astype(np.int32), warps=replace(warps, **changed), **columns)


def _firsts(group: Int64, lane: npt.NDArray[np.uint8]) -> Int64:
    """For each row the row of its group with the lowest lane."""
    order = order_by(group, lane)
    first = np.empty(len(group), np.int64)
    first[order] = order[starts(fresh(group[order]))]
    return first
