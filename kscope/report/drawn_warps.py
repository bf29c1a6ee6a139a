"""Places warps in rows of their SM.

Blocks that follow one another on an SM share rows, as they share its warp slots:

    slot 0   block 0: warp 0 ...   block 132: warp 0 ...
             block 0: warp 1 ...   block 132: warp 1 ...
    slot 1   block 66: warp 0 ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..analysis.warp_stats import warp_ends
from ..tracedata.data import TraceData
from ..util.arrays import Float, Int64
from ..util.runs import fresh, lowest_free, order_by

_FAR = float(1 << 62)


@dataclass(frozen=True, eq=False)
class DrawnWarps:
    """The drawn warps (w,), by place, row and start.

    Attributes:
        rows: rows of Trace.warps.
        place: index into `places`, pairs (index of the device, SM).
        row: within its place, from 0.
        start, end: float64 ns after `base`; an unfinished warp ends with its last clock.
        first, count: its records, a slice of the trace's columns.
        base, span: ns after the trace's origin; ns from base to the last end.
    """

    rows: Int64
    place: Int64
    row: Int64
    start: Float
    end: Float
    first: Int64
    count: Int64
    places: tuple[tuple[int, int], ...]
    base: float
    span: float

    def __len__(self) -> int:
        return len(self.rows)


def arrange(trace: TraceData) -> DrawnWarps:
    """The warps of a trace; of a filtered one, those with records."""
    warps = trace.warps
    edges = np.searchsorted(trace.track, np.arange(len(warps) + 1))
    rows = trace.shown_warps
    first, count = edges[rows], np.diff(edges)[rows]
    start = _finite(warps.start_ns[rows])
    last = start.copy()
    some = count > 0
    at = (first + count - 1)[some]
    ticks = trace.even.start_ticks[at] + np.maximum(trace.even.dur_cycles[at], 0) - warps.first_tick[rows[some]]
    last[some] += _finite(ticks * warps.tick_ns[rows[some]])
    end = np.maximum(_finite(warp_ends(trace)[rows]), np.maximum(last, start))
    base = float(start.min(initial=_FAR)) if len(rows) else 0.0
    span = max(float(end.max(initial=base)) - base, 1.0)
    device_sm = warps.device[rows] << 32 | warps.sm[rows]
    distinct, place = np.unique(device_sm, return_inverse=True)
    # A warp that did not finish may still run: its row is not reused.
    busy = np.where(warps.finished[rows], end, base + span)
    row = _rows(
        place, warps.launch[rows], warps.block[rows], warps.warp[rows] * np.int64(32) + warps.lane[rows], start, busy
    )
    order = np.lexsort((start, row, place))
    places = tuple((int(key >> 32), int(key & 0xFFFFFFFF)) for key in distinct)
    return DrawnWarps(
        rows[order], place[order], row[order], start[order] - base, end[order] - base, first[order], count[order],
        places, base, span,
    )  # fmt: skip


def _finite(ns: Float) -> Float:
    """Clip times of damaged captures to a range where arithmetic works."""
    return np.clip(np.nan_to_num(ns, nan=0.0), -_FAR, _FAR)


def _rows(
    place: Int64, launch: Int64, block: Int64, lane: npt.NDArray[np.integer[Any]], start: Float, end: Float
) -> Int64:
    """The row of each warp: a block's warps are adjacent, in rows that are free during its life."""
    if not len(place):
        return np.zeros(0, np.int64)
    order = order_by(place, launch, block, lane)
    first = fresh(place[order], launch[order], block[order])
    heads, group = np.flatnonzero(first), np.cumsum(first) - 1
    begins = np.minimum.reduceat(start[order], heads)
    ends = np.maximum.reduceat(end[order], heads)
    sizes = np.diff(heads, append=len(order))
    offset = np.zeros(len(heads), np.int64)
    by_time = np.lexsort((begins, place[order[heads]]))
    of_place = place[order[heads]][by_time]
    for part in np.split(by_time, np.flatnonzero(np.diff(of_place)) + 1):
        offset[part] = _slots(begins[part].tolist(), ends[part].tolist(), sizes[part].tolist())
    row = np.empty(len(order), np.int64)
    row[order] = offset[group] + np.arange(len(order)) - heads[group]
    return row


def _slots(begins: list[float], ends: list[float], sizes: list[int]) -> Int64:
    """First row of each block, in order of begin: the lowest free slot, else a new one."""
    numbers = lowest_free(zip(begins, ends, strict=True))
    heights = np.zeros(max(numbers) + 1, np.int64)
    np.maximum.at(heights, numbers, sizes)
    tops = np.concatenate([[0], np.cumsum(heights)])
    return np.asarray(tops[numbers])
