"""Where the time went: one row per kernel and region.

    count       spans with a known duration
    total       their sum; share = total / the lifetimes of all recording lanes of the kernel
    imbalance   the largest total of a lane over the mean total of the lanes that have the region

What lives here: the numbers. What does not: how they look in a terminal (table.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..capture import Problem
from ..layout import Kind
from ..trace import Trace
from ..wording import counted
from .table import render

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RegionStats:
    """Times in ns; share from 0 to 1 (NaN without lifetimes). unknown: spans whose duration 32-bit clocks
    cannot tell. under_tick: spans shorter than the clock's tick (clock="globaltimer" only)."""

    kernel: str
    region: str
    count: int
    total_ns: float
    share: float
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    min_ns: float
    max_ns: float
    imbalance: float
    unknown: int = 0
    under_tick: int = 0


@dataclass(frozen=True)
class PointStats:
    """Instants and counters: how many, and the numbers that came with them (NaN without)."""

    kernel: str
    name: str
    kind: str
    count: int
    mean: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Summary:
    """`regions` by kernel, longest total first; `points`; `problems` and `notes` in words. str() is a table."""

    regions: tuple[RegionStats, ...]
    points: tuple[PointStats, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dict per region, with the fields of RegionStats."""
        return [asdict(row) for row in self.regions]

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The table for a terminal of `width` columns, this one's by default: what does not fit is left out."""
        return render(self, width)


def summarise(trace: Trace) -> Summary:
    """The summary of a trace. 10 million records take about a second."""
    names = sorted({region.name for region in trace.regions})
    index = {name: number for number, name in enumerate(names)}
    small = len(names) * max(1, len(trace.kernels)) < 1 << 16
    width = np.uint16 if small else np.int64  # a stable sort of 16 bits is a radix sort
    of_region = np.array([index[region.name] for region in trace.regions], width)
    span_kind = np.array([region.kind in (Kind.SPAN, Kind.SPAN_VALUE) for region in trace.regions])
    key = of_region[trace.region]
    if len(trace.kernels) > 1:
        key += (trace.warps.kernel * len(names)).astype(width)[trace.track]
    is_span = span_kind[trace.region]
    known = is_span & (trace.dur_cycles >= 0)
    lifetime = _lifetimes(trace)
    found = [
        _region(trace, trace.kernels[group // len(names)], names[group % len(names)], at, lifetime[group // len(names)])
        for group, at in _groups(key, np.flatnonzero(is_span))
    ]
    points = [
        _point(trace, trace.kernels[group // len(names)], names[group % len(names)], at)
        for group, at in _groups(key, np.flatnonzero(~is_span))
    ]
    found.sort(key=lambda row: (row.kernel, -row.total_ns, row.region))
    return Summary(tuple(found), tuple(points), trace.problems, _notes(trace, known))


def _groups(key: npt.NDArray[np.integer[Any]], at: Int64) -> list[tuple[int, Int64]]:
    """[(key, ascending indices)] of the records `at`, by key."""
    if not len(at):
        return []
    at = at[np.argsort(key[at], kind="stable")]
    keys = key[at]
    return [(int(key[part[0]]), part) for part in np.split(at, np.flatnonzero(keys[1:] != keys[:-1]) + 1)]


def _lifetimes(trace: Trace) -> npt.NDArray[np.float64]:
    """Sum of the lifetimes of the lanes of each kernel, ns; those that did not finish count to their last record."""
    warps = trace.warps
    last = warps.start_ns.copy()
    if len(trace):
        final = np.flatnonzero(np.append(trace.track[1:] != trace.track[:-1], True))  # of a lane: it ends last
        track = trace.track[final]
        ticks = trace.start_ticks[final] + np.maximum(trace.dur_cycles[final], 0) - warps.first_tick[track]
        last[track] += ticks * warps.tick_ns[track]
    life = np.where(warps.finished, warps.end_ns, last) - warps.start_ns
    if trace.filtered:  # a filtered trace speaks of the lanes that it still has
        life *= np.bincount(trace.track, minlength=len(warps)) > 0
    return np.bincount(warps.kernel, weights=life, minlength=len(trace.kernels)).astype(np.float64)


def _region(trace: Trace, kernel: str, name: str, at: Int64, lifetime: float) -> RegionStats:
    ns = trace.dur_ns[at]
    unknown = np.isnan(ns)
    at, ns = at[~unknown], ns[~unknown]
    count = len(ns)
    if not count:
        return RegionStats(kernel, name, 0, 0.0, 0.0, *(float("nan"),) * 7, unknown=int(unknown.sum()))
    total = float(ns.sum())
    track = trace.track[at]
    per_lane = np.bincount(track, weights=ns, minlength=len(trace.warps))
    lanes = len(np.flatnonzero(np.bincount(track, minlength=len(trace.warps))))
    p50, p90, p99 = np.percentile(ns, (50, 90, 99)).tolist()
    return RegionStats(
        kernel, name, count, total,
        share=total / lifetime if lifetime > 0 else float("nan"),
        mean_ns=total / count, p50_ns=p50, p90_ns=p90, p99_ns=p99,
        min_ns=float(ns.min()), max_ns=float(ns.max()),
        imbalance=float(per_lane.max() * lanes / total) if total > 0 else 1.0,
        unknown=int(unknown.sum()),
        under_tick=int(np.count_nonzero(trace.warps.timer[track] & (ns < trace.tick_ns))),
    )  # fmt: skip


def _point(trace: Trace, kernel: str, name: str, at: Int64) -> PointStats:
    kind = "counter" if trace.kind[at[0]] == Kind.COUNTER else "instant"
    value = trace.value[at]
    value = value[~np.isnan(value)]
    if not len(value):
        return PointStats(kernel, name, kind, len(at), *(float("nan"),) * 3)
    return PointStats(kernel, name, kind, len(at), float(value.mean()), float(value.min()), float(value.max()))


def _notes(trace: Trace, known: npt.NDArray[np.bool_]) -> tuple[str, ...]:
    warps = trace.warps
    notes = []
    if len(warps):
        lanes, launches = counted(len(warps), "lane"), counted(len(trace.launches), "launch")
        notes.append(f"{counted(len(trace), 'record')} of {lanes} in {launches}")
        timer = bool(warps.timer.any())
        axis = f"globaltimer ticks every {trace.tick_ns} ns; SMs are aligned within {warps.error_ns.max():.0f} ns"
        notes.append(
            axis + ("; durations are multiples of the tick" if timer else "; durations are in SM cycles, exact")
        )
    under = int(np.count_nonzero(known & warps.timer[trace.track] & (trace.dur_cycles < trace.tick_ns)))
    if under:
        notes.append(f"{counted(under, 'span')} shorter than a tick: not told apart from 0 ns")
    return tuple(notes)
