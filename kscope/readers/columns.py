"""Assembles a reader's columns into a Trace: warps numbered, records in order of end, regions named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from ..capture.counted_problems import note
from ..capture.layout import Kind
from ..capture.model import Problem
from ..trace import Trace, as_read
from ..tracedata.data import UNKNOWN, Launch, TraceData
from ..tracedata.recording_facts import Recorded
from ..tracedata.region import MOST_REGIONS, Region
from ..tracedata.warps import Warps
from ..util.arrays import Int64

P = ParamSpec("P")

LAST_TIME = 1 << 61
"""Times from here on are damaged: 73 years in ns."""
MOST_GROUPS = 1024
"""The most groups of a block: 32 warps of 32 lanes."""
MOST_BLOCKS = 1 << 48


@dataclass(eq=False)
class Notes:
    """Collects problems; those with a count of 0 are not reported."""

    found: list[Problem] = field(default_factory=list)

    def count(self, kind: str, count: int | np.integer[Any], noun: str, why: str) -> None:
        """`3 records: why`, if count > 0."""
        note(self.found, kind, count, noun, f": {why}")

    def add(self, kind: str, text: str) -> None:
        """A problem without a count."""
        self.found.append(Problem(kind, text))


@dataclass(frozen=True, eq=False)
class Records:
    """Records (n,).

    Attributes:
        warp_row: index into WarpRows.
        start, duration: int64 ticks; UNKNOWN without an end.
        event: the other profiler's id.
        kind: layout.Kind.
        bits: uint32, the user's value.
    """

    warp_row: Int64
    start: Int64
    duration: Int64
    event: Int64
    kind: npt.NDArray[np.uint8]
    bits: npt.NDArray[np.uint32] | None = None


@dataclass(frozen=True, eq=False)
class WarpRows:
    """The recording warps (l,).

    Attributes:
        block, group, sm, launch: int64.
        last: tick of the warp's end, UNKNOWN without one.
        start_ns, end_ns: float64 after the trace's origin; NaN if unknown: the warp then lives from its first record to
            its last.
        tick_ns: ns per tick.
    """

    block: Int64
    group: Int64
    sm: Int64
    launch: Int64
    last: Int64 | None = None
    start_ns: npt.NDArray[np.float64] | None = None
    end_ns: npt.NDArray[np.float64] | None = None
    tick_ns: npt.NDArray[np.float64] | None = None


def recorded_by(profiler: str) -> Callable[[Callable[P, Trace]], Callable[P, Trace]]:
    """Decorator of a reader: its traces name the profiler of the data."""

    def decorated(read: Callable[P, Trace]) -> Callable[P, Trace]:
        @wraps(read)
        def reader(*args: P.args, **kwargs: P.kwargs) -> Trace:
            return replace(read(*args, **kwargs), recorded=Recorded(profiler, "foreign"))

        return reader

    return decorated


def trace(
    records: Records, warps: WarpRows, names: Mapping[int, str], notes: Notes, launches: Sequence[Launch], *,
    cycles: bool = False, noun: str = "event", origin: int | None = None,
) -> Trace:  # fmt: skip
    """The trace of a reader's data.

    Args:
        records, warps: the data.
        names: region names by id.
        notes: the problems so far.
        launches: the launches that the warps refer to.
        cycles: True if ticks are SM cycles, else they are ns of %globaltimer.
        noun: the other profiler's word for an id.
        origin: ns subtracted from times; None for the first tick.
    """
    fits = (warps.group >= 0) & (warps.group < MOST_GROUPS) & (warps.block >= 0) & (warps.block < MOST_BLOCKS)
    placed = fits[records.warp_row]
    notes.count("garbled", np.count_nonzero(~placed), "record", "of a block or group beyond the launch, left out")
    seen = np.zeros(len(fits), bool)
    seen[records.warp_row[placed]] = True
    ran = np.full(len(fits), UNKNOWN) if warps.last is None else warps.last
    seen |= fits & (ran != UNKNOWN)
    row = np.cumsum(seen) - 1
    end = records.start + np.maximum(records.duration, 0)
    at = np.flatnonzero(placed)
    at = at[np.lexsort((-records.start[at], end[at], row[records.warp_row[at]]))]
    track = row[records.warp_row[at]].astype(np.int32)
    region, regions = _regions(records, at, names, notes, noun)
    start, duration = records.start[at], records.duration[at]
    selected = np.flatnonzero(seen)
    unpaired = duration == UNKNOWN
    first_tick, last_tick = _extent(track, start, end[at], ran[selected])
    base = int(first_tick.min(initial=LAST_TIME)) if origin is None and len(selected) else 0
    tick = np.ones(len(selected)) if warps.tick_ns is None else warps.tick_ns[selected]
    begins = (first_tick - base).astype(np.float64)
    if warps.start_ns is not None:
        begins = np.where(np.isfinite(warps.start_ns[selected]), warps.start_ns[selected], begins)
    ends = begins + (last_tick - first_tick) * tick
    if warps.end_ns is not None:
        known = warps.end_ns[selected]
        ends = np.where(np.isfinite(known) & (known >= ends), known, ends)
    counts = np.bincount(track, minlength=len(selected)).astype(np.int64)
    open_lane = np.zeros(len(selected), bool)
    open_lane[track[unpaired]] = True
    blocks = _blocks(launches, warps, selected)
    zeros = np.zeros(len(selected), np.int64)
    kernels = tuple(dict.fromkeys(launch.kernel for launch in launches))
    index = {kernel: number for number, kernel in enumerate(kernels)}
    kernel_of = np.array([index[launch.kernel] for launch in launches], np.int64)
    groups = int(warps.group[selected].max(initial=0)) + 1
    tick_seen = 0 if cycles else _tick(start, end[at])
    return as_read(TraceData(
        region=region,
        track=track,
        start_ticks=start,
        dur_cycles=duration,
        bits=np.zeros(len(at), np.uint32) if records.bits is None else records.bits[at],
        warps=Warps(
            device=zeros, kernel=kernel_of[warps.launch[selected]], launch=warps.launch[selected],
            block=warps.block[selected], block_xyz=np.stack([warps.block[selected], zeros, zeros], axis=1),
            grid=blocks, threads=np.stack([zeros + min(1024, 32 * groups), zeros + 1, zeros + 1], axis=1),
            warp=(warps.group[selected] % 32).astype(np.uint8), lane=(warps.group[selected] // 32).astype(np.uint8),
            sm=np.clip(warps.sm[selected], 0, 0xFFFF).astype(np.uint16),
            cluster=zeros - 1, cluster_rank=zeros.astype(np.uint8), role=np.full(len(selected), -1, np.int16),
            start_ns=begins, end_ns=np.where(open_lane, np.nan, ends),
            finished=~open_lane, first_tick=first_tick, last_tick=last_tick, tick_ns=tick,
            curve=np.full(len(selected), -1, np.int32),
            error_ns=np.full(len(selected), float(tick_seen)),
            ends_error_ns=np.full(len(selected), float(tick_seen)),
            timer=np.full(len(selected), not cycles), records=counts, written=counts.copy(), start_width=zeros,
            end_width=zeros,
        ),
        regions=regions,
        types=np.ones((max(1, len(kernels)), len(regions)), np.uint8),
        kernels=kernels,
        launches=tuple(launches),
        devices=(launches[0].device if launches else 0,),
        origin=base if origin is None else origin,
        tick_ns=tick_seen,
        problems=tuple(notes.found),
    ), "the kernel did not run, or was built without its profiler")  # fmt: skip


def _regions(
    records: Records, at: Int64, names: Mapping[int, str], notes: Notes, noun: str
) -> tuple[npt.NDArray[np.uint16], tuple[Region, ...]]:
    """The region of each record, by id and kind; region 0 takes ids beyond the limit."""
    first, region = distinct(records.event[at], records.kind[at].astype(np.int64))
    region = region + 1
    noise = region >= MOST_REGIONS
    notes.count("garbled", np.count_nonzero(noise), "record", f"of more {noun}s than the limit, shown as ?")
    regions = [Region("?", Kind.INSTANT, known=False)]
    strange = np.zeros(len(first) + 1, bool)
    shown = at[first[: MOST_REGIONS - 1]]
    pairs = zip(records.event[shown].tolist(), records.kind[shown].tolist(), strict=True)
    for index, (event, kind) in enumerate(pairs, 1):
        strange[index] = bool(names) and event not in names
        regions.append(Region(names.get(event, f"{noun} {event}"), Kind(kind), known=not strange[index]))
    notes.count(
        "unknown", np.count_nonzero(strange[region] & ~noise), "record", f"of {noun}s that are missing in names="
    )
    return np.where(noise, 0, region).astype(np.uint16), tuple(regions)


def distinct(*columns: Int64) -> tuple[Int64, Int64]:
    """(index of a first row, group of each row) of distinct rows, in order of their values."""
    count = len(columns[0])
    code, width = np.zeros(count, np.int64), 1
    for column in columns if count else ():
        least, span = int(column.min()), int(column.max()) - int(column.min()) + 1
        if width * span >= 1 << 62:
            codes = (np.unique(code, return_inverse=True)[1], np.unique(column, return_inverse=True)[1])
            code, column = (one.reshape(-1).astype(np.int64) for one in codes)
            least, width, span = 0, int(code.max()) + 1, int(column.max()) + 1
        code, width = code * span + (column - least), width * span
    if width > 4 * count + (1 << 16):
        _, first, group = np.unique(code, return_index=True, return_inverse=True)
        return first, group.reshape(-1).astype(np.int64)
    first = np.full(width, -1, np.int64)
    first[code[::-1]] = np.arange(count - 1, -1, -1)
    there = first >= 0
    return first[there], (np.cumsum(there) - 1)[code]


def _extent(track: npt.NDArray[np.int32], start: Int64, end: Int64, ran: Int64) -> tuple[Int64, Int64]:
    """First start and last end of each warp; a warp that ran at `ran` includes that time."""
    first, last = np.where(ran == UNKNOWN, LAST_TIME, ran), ran.copy()
    np.minimum.at(first, track, start)
    np.maximum.at(last, track, end)
    return first, np.maximum(last, first)


def _blocks(launches: Sequence[Launch], warps: WarpRows, selected: Int64) -> Int64:
    if not len(selected):
        return np.zeros((0, 3), np.int64)
    return np.array([launch.grid for launch in launches], np.int64).reshape(-1, 3)[warps.launch[selected]]


def _tick(start: Int64, end: Int64) -> int:
    """The timer's step, estimated from the times."""
    if len(start) < 8:  # chance may give a few times a common divisor
        return 1
    return int(np.clip(np.gcd(np.gcd.reduce(start - start[0]), np.gcd.reduce(end - start[0])), 1, 1 << 20))
