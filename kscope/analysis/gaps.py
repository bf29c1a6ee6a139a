"""Gaps: time of warps in no region, between which regions, and the regions of the block's other warps meanwhile. A gap
of a region (``of="mainloop"``) is the region's time without the regions nested inside.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names
from ..util.arrays import Float, Int64
from ..util.runs import group_equal, most_of
from ..util.text import nearest, some
from .overlap import NO_REGION
from .segments import NONE, Cutter, Segments

BEGIN, END = "(begin)", "(end)"
_EDGE = NONE - 1
"""The neighbor of a gap at the start or end of its warp or region."""
_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class Gap:
    """A gap of one warp.

    Attributes:
        kernel, launch, warp, sm: place of the gap; warp is its label.
        after, before: the regions around it, or BEGIN and END of the warp or of the enclosing region.
        start_ns, ns: ns after the trace's origin, and its length.
        beside: (region, share) of the time of the block's other warps meanwhile, longest first.
    """

    kernel: str
    launch: int
    warp: str
    sm: int
    after: str
    before: str
    start_ns: float
    ns: float
    beside: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Between:
    """All gaps of a kernel between the same two regions. share: of the total time of the kernel's gaps."""

    kernel: str
    after: str
    before: str
    count: int
    warp_time_ns: float
    max_ns: float
    share: float


def longest(trace: TraceData, top: int = 20, of: str | None = None) -> tuple[Gap, ...]:
    """The longest gaps, longest first.

    Args:
        trace: the trace.
        top: number of gaps.
        of: gaps within this region; by default, time in no region.

    Raises:
        UsageError: no span has that name.
    """
    cutter, inside = _cutter(trace, of)

    def work(rows: Int64, pieces: Segments) -> _Around:
        found = _Around.of(pieces, inside)
        return found.take(_longest(found.ns, top))

    parts = [found for found, _ in cutter.each(work, cutter.parts(cutter.recorded))]
    around = _Around.joined(parts)
    around = around.take(_longest(around.ns, top))
    warps, kernels, names = trace.warps, kernel_names(trace), _names(cutter)
    block = warps.block_key
    found = []
    columns = (around.track, around.start, around.end, around.after, around.before)
    for row, start, end, after, before in zip(*(column.tolist() for column in columns), strict=True):
        found.append(Gap(
            kernels[int(warps.kernel[row])], int(warps.launch[row]), warps.label(row), int(warps.sm[row]),
            _name(names, after, BEGIN), _name(names, before, END), start, end - start,
            _beside(cutter, block, row, start, end),
        ))  # fmt: skip
    return tuple(found)


def gaps_by_neighbors(trace: TraceData, of: str | None = None) -> tuple[Between, ...]:
    """Gaps by kernel and neighboring regions, longest total first. Arguments and errors are those of longest()."""
    cutter, inside = _cutter(trace, of)
    width = len(cutter.names) - _EDGE

    def work(rows: Int64, pieces: Segments) -> tuple[Int64, Int64, Float, Float]:
        found = _Around.of(pieces, inside)
        code = (trace.warps.kernel[found.track] * width + (found.after - _EDGE)) * width + found.before - _EDGE
        first, count, index = group_equal(code)
        most = most_of(index, found.ns, len(first), 0.0)
        total = np.bincount(index, weights=found.ns, minlength=len(first)).astype(np.float64)
        return code[first], count, total, most

    parts = [found for found, _ in cutter.each(work, cutter.parts(cutter.recorded))]
    code, count, ns, most = (np.concatenate(column) for column in zip(_NOTHING, *parts, strict=True))
    codes, index = np.unique(code, return_inverse=True)
    total, counts, longest = np.zeros(len(codes)), np.zeros(len(codes), np.int64), np.zeros(len(codes))
    np.add.at(total, index, ns)
    np.add.at(counts, index, count)
    np.maximum.at(longest, index, most)
    whole = np.bincount(codes // width**2, weights=total, minlength=len(trace.kernels))
    found, kernels, names = [], kernel_names(trace), _names(cutter)
    for number, one in enumerate(codes.tolist()):
        rest, last = divmod(one, width)
        owner, first = divmod(rest, width)
        found.append(Between(
            kernels[owner], _name(names, first + _EDGE, BEGIN), _name(names, last + _EDGE, END),
            int(counts[number]), float(total[number]), float(longest[number]),
            float(total[number] / whole[owner]) if whole[owner] else 0.0,
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda row: (row.kernel, -row.warp_time_ns)))


@dataclass(frozen=True)
class _Around:
    """Gaps (g,): row of Trace.warps, start and end in ns, and the names of the regions after and before which they are,
    or _EDGE.
    """

    track: Int64
    start: Float
    end: Float
    after: Int64
    before: Int64

    @property
    def ns(self) -> Float:
        return np.asarray(self.end - self.start)

    @staticmethod
    def of(pieces: Segments, name: int) -> _Around:
        """The gaps among the pieces: those with that name."""
        at = np.flatnonzero(pieces.name == name)
        padded = np.concatenate([[_EDGE], pieces.name, [_EDGE]])
        after = np.where(pieces.opens[at], _EDGE, padded[at])
        before = np.where(pieces.closes[at], _EDGE, padded[at + 2])
        return _Around(pieces.track[at], pieces.start[at], pieces.end[at], after, before)

    def take(self, index: Int64) -> _Around:
        """The gaps at these indices."""
        return _Around(*(getattr(self, one.name)[index] for one in fields(self)))

    @staticmethod
    def joined(parts: list[_Around]) -> _Around:
        """The gaps of several parts."""
        columns: list[Any] = [np.zeros(0, kind) for kind in (np.int64, np.float64, np.float64, np.int64, np.int64)]
        nothing = _Around(*columns)
        return _Around(
            *(np.concatenate([getattr(part, one.name) for part in (nothing, *parts)]) for one in fields(nothing))
        )


def _beside(cutter: Cutter, block: Int64, row: int, start: float, end: float) -> tuple[tuple[str, float], ...]:
    """Regions of the other warps of a warp's block from `start` to `end`, with their shares, longest first.

    block: (w,) a number for each row of Trace.warps.
    """
    mine = cutter.recorded[block[cutter.recorded] == block[row]]
    others, names = cutter.cut(mine[mine != row]), _names(cutter)
    shared = np.maximum(np.minimum(others.end, end) - np.maximum(others.start, start), 0)
    time = np.bincount(others.name - NONE, weights=shared, minlength=len(names))
    whole = float(time.sum())
    return tuple((names[at], float(time[at] / whole)) for at in np.argsort(-time).tolist() if time[at] > 0)


def _cutter(trace: TraceData, of: str | None) -> tuple[Cutter, int]:
    """(of the trace, the name of pieces that are gaps)."""
    found = Cutter(trace)
    if of is not None and of not in found.names:
        raise UsageError(f"of={of!r}: no such region; this trace has {some(found.names)}{nearest(of, found.names)}")
    return found, NONE if of is None else found.names.index(of)


def _longest(ns: Float, top: int) -> Int64:
    """Indices of the `top` longest, longest first, of equal ones the first."""
    if 0 < top < len(ns):
        least = np.partition(ns, len(ns) - top)[len(ns) - top]
        some = np.flatnonzero(ns >= least)
    else:
        some = np.arange(len(ns))
    return some[np.argsort(-ns[some], kind="stable")[:top]]


def _names(cutter: Cutter) -> list[str]:
    return [NO_REGION, *cutter.names]


def _name(names: list[str], code: int, without: str) -> str:
    return without if code == _EDGE else names[code - NONE]
