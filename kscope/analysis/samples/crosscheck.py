"""Two independent measures of each region: its share by the marks' clocks, and by samples. If they disagree, the
compiler has moved work into the region or out of it, or the marks change what they measure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...capture.samples import SampledFunction, Samples
from ...instrument.selection.auto import Lines
from ...machine_code.moved_instructions import MOST_MOVED, PlacedRegion, Placement, WeighedCode, parts, placed_regions
from ...tracedata.data import TraceData
from ...tracedata.kernel_names import kernel_names, of_kernels
from ...util.arrays import Int64
from ...util.grouping import grouped
from ..display import Shown
from ..warp_regions import SPANS
from .sampled_time import own_times
from .stalls import all_warps

Verdict = Literal["agrees", "moved", "empty", "partial", "perturbed", "unknown", "lines", "pure"]

AGREES = 0.01
"""Shares that differ by less agree, whatever the intervals."""
MOVED = 0.05
"""Share of a region's samples that may belong to other lines."""
_GROUPS = 20
"""Groups of warps for the interval of shares by clocks."""
_Z = 1.96
_LEAST = 50
"""With fewer samples, moved instructions cannot be shown."""
_LEAST_EACH = 10
"""Samples of each warp. Samplers take warps in rotation, the same ones at the same time of each launch: with fewer,
regions in which warps of an SM do different things have other shares.
"""
_MOST_NAMED = 5
_WORST: tuple[Placement, ...] = ("unknown", "empty", "pure", "moved")

Clocks = dict[str, tuple[float, float]]
"""Region -> its share by clocks, and the standard error."""


@dataclass(frozen=True)
class Crossed:
    """A region by both measures.

    Attributes:
        kernel, region: their names.
        clocks: share of the time in the kernel's regions, nested ones left out, as samples see it: a warp counts more
            while fewer are alive in its SM.
        samples: the same share by samples.
        margin: half width of the 95 % interval of their difference.
        count: samples in the region.
        verdict: "agrees"; "moved": instructions of other lines are inside, or its own are outside; "empty": no
            instruction is between its clock readings; "partial": the shares differ, and only some warps recorded,
            while all were sampled; "perturbed": the shares differ for another reason; "unknown": its clock readings
            were not found, it has no samples, or the shares differ and each warp has too few samples; "lines": the
            samples are those at source lines that the reader names, wherever they are; "pure": there are no samples,
            and the machine code has the region's instructions in it.
        foreign: instructions inside it that belong to other lines, most sampled first.
        missing: instructions of its lines that are outside.
        moved_in: share of its samples at foreign instructions; NaN if its lines are unknown. Without samples, of its
            working instructions.
        moved_out: share of its lines' samples at missing ones; likewise.
    """

    kernel: str
    region: str
    clocks: float
    samples: float
    margin: float
    count: int
    verdict: Verdict
    foreign: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    moved_in: float = float("nan")
    moved_out: float = float("nan")

    @property
    def moved(self) -> tuple[bool, bool]:
        """Two facts: many instructions inside are foreign; many of the region's are outside."""
        most = MOVED if self.count else MOST_MOVED
        return self.moved_in > most, self.moved_out > most


@dataclass(frozen=True, repr=False)
class Crosscheck(Shown):
    """Clocks beside samples; ``str()`` is the table for a terminal.

    Attributes:
        rows: each region of each kernel with records and samples.
        problems: kernels that could not be compared.
    """

    rows: tuple[Crossed, ...]
    problems: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """True if both measures agree in every region; without samples, if each region has its instructions."""
        compared = [row.verdict in ("agrees", "pure") for row in self.rows if row.verdict != "lines"]
        return bool(compared) and all(compared)

    @property
    def doubts(self) -> Iterator[str]:
        """A sentence for each region that is empty, or whose instructions are elsewhere."""
        for row in self.rows:
            if row.verdict == "empty":
                yield f"kernel {row.kernel}: region {row.region}: no instruction is between its clock readings"
            if row.verdict == "moved":
                parts = (
                    f"{row.moved_in:.0%} of its samples are at other lines' instructions",
                    f"{row.moved_out:.0%} of its lines' samples are outside of it",
                ) if row.count else (
                    f"{row.moved_in:.0%} of its working instructions are of other lines",
                    f"{row.moved_out:.0%} of its lines' working instructions are outside of it",
                )  # fmt: skip
                what = " and ".join(part for part, shown in zip(parts, row.moved, strict=True) if shown)
                yield f"kernel {row.kernel}: region {row.region}: {what}; kscope crosscheck names them"


def crosscheck(trace: TraceData, samples: Samples, lines: Sequence[Lines] = ()) -> Crosscheck:
    """Compare clocks with samples, for each kernel that has both; those without samples are judged by their code.

    Args:
        trace: the recording.
        samples: of the same capture.
        lines: source lines to show beside the regions; one with a region's name is beside that region's clocks.
    """
    spans = np.flatnonzero(trace.is_span)
    seen, every = own_times(trace, spans), all_warps(trace)
    warps = np.bincount(trace.warps.kernel[trace.warps.lane == trace.warps.lane.min(initial=255)]) if every else None
    names = sorted({region.name for region in trace.regions if region.kind in SPANS})

    def clocks(index: int, known: list[int]) -> Clocks:
        return _clocks(trace, spans, seen, index, names)

    return _each(trace, samples, clocks, None if warps is None else warps.tolist(), lines)


def doubts(trace: TraceData, samples: Samples) -> Iterator[str]:
    """Same as Crosscheck.doubts(), which need no clocks."""

    def clocks(index: int, known: list[int]) -> Clocks:
        unknown = float("nan"), float("nan")
        return {one.name: unknown for number in known for one in samples.functions[number].regions}

    return _each(trace, samples, clocks, None, ()).doubts


def _each(
    trace: TraceData, samples: Samples, clocks: Callable[[int, list[int]], Clocks], warps: list[int] | None,
    lines: Sequence[Lines],
) -> Crosscheck:  # fmt: skip
    """The rows of all kernels.

    Args:
        trace, samples, lines: as of crosscheck().
        clocks: of a kernel, by its index and its functions with code.
        warps: by kernel; None if only some recorded.
    """
    rows, problems = list[Crossed](), list[str]()
    sampled = set(samples.rows["function"].tolist())
    by_id = grouped((one.kernel, number) for number, one in enumerate(samples.functions))
    for index, (name, number) in enumerate(zip(kernel_names(trace), of_kernels(trace), strict=True)):
        own = by_id.get(number, [])
        known = [one for one in own if samples.functions[one].at]
        if not known:
            why = samples.functions[own[0]].why_unknown if own else "it has no samples"
            problems.append(f"kernel {name}: {why}")
            continue
        found = clocks(index, known)
        if sampled.isdisjoint(known):
            problems.append(f"kernel {name}: it has no samples; its regions are judged by the machine code alone")
            rows += _by_code(name, found, [samples.functions[one] for one in known])
            continue
        rows += _kernel(name, found, samples, known, 0 if warps is None else warps[index])
        rows += _lines(name, found, samples, known, lines)
    return Crosscheck(tuple(rows), tuple(problems))


def _by_code(name: str, clocks: Clocks, functions: Iterable[SampledFunction]) -> list[Crossed]:
    """The rows of a kernel without samples: the worst verdict of each region's builds, empty if no other has one."""
    found = dict[str, PlacedRegion]()
    for one in (one for function in functions for one in placed_regions(function)):
        if one.region not in found or _WORST.index(one.verdict) > _WORST.index(found[one.region].verdict):
            found[one.region] = one
    nan = float("nan")
    lost = PlacedRegion("", 0, (), (), nan, nan, "unknown")
    order = sorted(
        dict.fromkeys((*clocks, *found)), key=lambda region: -np.nan_to_num(clocks.get(region, (nan, nan))[0])
    )
    rows = [(region, clocks.get(region, (nan, nan))[0], found.get(region, lost)) for region in order]
    return [
        Crossed(name, region, share, nan, nan, 0, one.verdict, one.foreign[:_MOST_NAMED], one.missing[:_MOST_NAMED],
                one.moved_in, one.moved_out)
        for region, share, one in rows
    ]  # fmt: skip


def _clocks(trace: TraceData, spans: Int64, own: Int64, kernel: int, names: list[str]) -> Clocks:
    """By region: share of the time in regions as samples see it, and its standard error over groups of warps."""
    mine = trace.kernel[spans] == kernel
    number = {name: at for at, name in enumerate(names)}
    name = np.array([number.get(region.name, 0) for region in trace.regions], np.int64)[trace.region[spans[mine]]]
    width = len(names)
    code = (trace.track[spans[mine]] % _GROUPS) * width + name
    table = np.bincount(code, weights=own[mine], minlength=_GROUPS * width).reshape(_GROUPS, width)
    total = table.sum(axis=0)
    if not total.sum():
        return {}
    share = total / total.sum()
    used = table[table.sum(axis=1) > 0]
    error = np.zeros(width)
    if len(used) > 1:  # delete one group at a time
        rest = total - used
        each = rest / rest.sum(axis=1, keepdims=True)
        error = np.sqrt((len(used) - 1) / len(used) * ((each - each.mean(axis=0)) ** 2).sum(axis=0))
    present = np.bincount(name, minlength=width) > 0
    return {one: (float(share[at]), float(error[at])) for at, one in enumerate(names) if present[at]}


def _kernel(name: str, clocks: Clocks, samples: Samples, members: list[int], warps: int) -> list[Crossed]:
    """The rows of a kernel. warps: their number in all launches; 0 if only some recorded."""
    code = [_sampled(samples, one) for one in members]
    inside = {region: sum(one.inside(region) for one in code) for region in clocks}
    total = sum(inside.values())
    differs: Verdict = "partial" if not warps else "perturbed" if total >= _LEAST_EACH * warps else "unknown"
    rows = []
    for region, (share, error) in sorted(clocks.items(), key=lambda item: -item[1][0]):
        sampled = inside[region] / total if total else float("nan")
        spread = math.sqrt(sampled * (1 - sampled) / total) if total else float("nan")
        margin = _Z * math.hypot(error, spread)
        foreign, missing = _sum(one.foreign(region) for one in code), _sum(one.missing(region) for one in code)
        moved_in, moved_out = _parts(code, region, inside[region], foreign, missing)
        rows.append(Crossed(
            name, region, share, sampled, margin, inside[region],
            _verdict(code, region, abs(share - sampled), margin, moved_in, moved_out, differs),
            _named(foreign), _named(missing), moved_in, moved_out,
        ))  # fmt: skip
    return rows


def _lines(
    name: str, clocks: Clocks, samples: Samples, members: list[int], lines: Sequence[Lines]
) -> Iterator[Crossed]:
    """The rows of source lines: the shares of their samples, beside those in regions."""
    code = [_sampled(samples, one) for one in members]
    total = sum(one.inside(region) for region in clocks for one in code)
    for named in lines:
        count = sum(one.at_lines(named.covers) for one in code)
        share = count / total if total else float("nan")
        clock, _ = clocks.get(named.name, (float("nan"), 0.0))
        yield Crossed(name, named.name, clock, share, float("nan"), count, "lines")


def _verdict(
    code: Iterable[WeighedCode], region: str, difference: float, margin: float, moved_in: float, moved_out: float,
    differs: Verdict,
) -> Verdict:  # fmt: skip
    code = list(code)
    if all(not one.has(region) for one in code):
        return "unknown"
    if all(one.empty(region) for one in code):
        return "empty"
    if max(moved_in, moved_out) > MOVED:  # NaN is not
        return "moved"
    if math.isnan(difference):
        return "unknown"
    return "agrees" if difference <= max(AGREES, margin) else differs


def _sampled(samples: Samples, number: int) -> WeighedCode:
    """A function's instructions with their samples."""
    function, whole = samples.functions[number], samples.whole
    own = whole[whole["function"] == number]
    at = function.index(own["pc"])
    counts = np.bincount(at[at >= 0], weights=own["count"][at >= 0], minlength=len(function.at))
    return WeighedCode(function, counts.astype(np.float64))


def _parts(
    code: list[WeighedCode], region: str, inside: int, foreign: dict[str, int], missing: dict[str, int]
) -> tuple[float, float]:
    known = any((found := one.lines(region)) and found.last for one in code)
    if not known or inside + sum(missing.values()) < _LEAST:
        return float("nan"), float("nan")
    return parts(inside, sum(foreign.values()), sum(missing.values()))


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    return sum(map(Counter, parts), Counter[str]())


def _named(found: dict[str, int]) -> tuple[str, ...]:
    return tuple(sorted(found, key=lambda name: (-found[name], name))[:_MOST_NAMED])
