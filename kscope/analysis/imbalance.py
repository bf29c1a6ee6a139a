"""Imbalance: the busiest SM, block or warp of a region, compared with the median one.

score = the largest total / the median total, over the members that have the region
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names
from ..tracedata.warps import Warps
from ..util.arrays import Float, Int64
from ..util.parallel import filled
from ..util.runs import count_distinct, group_equal, heads, sum_by
from .quantiles import PERCENTS, quantiles
from .warp_regions import warp_regions

ACROSS = ("sm", "block", "warp")
_MOST_KEY = 1 << 62
"""The largest product of rows and members that a key can number."""


@dataclass(frozen=True, eq=False)
class Imbalance:
    """One region of one kernel.

    Attributes:
        kernel, region: their names.
        across: "sm", "block" or "warp".
        labels: (m,) the members.
        totals_ns: (m,) their totals.
    """

    kernel: str
    region: str
    across: str
    labels: tuple[str, ...]
    totals_ns: Float

    @property
    def median_ns(self) -> float:
        """The median member's total."""
        return float(np.median(self.totals_ns))

    @property
    def score(self) -> float:
        """Largest total over the median; 1 is balanced, NaN if the median is 0."""
        return float(self.totals_ns.max() / self.median_ns) if self.median_ns > 0 else float("nan")

    @property
    def worst(self) -> str:
        """The member with the largest total."""
        return self.labels[int(self.totals_ns.argmax())]

    @property
    def text(self) -> str:
        """``block 17 takes 2.3x the median``"""
        return describe(self.worst, self.score)


def imbalance(trace: TraceData, across: str = "sm") -> tuple[Imbalance, ...]:
    """Totals per kernel and region of every SM, block or warp that has it.

    Args:
        trace: the trace.
        across: "sm", "block" (of a launch), or "warp" (warps of one number in all blocks).

    Raises:
        UsageError: an unknown `across`.
    """
    if across not in ACROSS:
        raise UsageError(f"across={across!r}: expected {', '.join(ACROSS)}")
    found = warp_regions(trace)
    member_of = members(trace, across)
    ns = found.total * trace.warps.tick_ns[found.track]
    totals, kernels = list[Imbalance](), kernel_names(trace)
    for kernel, region, mine in found.by_region(trace):
        codes, index = np.unique(member_of.code[found.track[mine]], return_inverse=True)
        total = np.bincount(index.ravel(), weights=ns[mine]).astype(np.float64)
        named = tuple(member_of.label(code) for code in codes.tolist())
        totals.append(Imbalance(kernels[kernel], region, across, named, total))
    return tuple(totals)


@dataclass(frozen=True, eq=False)
class Members:
    """code: (w,) int64, the member of each row of `warps`."""

    across: str
    code: Int64
    base: int
    several: bool
    warps: Warps

    def label(self, code: int) -> str:
        """``SM 5``, ``launch 2 block 0,8``, ``warp 3``; the launch or device only if there are several."""
        outer, number = divmod(code, self.base)
        inner = str(number)
        if self.across == "block":
            inner = self.warps.blocks(np.array([np.argmax(self.code == code)])).strings()[0]
        word = "SM" if self.across == "sm" else self.across
        whole = {"sm": "device", "block": "launch", "warp": ""}[self.across]
        return f"{whole} {outer} {word} {inner}" if self.several else f"{word} {inner}"


def members(trace: TraceData, across: str) -> Members:
    """The SM, block of a launch, or warp number of each row of Trace.warps."""
    warps = trace.warps
    if across == "warp":
        return Members(across, warps.warp.astype(np.int64), 1 << 10, False, warps)
    outer, inner = (warps.device, warps.sm.astype(np.int64)) if across == "sm" else (warps.launch, warps.block)
    base = int(inner.max(initial=0)) + 1
    if across == "sm":
        outer = np.array(trace.devices, np.int64)[outer] if len(outer) else outer
    return Members(across, outer * base + inner, base, count_distinct(outer) > 1, warps)


@dataclass(frozen=True, eq=False)
class Worst:
    """(r,) score, float64 (1 with one member), and the member's code."""

    score: Float
    code: Int64


def worst(row: Int64, rows: int, member: Int64, track: Int64, ns: Float) -> Worst:
    """Largest total over the median of each row.

    Args:
        row, track, ns: (c,) of rows of warp_regions().
        rows: number of rows.
        member: (w,) of each row of Trace.warps.
    """
    width = int(member.max(initial=0)) + 1
    if int(member.min(initial=0)) < 0 or rows * width > _MOST_KEY:  # block numbers of damaged data
        first, _, number = group_equal(member)
        found = worst(row, rows, number, track, ns)
        return Worst(found.score, member[first[found.code]] if len(first) else found.code)
    score, member_of = np.ones(rows), np.zeros(rows, np.int64)
    keys, total = sum_by(filled(len(row), np.int64, lambda part: row[part] * width + member[track[part]]), ns)
    of = keys // width
    begins = heads(of)
    size = np.diff(begins, append=len(of))
    spread = quantiles(total, of[begins], rows, begins, size)
    most, median = spread[of[begins], -1], spread[of[begins], 1 + PERCENTS.index(50)]
    with np.errstate(all="ignore"):
        ratio = most / median
    score[of[begins]] = np.where(size == 1, 1.0, np.where(median > 0, ratio, np.nan))
    largest = np.flatnonzero(total == np.repeat(most, size))
    member_of[of[largest]] = keys[largest] % width  # of several the last one
    return Worst(score, member_of)


def describe(label: str, score: float) -> str:
    """``block 17 takes 2.3x the median``"""
    return f"{label} takes {score:.3g}x the median"
