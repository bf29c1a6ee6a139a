"""Instructions per region without a tracer: what stands in the machine code, times how often the trace saw it run.

For a region whose code is straight (no branch in it, none into it) each execution issues exactly the instructions
between its two clock readings, and the product is exact, for warps that do not diverge. A name with several places in
the code (unrolled, inlined twice) has a least and a most, as the trace does not know which place ran. For a region with
branches only the number of instructions in its code is told. Among the instructions are kscope's own: addresses and
stores of records that lie inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..capture.layout import record_id
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names, of_kernels
from .cells import SPANS, cells
from .data import RegionStats
from .sass import Function, Site, sites
from .summary import summarise


@dataclass(frozen=True)
class RegionCode:
    """A region of a kernel. places: in the code. static: instructions in its code, all places. least, most: issued by
    one execution; None where there are branches. executions: spans in the trace, dropped ones not among them. cycles:
    mean of an execution. ipc_least, ipc_most: instructions of one warp per SM cycle."""

    kernel: str
    region: str
    places: int
    static: int
    straight: bool
    least: int | None
    most: int | None
    executions: int
    cycles: float
    ipc_least: float | None
    ipc_most: float | None

    @property
    def text(self) -> str:
        """``101 a time``, ``3 to 4 a time``, ``358 in its code, which branches``"""
        if self.least is None:
            return f"{self.static:,} in its code, which branches"
        return f"{self.least:,} a time" if self.least == self.most else f"{self.least:,} to {self.most:,} a time"


@dataclass(frozen=True)
class CodeReport:
    """regions: those found in both. problems: what was not, in words."""

    regions: tuple[RegionCode, ...]
    problems: tuple[str, ...]


def region_code(trace: TraceData, functions: Iterable[Function], builds: Mapping[str, int] | None = None) -> CodeReport:
    """The regions of a trace in the code of its kernels, matched by the kernel's name.

    builds: kernel ids that the code's own metadata names, where it has any (tools.builds()): a kernel of another
    build is left out, and named."""
    ids = {record_id(region.token, kind): region.name for region in trace.regions for kind in SPANS}
    by_name = {function.name: function for function in functions}
    found: list[RegionCode] = []
    problems: list[str] = []
    stats = summarise(trace).regions
    ticks = _cycles(trace)
    for kernel, name, number in zip(kernel_names(trace), trace.kernels, of_kernels(trace), strict=True):
        if name not in by_name:
            problems.append(f"kernel {kernel}: not in this code, which has {', '.join(sorted(by_name)) or 'none'}")
            continue
        if builds and builds.get(name) != number:
            problems.append(f"kernel {kernel}: this code is another build than the one that was recorded")
            continue
        inside = sites(by_name[name], ids)
        for region in dict.fromkeys(inside.unresolved):
            problems.append(f"kernel {kernel}: {region}: its clock readings could not be followed in the code")
        mine = [row for row in stats if row.kernel == kernel]
        for row in mine:
            places = [site for site in inside.sites if site.region == row.region]
            if places and row.region not in inside.unresolved:
                found.append(_region(row, places, ticks.get((kernel, row.region), float("nan"))))
            elif not places and row.region not in inside.unresolved:
                problems.append(f"kernel {kernel}: {row.region}: no record of it in this code; is it another build?")
    return CodeReport(tuple(found), tuple(problems))


def _region(row: RegionStats, places: list[Site], cycles: float) -> RegionCode:
    straight = all(site.straight for site in places)
    least, most = min(site.between for site in places), max(site.between for site in places)
    ratio = [count / cycles if straight and cycles > 0 else None for count in (least, most)]
    return RegionCode(
        row.kernel, row.region, len(places), sum(site.between for site in places), straight,
        least if straight else None, most if straight else None, row.count, cycles, ratio[0], ratio[1],
    )  # fmt: skip


def _cycles(trace: TraceData) -> dict[tuple[str, str], float]:
    """Mean cycles by kernel and region; none for clock="globaltimer", whose ticks are no cycles."""
    if trace.warps.timer.any():
        return {}
    found, total, kernels = cells(trace), dict[tuple[str, str], tuple[int, int]](), kernel_names(trace)
    columns = (found.track, found.name, found.total, found.count)
    for track, name, ticks, count in zip(*(column.tolist() for column in columns), strict=True):
        key = kernels[int(trace.warps.kernel[track])], found.names[name]
        before = total.get(key, (0, 0))
        total[key] = before[0] + ticks, before[1] + count
    return {key: ticks / count for key, (ticks, count) in total.items() if count}
