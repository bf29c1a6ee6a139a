"""Sums over the rows of warp_regions() that are one row of a summary: part by part, then over the parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..tracedata.data import TraceData
from ..util.parallel import chunks, map_ahead
from ..util.runs import group_equal, summed
from .warp_regions import WarpRegions, under_tick

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


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
    began = np.full(len(trace.launches), np.inf)
    np.minimum.at(began, warps.launch, warps.start_ns)
    short = under_tick(trace, found)
    row, total = np.empty(len(found), np.int64), np.empty(len(found))

    def work(part: slice) -> tuple[Int64, list[Float], Float, Float]:
        """The codes in a part, and their sums, first and last starts."""
        track = found.track[part]
        pace, tick = warps.tick_ns[track], warps.first_tick[track]
        code = group[track] * names + found.name[part]
        member, _, of = group_equal(code)
        row[part] = of
        total[part] = found.total[part] * pace
        columns = (
            found.count[part], found.unknown[part], short[part],
            total[part], found.own[part] * pace, found.idle[part] * pace,
        )  # fmt: skip
        sums = [summed(of, column, len(member)) for column in columns]
        first, last = np.full(len(member), np.inf), np.full(len(member), -np.inf)
        used = np.flatnonzero(found.count[part])
        of, track, pace, tick = of[used], track[used], pace[used], tick[used]
        ahead = warps.start_ns[track] - began[warps.launch[track]]
        np.minimum.at(first, of, ahead + (found.first[part][used] - tick) * pace)
        np.maximum.at(last, of, ahead + (found.last[part][used] - tick) * pace)
        return code[member], sums, first, last

    parts = chunks(len(found))
    each = list(map_ahead(work, parts))
    codes = np.concatenate([np.zeros(0, np.int64), *(code for code, *_ in each)])
    member, _, of = group_equal(codes)
    rows, at = len(member), 0
    for part, (code, *_) in zip(parts, each, strict=True):
        row[part] = of[at : at + len(code)][row[part]]
        at += len(code)
    sums = [summed(of, np.concatenate(column), rows) for column in zip(*(one for _, one, *_ in each), strict=True)]
    first, last = np.full(rows, np.inf), np.full(rows, -np.inf)
    if each:
        np.minimum.at(first, of, np.concatenate([one for *_, one, _ in each]))
        np.maximum.at(last, of, np.concatenate([one for *_, one in each]))
    count, unknown, under, total_ns, own, idle = sums or [np.zeros(0)] * 6
    return RowSums(
        codes[member], row, total, count.astype(np.int64), unknown.astype(np.int64), under.astype(np.int64),
        total_ns, own, idle, first, last,
    )  # fmt: skip
