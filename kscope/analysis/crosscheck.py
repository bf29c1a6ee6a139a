"""Two independent measures of each region: its share by the marks' clocks, and by samples.

They agree if the marks measure what they say. If they do not, the compiler has moved work into the region or out of it,
or the marks change what they measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..capture.samples import CodeRegion, SampledFunction, Samples
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names, of_kernels
from .shown import Shown
from .stalls import HEADER, shown_place, user_place
from .warp_regions import WarpRegions, warp_regions

Verdict = Literal["agrees", "moved", "empty", "perturbed", "unknown"]

AGREES = 0.01
"""Shares that differ by less agree, whatever the intervals."""
MOVED = 0.05
"""Share of a region's samples that may belong to other lines."""
_GROUPS = 20
"""Groups of warps for the interval of shares by clocks."""
_Z = 1.96
_LEAST = 50
"""Fewer samples do not show that instructions were moved."""
_MOST_NAMED = 5
_IDLE = ("NOP", "MOV", "IMAD.MOV.U32", "UMOV", "CS2R", "CS2R.32", "S2UR", "S2R")


@dataclass(frozen=True)
class Crossed:
    """A region by both measures.

    Attributes:
        kernel, region: their names.
        clocks: share of the time in the kernel's regions, nested ones left out.
        samples: the same share by samples.
        margin: half width of the 95 % interval of their difference.
        count: samples in the region.
        verdict: "agrees"; "moved": instructions of other lines are inside, or its own are outside; "empty": no
            instruction is between its clock readings; "perturbed": the shares differ for another reason;
            "unknown": its clock readings were not found, or it has too few samples.
        foreign: instructions inside it that belong to other lines, most sampled first.
        missing: instructions of its lines that are outside.
        moved_in: share of its samples at foreign instructions; NaN if its lines are unknown.
        moved_out: share of its lines' samples at missing ones; NaN if its lines are unknown.
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
        """Whether both measures agree in every region."""
        return bool(self.rows) and all(row.verdict == "agrees" for row in self.rows)


def crosscheck(trace: TraceData, samples: Samples) -> Crosscheck:
    """Compare clocks with samples, for each kernel that has both.

    Args:
        trace: the recording.
        samples: of the same capture.
    """
    spans, rows, problems = warp_regions(trace), list[Crossed](), list[str]()
    by_id: dict[int, list[int]] = {}
    for number, function in enumerate(samples.functions):
        if function.kernel is not None:
            by_id.setdefault(function.kernel, []).append(number)
    for index, (name, number) in enumerate(zip(kernel_names(trace), of_kernels(trace), strict=True)):
        own = by_id.get(number, [])
        known = [one for one in own if samples.functions[one].at]
        if not known:
            why = samples.functions[own[0]].why_unknown if own else "it has no samples"
            problems.append(f"kernel {name}: {why}")
            continue
        rows += _kernel(name, _clocks(trace, spans, index), samples, known)
    return Crosscheck(tuple(rows), tuple(problems))


def _clocks(trace: TraceData, spans: WarpRegions, kernel: int) -> dict[str, tuple[float, float]]:
    """By region: share of the time in regions, and its standard error over groups of warps."""
    mine = np.flatnonzero(trace.warps.kernel[spans.track] == kernel)
    own = spans.own[mine] * trace.warps.tick_ns[spans.track[mine]]
    width = len(spans.names)
    code = (spans.track[mine] % _GROUPS) * width + spans.name[mine]
    table = np.bincount(code, weights=own, minlength=_GROUPS * width).reshape(_GROUPS, width)
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
    present = np.bincount(spans.name[mine], minlength=width) > 0
    return {name: (float(share[at]), float(error[at])) for at, name in enumerate(spans.names) if present[at]}


def _kernel(name: str, clocks: dict[str, tuple[float, float]], samples: Samples, members: list[int]) -> list[Crossed]:
    inside = dict.fromkeys(clocks, 0)
    code = [_Code(samples, one) for one in members]
    for one in code:
        for region in inside:
            inside[region] += one.inside(region)
    total = sum(inside.values())
    rows = []
    for region, (share, error) in sorted(clocks.items(), key=lambda item: -item[1][0]):
        sampled = inside[region] / total if total else float("nan")
        spread = math.sqrt(sampled * (1 - sampled) / total) if total else float("nan")
        margin = _Z * math.hypot(error, spread)
        foreign, missing = _sum(one.foreign(region) for one in code), _sum(one.missing(region) for one in code)
        moved_in, moved_out = _parts(code, region, inside[region], foreign, missing)
        rows.append(
            Crossed(
                name, region, share, sampled, margin, inside[region],
                _verdict(code, region, abs(share - sampled), margin, moved_in, moved_out),
                _named(foreign), _named(missing), moved_in, moved_out,
            )
        )  # fmt: skip
    return rows


def _verdict(
    code: Iterable[_Code], region: str, difference: float, margin: float, moved_in: float, moved_out: float
) -> Verdict:
    code = list(code)
    if all(not one.has(region) for one in code):
        return "unknown"
    if all(one.empty(region) for one in code):
        return "empty"
    if max(moved_in, moved_out) > MOVED:  # NaN is not
        return "moved"
    if math.isnan(difference):
        return "unknown"
    return "agrees" if difference <= max(AGREES, margin) else "perturbed"


def _parts(
    code: list[_Code], region: str, inside: int, foreign: dict[str, int], missing: dict[str, int]
) -> tuple[float, float]:
    if not any((found := one.lines(region)) and found.last for one in code):
        return float("nan"), float("nan")
    out = sum(missing.values())
    own = inside - sum(foreign.values())
    if inside + out < _LEAST:
        return float("nan"), float("nan")
    return (
        sum(foreign.values()) / inside if inside else float("nan"),
        out / (own + out) if own + out else float("nan"),
    )


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return found


def _named(found: dict[str, int]) -> tuple[str, ...]:
    return tuple(sorted(found, key=lambda name: (-found[name], name))[:_MOST_NAMED])


class _Code:
    """One function's instructions with their samples."""

    def __init__(self, samples: Samples, number: int) -> None:
        self.function: SampledFunction = samples.functions[number]
        whole = samples.whole
        own = whole[whole["function"] == number]
        at = self.function.index(own["pc"])
        self.counts = np.bincount(at[at >= 0], weights=own["count"][at >= 0], minlength=len(self.function.at))
        self._stack = [self.function.stack(one) for one in range(len(self.function.at))]

    def lines(self, region: str) -> CodeRegion | None:
        """The region's place in the code and its source lines."""
        return next((one for one in self.function.regions if one.name == region), None)

    def has(self, region: str) -> bool:
        return self.lines(region) is not None and region not in self.function.unresolved

    def inside(self, region: str) -> int:
        """Samples in the region, without those in nested ones."""
        return int(sum(self.counts[one] for one, stack in enumerate(self._stack) if stack[-1:] == (region,)))

    def empty(self, region: str) -> bool:
        """Whether the region has no instruction but its clock reads and moves; also none of nested regions."""
        found = [one for one, stack in enumerate(self._stack) if region in stack]
        return all(self._word(one) in _IDLE for one in found)

    def foreign(self, region: str) -> dict[str, int]:
        """Samples of instructions in the region that belong to other lines, by text."""
        lines = self.lines(region)
        if lines is None or not lines.last:
            return {}
        found: dict[str, int] = {}
        for one, stack in enumerate(self._stack):
            chain = self.function.chain(one)
            elsewhere = not lines.has(chain) and any(file == lines.file for file, _ in chain)
            if elsewhere and stack[-1:] == (region,) and self.counts[one] and not self._marks(one):
                found[self._named(one)] = found.get(self._named(one), 0) + int(self.counts[one])
        return found

    def missing(self, region: str) -> dict[str, int]:
        """Samples of instructions of the region's lines that are not in it, by text; not of its marks' own lines."""
        lines = self.lines(region)
        if lines is None or not lines.last:
            return {}
        marks = (lines.first,) if lines.file.endswith(".py") else (lines.first, lines.last)
        nested = [one for one in self.function.regions if one.file == lines.file and one.name != region
                  and lines.first <= one.first and one.last <= lines.last]  # fmt: skip
        found: dict[str, int] = {}
        for one, stack in enumerate(self._stack):
            chain = self.function.chain(one)
            own = [line for file, line in chain if file == lines.file and lines.first <= line <= lines.last]
            if region in stack or not own or not self.counts[one] or self._marks(one):
                continue
            if not any(line in marks for line in own) and not any(part.has(chain) for part in nested):
                found[self._named(one)] = found.get(self._named(one), 0) + int(self.counts[one])
        return found

    def _word(self, one: int) -> str:
        words = self.function.text[one].split()
        return next((word for word in words if not word.startswith("@")), "")

    def _marks(self, one: int) -> bool:
        """Whether kscope's header has written the instruction, or it reads the clock."""
        return "SR_CLOCK" in self.function.text[one] or any(
            file.endswith(HEADER) for file, _ in self.function.chain(one)
        )

    def _named(self, one: int) -> str:
        place = shown_place(user_place(self.function, one))
        return f"{self.function.at[one]:#06x} {self.function.text[one]}{f' ({place})' if place else ''}"
