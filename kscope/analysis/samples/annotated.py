"""Source lines with their samples: reasons, instructions and regions of each line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ...capture.samples import Samples
from ...machine_code.moved_instructions import user_place
from ...tracedata.data import TraceData
from ...util.grouping import grouped
from ..summary import summarize
from .reasons import ISSUED
from .stalls import innermost

UNREAD = "(this file was not there when it was recorded)"


@dataclass(frozen=True)
class RegionTime:
    """A region that begins at a line: its name, mean duration and share of its warps' time, by clocks."""

    name: str
    mean_ns: float
    share: float


@dataclass(frozen=True)
class Line:
    """A source line.

    Attributes:
        number: from 1.
        text: its text; empty if the file is unknown.
        samples: in its instructions.
        share: of all samples of the kernels shown.
        issued: share of its samples in which the warp issued an instruction; NaN without samples.
        reasons: samples by reason, most first, without the issued ones.
        executed: share of the instructions that the kernels shown executed, by the samples in which one issued; NaN
            without any.
        registers: the most that hold a value at one of its instructions; 0 if they were not counted.
        instructions: number of machine instructions from this line.
        regions: innermost regions of its samples, most first.
        begins: regions that begin here, with their times.
        code: its sampled instructions, most first: (offset and text, samples).
    """

    number: int
    text: str
    samples: int = 0
    share: float = 0.0
    issued: float = float("nan")
    reasons: dict[str, int] = field(default_factory=dict)
    executed: float = float("nan")
    registers: int = 0
    instructions: int = 0
    regions: tuple[str, ...] = ()
    begins: tuple[RegionTime, ...] = ()
    code: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class File:
    """A source file: its lines from the first to the last that matters, with some around them; its samples."""

    path: str
    lines: tuple[Line, ...]
    samples: int
    known: bool


@dataclass(frozen=True)
class Annotated:
    """files: the most sampled first. elsewhere: samples without source line, by kernel. total: all samples."""

    files: tuple[File, ...]
    elsewhere: dict[str, int]
    total: int
    kernels: tuple[str, ...]


@dataclass
class _Found:
    """The sums over the instructions of a line, or of all lines."""

    samples: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    instructions: int = 0
    registers: int = 0
    regions: Counter[str] = field(default_factory=Counter)
    code: Counter[str] = field(default_factory=Counter)


def annotate(trace: TraceData, samples: Samples, around: int = 3) -> Annotated:
    """The lines of every file with sampled instructions.

    Args:
        trace: the recording; may have no records.
        samples: of the same capture.
        around: lines to show before the first and after the last line with instructions.
    """
    found: dict[str, dict[int, _Found]] = {}
    elsewhere: dict[str, int] = {}
    whole = samples.whole
    for number, function in enumerate(samples.functions):
        rows = whole[whole["function"] == number]
        for instruction in range(len(function.at)) if len(rows) else ():
            if (place := user_place(function, instruction)) is not None:
                line = found.setdefault(place[0], {}).setdefault(place[1], _Found())
                line.instructions += 1
                line.registers = max(line.registers, function.live[instruction] if function.live else 0)
        at = function.index(rows["pc"])
        for one, reason, count in zip(at.tolist(), rows["reason"].tolist(), rows["count"].tolist(), strict=True):
            place = user_place(function, one)
            if place is None:
                elsewhere[function.name] = elsewhere.get(function.name, 0) + count
                continue
            line = found[place[0]][place[1]]
            line.samples += count
            line.reasons[samples.reasons[reason]] += count
            line.regions[innermost(function, one)] += count
            line.code[f"{function.at[one]:#06x} {function.text[one]}"] += count
    total = sum(line.samples for lines in found.values() for line in lines.values()) + sum(elsewhere.values())
    times = _times(trace)
    issues = [number for number, name in enumerate(samples.reasons) if name == ISSUED]
    every = _Found(total, Counter({ISSUED: int(whole["count"][np.isin(whole["reason"], issues)].sum())}))
    files = [_file(path, lines, samples.sources.get(path), every, times, around) for path, lines in found.items()]
    files = [one for one in files if one.samples]
    sampled = {int(one) for one in np.unique(whole["function"])}
    names = tuple(one.name for number, one in enumerate(samples.functions) if number in sampled)
    return Annotated(tuple(sorted(files, key=lambda one: -one.samples)), elsewhere, total, names)


def _times(trace: TraceData) -> dict[str, list[RegionTime]]:
    """Regions by "file:line" of their first mark."""
    rows = summarize(trace).regions if len(trace) else ()
    return grouped((row.where, RegionTime(row.region, row.mean_ns, row.share)) for row in rows if row.where)


def _file(
    path: str, found: dict[int, _Found], source: str | None, whole: _Found, times: dict[str, list[RegionTime]],
    around: int,
) -> File:  # fmt: skip
    text = [] if source is None else source.splitlines()
    numbers = [number for number in found if number > 0]
    first, last = max(1, min(numbers, default=1) - around), max(numbers, default=0) + around
    shown = range(first, min(last, len(text)) + 1) if text else sorted(numbers)
    lines = [
        _line(number, text[number - 1] if 0 < number <= len(text) else "", found.get(number, _Found()), whole,
              tuple(times.get(f"{path}:{number}", ())))
        for number in shown
    ]  # fmt: skip
    return File(path, tuple(lines), sum(one.samples for one in found.values()), source is not None)


def _line(number: int, text: str, found: _Found, whole: _Found, begins: tuple[RegionTime, ...]) -> Line:
    waits = {name: count for name, count in _most(found.reasons) if name != ISSUED}
    issued, issued_in_all = found.reasons[ISSUED], whole.reasons[ISSUED]
    return Line(
        number, text, found.samples, found.samples / whole.samples if whole.samples else 0.0,
        issued / found.samples if found.samples else float("nan"), waits,
        issued / issued_in_all if issued_in_all else float("nan"), found.registers, found.instructions,
        tuple(name for name, _ in _most(found.regions)), begins, tuple(_most(found.code)),
    )  # fmt: skip


def _most(found: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(found.items(), key=lambda one: (-one[1], one[0]))
