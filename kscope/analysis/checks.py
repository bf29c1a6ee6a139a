"""Conditions on a recording, for continuous integration: ``load.p99 < 2us``, ``dropped == 0``.

whole      records warps blocks launches dropped unfinished problems (numbers), time (of the longest launch)
kernel     matmul.time .mean_time .alive .idle (times), .records .warps .blocks .launches .dropped .unfinished;
           0x7fa21c3.time, its hash, where several have its name, and 0x7fa21c3.load.p99
region     load.p99, or matmul.load.p99 where several kernels have it: count unknown share imbalance (numbers),
           warp_time wall self mean p50 p90 p99 min max first last idle (times)

If only some blocks recorded, times of launches are unknown: their conditions do not hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import hashed, kernel_names, of_kernels
from ..util.text import nearest, some
from .expressions import Outcome, Quantity, evaluate, quoted_name
from .summary import summarize
from .summary_data import RegionStats
from .warp_stats import WarpStats

TIMES = ("warp_time", "wall", "self", "mean", "p50", "p90", "p99", "min", "max", "first", "last", "idle")
REGION = (*TIMES, "count", "unknown", "share", "imbalance")
COUNTS = ("records", "warps", "blocks", "launches", "dropped", "unfinished")
KERNEL = {"time": "max_time_ns", "mean_time": "time_ns", "alive": "alive_ns", "idle": "idle_ns"}
_UNCOUNTED = ("lost", "count")
"""Problems after which the number of dropped records is unknown."""
_WHOLE = (*COUNTS, "problems", "time")


def check(trace: TraceData, conditions: Iterable[str]) -> tuple[Outcome, ...]:
    """The outcome of every condition.

    Raises:
        UsageError: a condition that cannot be parsed, or a name that the recording does not have.
    """
    names = _Names(trace)
    return tuple(evaluate(text, names) for text in conditions)


class _Names:
    """Looks names up in the summary of a trace."""

    def __init__(self, trace: TraceData) -> None:
        self.summary = summarize(trace)
        rows = zip(kernel_names(trace), trace.kernels, of_kernels(trace), strict=True)
        self.kernels = {shown: (name, f"0x{number:x}") for shown, name, number in rows}
        """By name in the summary: the kernel's name and hash."""
        self.partial = self.summary.info is not None and self.summary.info.partial
        self.uncounted = any(problem.kind in _UNCOUNTED for problem in self.summary.problems)

    def __call__(self, name: tuple[str, ...]) -> Quantity:
        if len(name) == 1:
            return self.whole(name[0])
        owner, stat = ".".join(name[:-1]), name[-1]
        found: dict[str, Quantity | None] = {}
        for region in self.summary.regions:
            if self.means(owner, region):
                found[f"{self.full_name(region.kernel)}.{quoted_name(region.region)}.{stat}"] = self.region(
                    region, stat
                )
        for warps in self.summary.warps:
            if self.names(owner, warps.kernel):
                found[f"{self.kernels[warps.kernel][1]}.{stat}"] = self.kernel(warps, stat)
        known = {text: value for text, value in found.items() if value is not None}
        if len(known) == 1:
            return known.popitem()[1]
        full_name = ".".join(name)
        if known:
            raise UsageError(f"{full_name}: several kernels have it: use one of {', '.join(known)}")
        if found:
            known_of = f"{', '.join(REGION)} of a region, {', '.join((*KERNEL, *COUNTS))} of a kernel"
            raise UsageError(f"{full_name}: expected {known_of}{nearest(stat, (*REGION, *KERNEL, *COUNTS))}")
        there = sorted({row.region for row in self.summary.regions} | {row.kernel for row in self.summary.warps})
        raise UsageError(
            f"{full_name}: no region or kernel of that name; this capture has {some(there)}{nearest(owner, there)}"
        )

    def means(self, owner: str, row: RegionStats) -> bool:
        """True if `owner` is the region's name, or the kernel's and the region's. Names may contain dots."""
        kernel = owner.removesuffix(f".{row.region}")
        return owner == row.region or (kernel != owner and self.names(kernel, row.kernel))

    def names(self, typed: str, kernel: str) -> bool:
        """True if `typed` is the kernel's name, its hash, or its name in tables."""
        name, number = self.kernels[kernel]
        return typed in (kernel, name) or (hashed(typed) is not None and hashed(typed) == hashed(number))

    def full_name(self, kernel: str) -> str:
        """An unambiguous name of the kernel."""
        name, number = self.kernels[kernel]
        return quoted_name(name) if name == kernel else number

    def whole(self, name: str) -> Quantity:
        rows = self.summary.warps
        if name == "dropped" and self.uncounted:
            return Quantity(float("nan"))
        if name in COUNTS:
            return Quantity(float(sum(getattr(row, name) for row in rows)))
        if name == "problems":
            return Quantity(float(len(self.summary.problems)))
        if name == "time":
            times = [] if self.partial else [row.max_time_ns for row in rows]
            return Quantity(max(times, default=float("nan")), time=True)
        if any(name == row.region for row in self.summary.regions):
            raise UsageError(f"{name}: is a region; expected one of its numbers, such as {name}.p99")
        if any(self.names(name, row.kernel) for row in rows):
            raise UsageError(f"{name}: is a kernel; expected one of its numbers, such as {name}.mean_time")
        more = f"or a region with one of its numbers, such as load.p99{nearest(name, _WHOLE)}"
        raise UsageError(f"{name}: expected {', '.join(_WHOLE)}, {more}")

    def region(self, row: RegionStats, stat: str) -> Quantity | None:
        if stat not in REGION:
            return None
        return Quantity(getattr(row, f"{stat}_ns"), time=True) if stat in TIMES else Quantity(float(getattr(row, stat)))

    def kernel(self, row: WarpStats, stat: str) -> Quantity | None:
        if stat in ("time", "mean_time") and self.partial:  # the other blocks may run longer
            return Quantity(float("nan"), time=True)
        if stat in KERNEL:
            return Quantity(getattr(row, KERNEL[stat]), time=True)
        if stat == "dropped" and self.uncounted:  # whose lost warps are unknown, too
            return Quantity(float("nan"))
        return Quantity(float(getattr(row, stat))) if stat in COUNTS else None
