"""Gaps: where a warp was in no region, between which regions, and what the block's other warps did meanwhile.

A gap of a region (``of="mainloop"``) is the region's time without the regions nested inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names
from .overlap import NO_REGION
from .segments import NONE, Segments, by_lane, flatten, recorded

Int64 = npt.NDArray[np.int64]
BEGIN, END = "(begin)", "(end)"
_EDGE = NONE - 1
"""The neighbor of a gap at the start or end of its warp or region."""


@dataclass(frozen=True)
class Gap:
    """A gap of one warp.

    Attributes:
        kernel, launch, warp, sm: where it was; warp is its label.
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
    """All gaps of a kernel between the same two regions; share: of the total time of the kernel's gaps."""

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
        top: how many.
        of: gaps within this region; by default, time in no region.

    Raises:
        UsageError: no span has that name.
    """
    pieces, at, after, before = _around(trace, of)
    selected = at[np.argsort(-pieces.ns[at], kind="stable")[:top]]
    place = {piece: number for number, piece in enumerate(at.tolist())}
    warps, names = trace.warps, _names(pieces)
    block = warps.launch * (int(warps.block.max(initial=0)) + 1) + warps.block
    block_of_piece = block[pieces.track]
    order = np.argsort(block_of_piece, kind="stable")
    blocks = block_of_piece[order]
    found, kernels = [], kernel_names(trace)
    for piece in selected.tolist():
        row = int(pieces.track[piece])
        mine = order[np.searchsorted(blocks, block[row]) : np.searchsorted(blocks, block[row], "right")]
        number = place[piece]
        found.append(
            Gap(
                kernels[int(warps.kernel[row])], int(warps.launch[row]), warps.label(row), int(warps.sm[row]),
                _name(names, after[number], BEGIN), _name(names, before[number], END),
                float(pieces.start[piece]), float(pieces.ns[piece]), _beside(pieces, names, piece, mine),
            )
        )  # fmt: skip
    return tuple(found)


def between(trace: TraceData, of: str | None = None) -> tuple[Between, ...]:
    """Gaps by kernel and neighboring regions, longest total first. Arguments and errors are those of longest()."""
    pieces, at, after, before = _around(trace, of)
    names, kernel = _names(pieces), trace.warps.kernel[pieces.track[at]]
    width = len(pieces.names) - _EDGE
    code = (kernel * width + (after - _EDGE)) * width + before - _EDGE
    codes, index = np.unique(code, return_inverse=True)
    index, ns = index.ravel(), pieces.ns[at]
    total, most = np.bincount(index, weights=ns, minlength=len(codes)), np.zeros(len(codes))
    np.maximum.at(most, index, ns)
    whole = np.bincount(kernel, weights=ns, minlength=len(trace.kernels))
    count = np.bincount(index, minlength=len(codes))
    found, kernels = [], kernel_names(trace)
    for number, one in enumerate(codes.tolist()):
        rest, last = divmod(one, width)
        owner, first = divmod(rest, width)
        found.append(
            Between(
                kernels[owner], _name(names, first + _EDGE, BEGIN), _name(names, last + _EDGE, END), int(count[number]),
                float(total[number]), float(most[number]), float(total[number] / whole[owner]) if whole[owner] else 0.0,
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda row: (row.kernel, -row.warp_time_ns)))


def _around(trace: TraceData, of: str | None) -> tuple[Segments, Int64, Int64, Int64]:
    """(pieces by warp and time, of warps with records; indices of gaps; names after and before each, or _EDGE)."""
    found = recorded(trace, flatten(trace))
    if of is not None and of not in found.names:
        raise UsageError(f"of={of!r}: no such region; this trace has {', '.join(found.names) or 'none'}")
    pieces = found.take(by_lane(found))
    at = np.flatnonzero(pieces.name == (NONE if of is None else found.names.index(of)))
    padded = np.concatenate([[_EDGE], pieces.name, [_EDGE]])
    after = np.where(pieces.opens[at], _EDGE, padded[at])
    before = np.where(pieces.closes[at], _EDGE, padded[at + 2])
    return pieces, at, after, before


def _beside(pieces: Segments, names: list[str], piece: int, block: Int64) -> tuple[tuple[str, float], ...]:
    """Regions of the block's other warps during the piece."""
    others = block[pieces.track[block] != pieces.track[piece]]
    start = np.maximum(pieces.start[others], pieces.start[piece])
    shared = np.maximum(np.minimum(pieces.end[others], pieces.end[piece]) - start, 0)
    time = np.bincount(pieces.name[others] - NONE, weights=shared, minlength=len(names))
    whole = float(time.sum())
    return tuple((names[at], float(time[at] / whole)) for at in np.argsort(-time).tolist() if time[at] > 0)


def _names(pieces: Segments) -> list[str]:
    return [NO_REGION, *pieces.names]


def _name(names: list[str], code: int, without: str) -> str:
    return without if code == _EDGE else names[code - NONE]
