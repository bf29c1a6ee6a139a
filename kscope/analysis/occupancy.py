"""Occupancy: warps and blocks alive per SM over time, waves of blocks, and the tail. Only recorded warps count; waves
and the tail of a launch are known only if all of its blocks recorded and are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.info import Info, info
from ..tracedata.nesting import parents, track_aligned
from ..util.arrays import Float, Int64
from ..util.grouping import grouped
from ..util.runs import added, count_distinct, extents, heads, most_of, order_by
from .display import Shown
from .segments import span_names
from .warp_stats import warp_ends

Sm = tuple[int, int]
_NAN = float("nan")
_DUST = 1e-9
"""Rounding error of an empty bin."""


_UNKNOWN = "the other blocks' SMs and times are unknown, so waves, ramp and tail are not given"
_LEAST = "an SM's use is a lower bound"


@dataclass(frozen=True, eq=False)
class Overview:
    """SM by time, in b bins and s SMs.

    Attributes:
        edges_ns: (b + 1,) ns after the trace's origin.
        sms: (s,) pairs (device, SM), ascending.
        alive, blocks: (s, b) float64, recording warps and blocks alive, averaged over the bin.
        busy: (s, b), share of these warps' time in a region, 0 to 1; 0 if none was alive.
    """

    edges_ns: Float
    sms: tuple[Sm, ...]
    alive: Float
    blocks: Float
    busy: Float


@dataclass(frozen=True)
class SmUse:
    """One SM.

    Attributes:
        device, sm: its numbers.
        launches, blocks, warps: launches, blocks and warps that it ran.
        first_ns, last_ns: first start and last end.
        alive_ns, busy_ns: total lifetime of its warps; the part in regions.
        used: share of the time with a launch on the device in which a warp was alive on it.
        mean_warps: warps alive, averaged over that time.
    """

    device: int
    sm: int
    launches: int
    blocks: int
    warps: int
    first_ns: float
    last_ns: float
    alive_ns: float
    busy_ns: float
    used: float
    mean_warps: float


@dataclass(frozen=True)
class Waves:
    """One launch.

    Attributes:
        launch, kernel, hash: index into Trace.launches; the kernel's name and hash.
        start_ns, time_ns: start and duration.
        blocks, sms: recorded blocks and SMs.
        grid_blocks: blocks of its grid. If more than `blocks`, time_ns and resident are lower bounds, and the rest is
            unknown.
        resident: most concurrent blocks on an SM.
        waves: rounds of blocks on the fullest SM; None if unknown.
        ramp_ns: until the last SM had its first block; NaN if unknown.
        tail_ns: from the first SM without work to the end; NaN if unknown.
        tail_idle: share of all SMs' time lost in the tail; NaN if unknown.
    """

    launch: int
    kernel: str
    hash: str
    start_ns: float
    time_ns: float
    blocks: int
    grid_blocks: int
    sms: int
    resident: int
    waves: int | None
    ramp_ns: float
    tail_ns: float
    tail_idle: float


@dataclass(frozen=True, eq=False, repr=False)
class Occupancy(Shown):
    """Waves of blocks, and use of SMs.

    Attributes:
        launches: waves of blocks by launch.
        sms: use of each SM.
        over_time: SM x time.
        recorded: how the trace was recorded.
        limits: limits of the analysis, in words, because only some blocks or warps recorded.
    """

    launches: tuple[Waves, ...]
    sms: tuple[SmUse, ...]
    over_time: Overview
    recorded: Info
    limits: tuple[str, ...]


def occupancy(trace: TraceData, bins: int = 40) -> Occupancy:
    """Waves of blocks, use of each SM, and warps alive over time in `bins` bins."""
    launches, recorded = waves(trace), info(trace)
    limits: tuple[str, ...] = ()
    if any(row.blocks < row.grid_blocks for row in launches):
        some = "some blocks selected" if trace.filtered else recorded.blocks_text
        limits = (f"{some}: {_UNKNOWN}, and {_LEAST}",)
    elif "warp" in recorded.subset:
        limits = (f"only warp {recorded.subset['warp']} of each block recorded: {_LEAST}",)
    return Occupancy(launches, utilization(trace), overview(trace, bins), recorded, limits)


def overview(trace: TraceData, bins: int = 512, first: float | None = None, last: float | None = None) -> Overview:
    """Warps and blocks per SM over time.

    Args:
        trace: the trace.
        bins: number of bins.
        first, last: ns after the trace's origin; by default the whole trace.

    Raises:
        UsageError: bins < 1, or an empty range.
    """
    if bins < 1:
        raise UsageError(f"overview(bins={bins}): expected 1 or more")
    warps, ends, rows = trace.warps, warp_ends(trace), trace.shown_warps
    begin = float(warps.start_ns[rows].min()) if first is None and len(rows) else float(first or 0.0)
    end = float(ends[rows].max()) if last is None and len(rows) else float(last if last is not None else begin + 1)
    end = max(end, begin + 1.0) if last is None else end
    if not begin < end:
        raise UsageError(f"overview(first={begin:g}, last={end:g}): expected a time after the first")
    sms, row = _sm_rows(trace)
    grid = _Grid(begin, (end - begin) / bins, bins, len(sms))
    alive = grid.filled(row[rows], warps.start_ns[rows], ends[rows])
    block_row, block_start, block_end = _block_lives(trace, rows, ends, row)
    blocks = grid.filled(block_row, block_start, block_end)
    busy = np.zeros_like(alive)
    for track, start, finish in _roots(trace):
        busy += grid.filled(row[track], start, finish)
    with np.errstate(all="ignore"):
        busy = np.where(alive > 0, np.clip(busy / alive, 0, 1), 0.0)
    return Overview(np.asarray(begin + grid.width * np.arange(bins + 1), np.float64), sms, alive, blocks, busy)


def utilization(trace: TraceData) -> tuple[SmUse, ...]:
    """Every SM that recorded, by device and number."""
    warps, ends, rows = trace.warps, warp_ends(trace), trace.shown_warps
    sms, row = _sm_rows(trace)
    busy = np.zeros(len(sms))
    for track, start, finish in _roots(trace):
        busy += np.bincount(row[track], weights=finish - start, minlength=len(sms))
    window, block = _windows(trace), warps.block_key
    found = []
    for number, (device, sm) in enumerate(sms):
        mine = rows[row[rows] == number]
        start, end = warps.start_ns[mine], ends[mine]
        time = window[device]
        blocks = count_distinct(block[mine])
        alive = float((end - start).sum())
        found.append(SmUse(
            device, sm, len(np.unique(warps.launch[mine])), blocks, len(mine), float(start.min()), float(end.max()),
            alive, float(busy[number]), min(1.0, _union(start, end) / time) if time > 0 else 0.0,
            alive / time if time > 0 else 0.0,
        ))  # fmt: skip
    return tuple(found)


def waves(trace: TraceData) -> tuple[Waves, ...]:
    """Every launch with recorded warps, in order of start."""
    warps, ends, rows = trace.warps, warp_ends(trace), trace.shown_warps
    _, row = _sm_rows(trace)
    rows = rows[np.argsort(warps.launch[rows], kind="stable")]
    found = []
    for mine in np.split(rows, np.flatnonzero(np.diff(warps.launch[rows])) + 1) if len(rows) else []:
        launch = int(warps.launch[mine[0]])
        sm, start, end = _block_lives(trace, mine, ends, row)
        least, most = float(start.min()), float(end.max())
        numbers, index = np.unique(sm, return_inverse=True)
        first, last = extents(index.ravel(), len(numbers), start, end)
        resident = _most_at_once(index.ravel(), start, end)
        per_sm = np.bincount(index.ravel())
        time = most - least
        about, (x, y, z) = trace.launches[launch], trace.launches[launch].grid
        one = Waves(
            launch, about.kernel, about.hash, least, time, len(start), x * y * z, len(numbers), int(resident.max()),
            None, _NAN, _NAN, _NAN,
        )  # fmt: skip
        if one.blocks >= one.grid_blocks:
            lost = float((most - last).sum())
            one = replace(
                one, waves=int(np.ceil(per_sm / resident).max()), ramp_ns=float(first.max() - least),
                tail_ns=float(most - last.min()), tail_idle=lost / (time * len(numbers)) if time > 0 else 0.0,
            )  # fmt: skip
        found.append(one)
    return tuple(found)


@dataclass(frozen=True)
class _Grid:
    begin: float
    width: float
    bins: int
    rows: int

    def filled(self, row: Int64, start: Float, end: Float) -> Float:
        """(rows, bins): share of a bin's width that the intervals [start, end) cover, summed."""
        steps = np.zeros(self.rows * (self.bins + 1))
        for edge, sign in ((start, 1.0), (end, -1.0)):
            place = np.clip((edge - self.begin) / self.width, 0, self.bins)
            cell = np.minimum(place.astype(np.int64), self.bins - 1)
            part = place - cell  # of the bin, before the edge
            at = row * (self.bins + 1) + cell
            steps += sign * np.bincount(at, weights=1 - part, minlength=len(steps))
            steps += sign * np.bincount(at + 1, weights=part, minlength=len(steps))
        filled = np.cumsum(steps.reshape(self.rows, self.bins + 1), axis=1)[:, : self.bins]
        return np.where(filled < _DUST, 0.0, filled)


def _sm_rows(trace: TraceData) -> tuple[tuple[Sm, ...], Int64]:
    """(pairs (device, SM) of the shown warps, index into them of each row of Trace.warps; 0 if not shown)."""
    warps, rows = trace.warps, trace.shown_warps
    device = np.array(trace.devices, np.int64)[warps.device] if len(warps) else warps.device
    code = device << 16 | warps.sm
    sms = np.unique(code[rows])
    index = np.searchsorted(sms, code)
    index[index == len(sms)] = 0
    return tuple((code >> 16, code & 0xFFFF) for code in sms.tolist()), index


def _block_lives(trace: TraceData, rows: Int64, ends: Float, row: Int64) -> tuple[Int64, Float, Float]:
    """(SM row, first start, last end) of every block of every launch among the rows `rows`."""
    warps = trace.warps
    order = rows[order_by(warps.launch[rows], warps.block[rows])]
    edges = heads(warps.block[order], warps.launch[order])
    start, end = np.minimum.reduceat(warps.start_ns[order], edges), np.maximum.reduceat(ends[order], edges)
    return row[order[edges]], start, end


def _roots(trace: TraceData) -> list[tuple[Int64, Float, Float]]:
    """(track, start, end) in ns of top-level spans, part by part; crossing spans are cut."""
    trace = trace.even
    warps, (_, code) = trace.warps, span_names(trace)
    found = []
    for part in track_aligned(trace.track, 1 << 17):
        keep = (trace.dur_cycles[part] > 0) & (code >= 0)[trace.region[part]]
        track, start = trace.track[part][keep], trace.start_ticks[part][keep]
        end = start + trace.dur_cycles[part][keep]
        root = np.flatnonzero(parents(start, end, track) < 0)
        row, start, end = track[root].astype(np.int64), start[root], end[root]
        crossing = np.flatnonzero((row[1:] == row[:-1]) & (start[1:] < end[:-1])) + 1
        start[crossing] = np.minimum(end[crossing - 1], end[crossing])
        pace, tick, begin = warps.tick_ns[row], warps.first_tick[row], warps.start_ns[row]
        found.append((row, begin + (start - tick) * pace, begin + (end - tick) * pace))
    return found


def _most_at_once(group: Int64, start: Float, end: Float) -> Int64:
    """(groups,) most overlapping intervals [start, end), at least 1."""
    time, step = np.concatenate([start, end]), np.repeat([1, -1], len(start))
    of = np.concatenate([group, group])
    order = np.lexsort((step, time, of))
    running = np.cumsum(step[order])  # every group sums up to 0
    return most_of(of[order], running, int(group.max()) + 1, 1)


def _windows(trace: TraceData) -> dict[int, float]:
    """By device, the time with a launch on it; overlapping launches count once."""
    found = grouped((trace.launches[one.launch].device, one) for one in waves(trace))
    return {
        device: _union(np.array([one.start_ns for one in mine]), np.array([one.start_ns + one.time_ns for one in mine]))
        for device, mine in found.items()
    }


def _union(start: Float, end: Float) -> float:
    """Length of the union of intervals."""
    order = np.argsort(start)
    return float(added(start[order], end[order]).sum())
