"""Conditions on a recording, for continuous integration: ``load.p99 < 2us``, ``dropped == 0``.

whole      records lanes blocks launches dropped unfinished problems (numbers), time (of the longest launch)
kernel     matmul.time .mean_time .alive .idle (times), .records .lanes .blocks .launches .dropped .unfinished;
           0x7fa21c3.time, its hash, where several have its name, and 0x7fa21c3.load.p99
region     load.p99, or matmul.load.p99 where several kernels have it: count unknown share imbalance (numbers),
           total self mean p50 p90 p99 min max first last idle (times)
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import hashed, kernel_names, of_kernels
from .data import RegionStats
from .expressions import Outcome, Quantity, evaluate, written
from .summary import summarise
from .warp_stats import WarpStats

_TIMES = ("total", "self", "mean", "p50", "p90", "p99", "min", "max", "first", "last", "idle")
_REGION = (*_TIMES, "count", "unknown", "share", "imbalance")
_LANES = ("records", "lanes", "blocks", "launches", "dropped", "unfinished")
_KERNEL = {"time": "max_time_ns", "mean_time": "time_ns", "alive": "alive_ns", "idle": "idle_ns"}
_UNCOUNTED = ("lost", "count")
"""Problems after which nobody knows how many records were dropped."""
_WHOLE = (*_LANES, "problems", "time")


def check(trace: TraceData, conditions: Iterable[str]) -> tuple[Outcome, ...]:
    """The outcome of every condition. Raises UsageError for one that cannot be read, and for names that the
    recording does not have: a typing error shall not pass."""
    names = _Names(trace)
    return tuple(evaluate(text, names) for text in conditions)


class _Names:
    """Looks names up in the summary of a trace."""

    def __init__(self, trace: TraceData) -> None:
        self.summary = summarise(trace)
        rows = zip(kernel_names(trace), trace.kernels, of_kernels(trace), strict=True)
        self.kernels = {shown: (name, f"0x{number:x}") for shown, name, number in rows}
        """By the name in the summary the kernel's own name and its hash."""
        self.uncounted = any(problem.kind in _UNCOUNTED for problem in self.summary.problems)

    def __call__(self, name: tuple[str, ...]) -> Quantity:
        if len(name) == 1:
            return self.whole(name[0])
        owner, stat = ".".join(name[:-1]), name[-1]
        found: dict[str, Quantity | None] = {}
        for region in self.summary.regions:
            if self.means(owner, region):
                found[f"{self.spelled(region.kernel)}.{written(region.region)}.{stat}"] = self.region(region, stat)
        for lanes in self.summary.lanes:
            if self.names(owner, lanes.kernel):
                found[f"{self.kernels[lanes.kernel][1]}.{stat}"] = self.kernel(lanes, stat)
        known = {text: value for text, value in found.items() if value is not None}
        if len(known) == 1:
            return known.popitem()[1]
        spelled = ".".join(name)
        if known:
            raise UsageError(f"{spelled}: several kernels have it: say which, {', '.join(known)}")
        if found:
            raise UsageError(f"{spelled}: expected {', '.join(_REGION)} of a region, {', '.join((*_KERNEL, *_LANES))} "
                             "of a kernel")  # fmt: skip
        there = sorted({row.region for row in self.summary.regions} | {row.kernel for row in self.summary.lanes})
        raise UsageError(f"{spelled}: no region or kernel of that name; this capture has {', '.join(there) or 'none'}")

    def means(self, owner: str, row: RegionStats) -> bool:
        """Whether this is the region's name, or a kernel's and the region's. Dots in either are read as they are."""
        kernel = owner.removesuffix(f".{row.region}")
        return owner == row.region or (kernel != owner and self.names(kernel, row.kernel))

    def names(self, typed: str, kernel: str) -> bool:
        """Whether the kernel is called so: by its name, by its hash, or as tables have it."""
        name, number = self.kernels[kernel]
        return typed in (kernel, name) or (hashed(typed) is not None and hashed(typed) == hashed(number))

    def spelled(self, kernel: str) -> str:
        """What means this kernel and no other."""
        name, number = self.kernels[kernel]
        return written(name) if name == kernel else number

    def whole(self, name: str) -> Quantity:
        rows = self.summary.lanes
        if name == "dropped" and self.uncounted:
            return Quantity(float("nan"))
        if name in _LANES:
            return Quantity(float(sum(getattr(row, name) for row in rows)))
        if name == "problems":
            return Quantity(float(len(self.summary.problems)))
        if name == "time":
            return Quantity(max((row.max_time_ns for row in rows), default=float("nan")), time=True)
        raise UsageError(f"{name}: expected {', '.join(_WHOLE)}, or a region and what of it, such as load.p99")

    def region(self, row: RegionStats, stat: str) -> Quantity | None:
        if stat not in _REGION:
            return None
        return (
            Quantity(getattr(row, f"{stat}_ns"), time=True) if stat in _TIMES else Quantity(float(getattr(row, stat)))
        )

    def kernel(self, row: WarpStats, stat: str) -> Quantity | None:
        if stat in _KERNEL:
            return Quantity(getattr(row, _KERNEL[stat]), time=True)
        if stat == "dropped" and self.uncounted:  # whose lanes were lost is not known either
            return Quantity(float("nan"))
        return Quantity(float(getattr(row, stat))) if stat in _LANES else None
