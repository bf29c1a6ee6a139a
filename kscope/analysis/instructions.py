"""Instructions per region from machine code: instructions between the marks, times executions in the trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..capture.layout import record_id
from ..capture.model import RowLayout
from ..machine_code.disassembly import Function, Site, sites
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names, of_kernels
from .summary import summarize
from .summary_data import RegionStats
from .warp_regions import SPANS, warp_regions


@dataclass(frozen=True)
class RegionCode:
    """A region of a kernel in machine code.

    Attributes:
        kernel, region: their names.
        places: in the code.
        static: instructions in all places.
        straight: no place has a branch.
        least, most: instructions of one execution; None with branches.
        executions: spans in the trace, without dropped ones.
        cycles: mean of an execution; NaN if unknown.
        ipc_least, ipc_most: instructions of one warp per SM cycle; None if unknown.
    """

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
        """``101 a time``, ``3 to 4 a time``, ``358 in its code, with branches``"""
        if self.least is None:
            return f"{self.static:,} in its code, with branches"
        return f"{self.least:,} a time" if self.least == self.most else f"{self.least:,} to {self.most:,} a time"


@dataclass(frozen=True)
class CodeReport:
    """regions: those in both code and trace. problems: the others, with the reason."""

    regions: tuple[RegionCode, ...]
    problems: tuple[str, ...]


def region_code(
    trace: TraceData,
    functions: Iterable[Function],
    builds: Mapping[str, int] | None = None,
    layouts: Sequence[RowLayout] = (),
) -> CodeReport:
    """The regions of a trace in the code of its kernels, matched by kernel name.

    In a region without branches each execution issues exactly the instructions between its clock reads, so the product
    is exact for warps that do not diverge. A region with several places in the code (unrolled, inlined twice) has a
    least and a most, because the trace does not record which place ran. For a region with branches only the number of
    instructions in its code is reported. The instructions include kscope's own: addresses and stores of nested records.

    Args:
        trace: the trace.
        functions: of the code.
        builds: kernel ids by symbol, of the code's metadata (tools.builds()); kernels of other builds become
            problems.
        layouts: of the rows with three clocks that the code may write (tools.layouts()).
    """
    ids = {record_id(region.token, kind): region.name for region in trace.regions for kind in SPANS}
    by_name = {function.name: function for function in functions}
    found: list[RegionCode] = []
    problems: list[str] = []
    stats = summarize(trace).regions
    ticks = _cycles(trace)
    for kernel, name, number in zip(kernel_names(trace), trace.kernels, of_kernels(trace), strict=True):
        if name not in by_name:
            problems.append(f"kernel {kernel}: not in this code, which has {', '.join(sorted(by_name)) or 'none'}")
            continue
        if builds and builds.get(name) != number:
            problems.append(f"kernel {kernel}: this code is a different build than the recorded one")
            continue
        inside = sites(by_name[name], ids, layouts)
        for region in dict.fromkeys(inside.unresolved):
            problems.append(f"kernel {kernel}: {region}: its clock reads could not be traced in the code")
        mine = [row for row in stats if row.kernel == kernel]
        for row in mine:
            places = [site for site in inside.sites if site.region == row.region]
            if places and row.region not in inside.unresolved:
                found.append(_region(row, places, ticks.get((kernel, row.region), float("nan"))))
            elif not places and row.region not in inside.unresolved:
                problems.append(f"kernel {kernel}: {row.region}: no mark of it in this code; is it another build?")
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
    """Mean cycles by kernel and region; none with clock="globaltimer"."""
    if trace.warps.timer.any():
        return {}
    found, kernels = warp_regions(trace, cycles=True), kernel_names(trace)
    total = dict[tuple[str, str], tuple[int, int]]()
    columns = (found.track, found.name, found.total, found.count)
    for track, name, ticks, count in zip(*(column.tolist() for column in columns), strict=True):
        key = kernels[int(trace.warps.kernel[track])], found.names[name]
        before = total.get(key, (0, 0))
        total[key] = before[0] + ticks, before[1] + count
    return {key: ticks / count for key, (ticks, count) in total.items() if count}
