"""Sums over the rows of warp_regions() that form one row of a summary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tracedata.data import TraceData
from ..util.arrays import Float, Int64
from ..util.reduction import Rows, reduced
from ..util.runs import least_of
from .warp_regions import WarpRegions, under_tick


@dataclass(frozen=True, eq=False)
class RowSums:
    """Rows (r,) of a summary, of the rows (c,) of warp_regions(). Times in ns.

    Attributes:
        code: group * names + name of each row, ascending.
        row: (c,) index of each one's row.
        total: (c,) durations of each.
        count, unknown, under: spans with a known and with an unknown duration, and those shorter than a tick.
        total_ns, own_ns, idle_ns: sums.
        first, last: first and last start after the start of the span's launch; inf and -inf without one.
    """

    code: Int64
    row: Int64
    total: Float
    count: Int64
    unknown: Int64
    under: Int64
    total_ns: Float
    own_ns: Float
    idle_ns: Float
    first: Float
    last: Float


def row_sums(trace: TraceData, found: WarpRegions, group: Int64) -> RowSums:
    """The sums of the rows of `found`. group: (w,) the group of each warp."""
    warps, names = trace.warps, max(1, len(found.names))
    began = least_of(warps.launch, warps.start_ns, len(trace.launches), np.inf)
    short, total = under_tick(trace, found), np.empty(len(found))

    def rows(part: slice) -> Rows:
        track, count = found.track[part], found.count[part]
        pace, tick = warps.tick_ns[track], warps.first_tick[track]
        total[part] = found.total[part] * pace
        sums = count, found.unknown[part], short[part], total[part], found.own[part] * pace, found.idle[part] * pace
        ahead = warps.start_ns[track] - began[warps.launch[track]]
        first, last = (ahead + (ticks[part] - tick) * pace for ticks in (found.first, found.last))
        if not count.all():  # such rows have no start
            first, last = np.where(count > 0, first, np.inf), np.where(count > 0, last, -np.inf)
        return Rows(group[track] * names + found.name[part], sums, [first], [last])

    all_rows = reduced(len(found), rows)
    count, unknown, under, total_ns, own, idle = all_rows.sums
    return RowSums(
        all_rows.code, all_rows.of, total, count.astype(np.int64), unknown.astype(np.int64), under.astype(np.int64),
        total_ns, own, idle, all_rows.least[0], all_rows.most[0],
    )  # fmt: skip
