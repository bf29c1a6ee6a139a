"""The rows of a summary.

count       spans with a known duration
warp time   their sum over all warps; share = warp time / total lifetime of the warps of the row's group
wall        how long at least one warp was in the region: overlapping time counts once
self        warp time without that of spans nested inside them
imbalance   the largest total of an SM, block or warp over the median one; `worst` names it
first, last the first and the last start, after the start of its launch
idle        time directly before its spans in which the warp was in no region
"""

from __future__ import annotations

from dataclasses import dataclass

from ..capture.model import Problem
from ..tracedata.info import Info
from .groups import Key
from .warp_stats import WarpStats

_NAN = float("nan")


@dataclass(frozen=True)
class RegionStats:
    """One kernel and region, or one group of it. Times in ns; NaN where a value is unknown.

    Attributes:
        kernel: the kernel's name, with its hash if several kernels have that name.
        region: the region's name.
        key: the values of the keys in Summary.by.
        count: spans of known duration.
        warp_time_ns: their sum over all warps.
        wall_ns: how long at least one warp was in the region.
        share: warp_time_ns / total warp lifetime of the group, 0 to 1.
        self_ns: warp_time_ns without the spans nested inside.
        mean_ns, p50_ns, p90_ns, p99_ns, min_ns, max_ns: of the spans' durations.
        imbalance: the largest of sm_, block_ and warp_imbalance; 1 with one member.
        worst: the member with the largest imbalance, in words.
        first_ns, last_ns: the first and the last start, after the start of its launch.
        idle_ns: time directly before its spans in which the warp was in no region.
        unknown: spans longer than 32-bit clocks can measure.
        under_tick: spans shorter than the timer's tick (clock="globaltimer" only).
        sm_imbalance, block_imbalance, warp_imbalance: the largest total of an SM, block or warp over the median one;
            NaN if the key already separates them.
        where: "file:line" of the first mark of that name; empty if unknown.
        ends_at_issue_of: an asynchronous instruction that the region issues without waiting for any, see
            RegionMeta.ends_at_issue_of.
    """

    kernel: str
    region: str
    key: Key
    count: int
    warp_time_ns: float
    wall_ns: float
    share: float
    self_ns: float
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    min_ns: float
    max_ns: float
    imbalance: float
    worst: str
    first_ns: float
    last_ns: float
    idle_ns: float
    unknown: int = 0
    under_tick: int = 0
    sm_imbalance: float = _NAN
    block_imbalance: float = _NAN
    warp_imbalance: float = _NAN
    where: str = ""
    ends_at_issue_of: str | None = None

    @property
    def hint(self) -> str:
        """A remark about its times for readers; empty if there is none."""
        issued = self.ends_at_issue_of
        return f"ends at the issue of {issued}, not at its arrival; time the wait" if issued else ""


@dataclass(frozen=True)
class PointStats:
    """The instants or counters of one name in one kernel: count, and mean, least and greatest value (NaN: none)."""

    kernel: str
    name: str
    kind: str
    count: int
    mean: float
    least: float
    greatest: float


@dataclass(frozen=True)
class SummaryData:
    """A summary's rows; Summary describes the fields."""

    regions: tuple[RegionStats, ...]
    points: tuple[PointStats, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    warps: tuple[WarpStats, ...] = ()
    by: tuple[str, ...] = ()
    tick_ns: int = 0
    info: Info | None = None
