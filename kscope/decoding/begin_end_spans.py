"""Spans from begin() to end(): pairs of instants on reserved tracks become spans."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..capture.layout import Kind
from ..capture.model import Problem
from ..marks.names import BEGIN_TRACK, END_TRACK
from ..marks.wide_values import LEAST_WIDE
from ..tracedata.data import TraceData
from ..tracedata.region import Region
from ..util.arrays import Int64
from ..util.text import counted


def with_flights(trace: TraceData) -> TraceData:
    """The trace with spans in place of the instants of begin() and end().

    A span belongs to the warp that began it, and may end in another warp of its block: both read the clock of one SM.
    Of several that are open with one name and key, the oldest ends first. A begin without an end, and an end without a
    begin, stay instants, and are problems.
    """
    reserved = np.array([one.track in (BEGIN_TRACK, END_TRACK) for one in trace.regions], bool)
    at = np.flatnonzero(reserved[trace.region]) if reserved.any() else np.zeros(0, np.int64)
    if not len(at):
        return trace
    begun, ended = _pairs(trace, at[~_lost_key(trace, at)])
    single = np.setdiff1d(at, np.concatenate([begun, ended]))
    took = trace.dur_cycles.copy()
    took[begun] = trace.start_ticks[ended] - trace.start_ticks[begun]
    region = trace.region.astype(np.int64)
    regions, types, renamed = list(trace.regions), [trace.types], region.copy()
    for one in np.flatnonzero(reserved).tolist():
        spans, points = begun[region[begun] == one], single[region[single] == one]
        for mine, made in ((spans, _span(trace.regions[one])), (points, _open(trace.regions[one]))):
            if len(mine):
                renamed[mine] = len(regions)
                regions.append(made)
                types.append(trace.types[:, one : one + 1])
    unused = np.append(reserved, np.zeros(len(regions) - len(reserved), bool))
    place = np.cumsum(~unused) - 1
    kept = np.ones(len(trace), bool)
    kept[ended] = False
    order = np.flatnonzero(kept)
    order = order[np.lexsort(((trace.start_ticks + np.maximum(took, 0))[order], trace.track[order]))]
    warps = trace.warps
    gone = np.bincount(trace.track[ended], minlength=len(warps))
    columns: dict[str, Any] = {name: getattr(trace, name)[order] for name in ("track", "start_ticks", "bits")}
    return replace(
        trace,
        **columns,
        region=place[renamed[order]].astype(np.uint16),
        dur_cycles=took[order],
        regions=tuple(one for one, is_unused in zip(regions, unused, strict=True) if not is_unused),
        types=np.concatenate(types, axis=1)[:, ~unused],
        warps=replace(warps, records=warps.records - gone, written=warps.written - gone),
        problems=(*trace.problems, *_problems(trace, single)),
    )


def _lost_key(trace: TraceData, at: Int64) -> npt.NDArray[np.bool_]:
    """True for records that have lost half of their key, see wide_values.py."""
    bare = np.array([one.kind == Kind.INSTANT for one in trace.regions])[trace.region[at]]
    return np.asarray(bare & (trace.types[trace.warps.kernel[trace.track[at]], trace.region[at]] >= LEAST_WIDE))


def _pairs(trace: TraceData, at: Int64) -> tuple[Int64, Int64]:
    """(begins, ends) that pair, as indices of records. at: the records of both kinds."""
    warps, rows = trace.warps, trace.track[at]
    place = warps.block_key[rows]
    ends = np.array([one.track == END_TRACK for one in trace.regions])[trace.region[at]]
    names = [trace.regions[one].name for one in trace.region[at].tolist()]
    order = np.lexsort((ends, trace.start_ticks[at]))
    opened: dict[tuple[int, str, int], deque[int]] = defaultdict(deque)
    begun, ended = list[int](), list[int]()
    bits = trace.bits if trace.integers is None else np.where(trace.integers.known, trace.integers.bits, trace.bits)
    keys = list(zip(place.tolist(), names, bits[at].tolist(), strict=True))
    for index in order.tolist():
        waiting = opened[keys[index]]
        if not ends[index]:
            waiting.append(int(at[index]))
        elif waiting:
            begun.append(waiting.popleft())
            ended.append(int(at[index]))
    return np.array(begun, np.int64), np.array(ended, np.int64)


def _span(region: Region) -> Region:
    kind = Kind.SPAN_VALUE if region.kind == Kind.INSTANT_VALUE else Kind.SPAN
    return replace(region, kind=kind, track=region.name, flight=True)


def _open(region: Region) -> Region:
    """The region of one end without the other."""
    what = "ended, not begun" if region.track == END_TRACK else "not ended"
    return replace(region, name=f"{region.name} ({what})", track=region.name)


def _problems(trace: TraceData, single: Int64) -> list[Problem]:
    found = []
    for one in np.unique(trace.region[single]).tolist():
        region, count = trace.regions[one], int(np.count_nonzero(trace.region[single] == one))
        what = "end without a begin" if region.track == END_TRACK else "begin without an end"
        text = f"{counted(count, 'span')} {region.name!r}: {what} in its block, with the same key"
        found.append(Problem("unpaired", text, count, region=region.name))
    return found
