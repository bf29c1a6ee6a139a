"""Stalls: samples by region, source line, instruction or kernel, with their reasons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...capture.samples import SampledFunction, Samples
from ...errors import UsageError
from ...machine_code.moved_instructions import shown_place, user_place
from ...marks.strategies import records_some_warps
from ...tracedata.data import TraceData
from ...tracedata.kernel_names import of_kernels
from ...util.packages import import_pandas
from ..display import Shown
from .reasons import ISSUED

KEYS = ("region", "line", "instruction", "kernel")
SELECTIVE = ("block", "warp", "sm")
"""Options of a session in which only some warps record."""
NO_REGION = "(no region)"
UNKNOWN = "(code unknown)"
NO_LINE = "(no line)"
_TOP = 3
"""Instructions of a region that its row names."""


@dataclass(frozen=True)
class TopInstruction:
    """An instruction of a region with many samples.

    Attributes:
        name: its offset and text.
        where: its source line; empty if it is unknown.
        samples: how many.
    """

    name: str
    where: str
    samples: int


@dataclass(frozen=True)
class StallRow:
    """The samples of a region, line, instruction or kernel.

    Attributes:
        kernel: the function's name.
        name: the region, "file:line", offset and instruction, or kernel.
        where: the source line of an instruction, and the region of a line or instruction; empty without.
        samples: their number.
        share: of the kernel's samples; for a kernel, of all.
        issued: share of its samples in which the warp issued an instruction.
        reasons: samples by reason, most first, without the issued ones.
        executions: spans of the region in the trace; 0 if they are unknown.
        between_reads: samples between the region's clock reads, of kernels whose instructions belong to the region of
            their text (placement="schedule"); -1 for others, and for rows that are no region.
    """

    kernel: str
    name: str
    where: str
    samples: int
    share: float
    issued: float
    reasons: dict[str, int]
    executions: int = 0
    between_reads: int = -1
    instructions: tuple[TopInstruction, ...] = ()

    @property
    def stalled(self) -> float:
        """Share of its samples in which the warp did not issue an instruction."""
        return 1 - self.issued

    @property
    def per_execution(self) -> float:
        """Samples per execution; NaN if executions are unknown."""
        return self.samples / self.executions if self.executions else float("nan")


@dataclass(frozen=True, repr=False)
class Stalls(Shown):
    """Rows of stall samples; ``str()`` is the table for a terminal.

    Attributes:
        by: the key of the rows.
        rows: by kernel, most sampled first.
        total: samples of all kernels.
        period: cycles between two samples.
        dropped: samples that the hardware dropped.
        unresolved: regions whose clock reads were not found in the code, and so have no samples.
        unknown: kernels whose code is unknown, with the reason.
    """

    by: str
    rows: tuple[StallRow, ...]
    total: int
    period: int
    dropped: int
    unresolved: tuple[str, ...]
    unknown: tuple[str, ...]

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dict per row, with the fields of StallRow, `stalled` and `per_execution`."""
        return [asdict(row) | {"stalled": row.stalled, "per_execution": row.per_execution} for row in self.rows]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row per row, without `instructions`; `reasons` are columns of samples, named after
        the reasons.

        Raises:
            MissingError: pandas is not installed.
        """
        pandas = import_pandas("Stalls.to_pandas()")
        rows = [{**row, **row.pop("reasons")} for row in self.to_dicts()]
        frame = pandas.DataFrame(rows).drop(columns="instructions", errors="ignore")
        names = list(dict.fromkeys(name for row in self.rows for name in row.reasons))
        frame[names] = frame[names].fillna(0).astype("int64")
        return frame


def stalls(samples: Samples, by: str = "region", executions: Mapping[tuple[int, str], int] | None = None) -> Stalls:
    """The samples as rows, by kernel, most sampled first.

    Args:
        samples: of a capture.
        by: "region" (the innermost), "line", "instruction" or "kernel".
        executions: spans by kernel id and region; only rows by region have executions.

    Raises:
        UsageError: an unknown key.
    """
    if by not in KEYS:
        raise UsageError(f"by={by!r}: expected one of {', '.join(KEYS)}")
    rows, total = list[StallRow](), len(samples)
    whole = samples.whole
    order = np.argsort(whole["function"], kind="stable")
    whole = whole[order]
    edges = np.searchsorted(whole["function"], np.arange(len(samples.functions) + 1))
    for number, function in enumerate(samples.functions):
        own = whole[edges[number] : edges[number + 1]]
        if not len(own):
            continue
        found = _rows(samples, function, own, by, executions if executions and by == "region" else {}, total)
        rows += sorted(found, key=lambda row: (-row.samples, row.name))
    rows.sort(key=lambda row: 0 if by != "kernel" else -row.samples)
    unresolved = tuple(f"kernel {one.name}: {name}" for one in samples.functions for name in one.unresolved)
    unknown = tuple(f"kernel {one.name}: {one.why_unknown}" for one in samples.functions if one.why_unknown)
    return Stalls(by, tuple(rows), total, samples.period, samples.dropped, unresolved, unknown)


def all_warps(trace: TraceData) -> bool:
    """True if all warps of the sampled kernels recorded, according to the options."""
    partial = any(map(records_some_warps, trace.recorded.strategies))
    return not (trace.filtered or partial or any(trace.recorded.options.get(one) is not None for one in SELECTIVE))


def executions(trace: TraceData) -> dict[tuple[int, str], int]:
    """Spans of a trace by kernel id and region; none if only some warps recorded, because all were sampled."""
    if not len(trace) or not all_warps(trace):
        return {}
    ids, names = of_kernels(trace), trace.region_names()
    codes = trace.kernel * len(names) + trace.region
    found: dict[tuple[int, str], int] = {}
    for code, count in zip(*np.unique(codes[trace.is_span], return_counts=True), strict=True):
        kernel, region = divmod(int(code), len(names))
        key = ids[kernel], str(names[region])
        found[key] = found.get(key, 0) + int(count)
    return found


def _rows(
    samples: Samples, function: SampledFunction, own: np.ndarray, by: str,
    executions: Mapping[tuple[int, str], int], total: int,
) -> list[StallRow]:  # fmt: skip
    instruction = function.index(own["pc"])
    name_of = _NAMES[by]
    places = list(zip(instruction.tolist(), own["pc"].tolist(), strict=True))
    names = {place: name_of(function, *place) for place in set(places)}
    counts = defaultdict[tuple[str, str], Counter[str]](Counter)
    for place, reason, count in zip(places, own["reason"].tolist(), own["count"].tolist(), strict=True):
        counts[names[place]][samples.reasons[reason]] += count
    whole = total if by == "kernel" else int(own["count"].sum())
    between = _between(function, instruction, own) if by == "region" and function.ranged else None
    top = _top(function, instruction, own) if by == "region" else {}
    return [
        _row(function, name, where, found, whole, executions.get((function.kernel or 0, name), 0),
             -1 if between is None else between.get(name, 0), top.get(name, ()))
        for (name, where), found in counts.items()
    ]  # fmt: skip


def _top(function: SampledFunction, instruction: np.ndarray, own: np.ndarray) -> dict[str, tuple[TopInstruction, ...]]:
    """By innermost region: its most sampled instructions."""
    counts = np.bincount(instruction[instruction >= 0], own["count"][instruction >= 0], len(function.at))
    found = defaultdict[str, list[TopInstruction]](list)
    for one in np.argsort(-counts, kind="stable")[: int(np.count_nonzero(counts))].tolist():
        region = found[innermost(function, one)]
        if len(region) < _TOP:
            name = f"{function.at[one]:#06x} {function.text[one]}"
            region.append(TopInstruction(name, shown_place(user_place(function, one)), int(counts[one])))
    return {name: tuple(region) for name, region in found.items()}


def _between(function: SampledFunction, instruction: np.ndarray, own: np.ndarray) -> dict[str, int]:
    """Samples by the innermost region between whose clock reads they are."""
    found = Counter[str]()
    for one, count in zip(instruction.tolist(), own["count"].tolist(), strict=True):
        found[(function.between_reads(one) or (NO_REGION,))[-1]] += count
    return found


def _row(
    function: SampledFunction, name: str, where: str, found: dict[str, int], whole: int, executions: int, between: int,
    top: tuple[TopInstruction, ...],
) -> StallRow:  # fmt: skip
    count = sum(found.values())
    waits = sorted(((reason, own) for reason, own in found.items() if reason != ISSUED), key=lambda one: -one[1])
    return StallRow(
        function.name, name, where, count, count / whole if whole else float("nan"),
        found.get(ISSUED, 0) / count if count else float("nan"), dict(waits), executions, between, top,
    )  # fmt: skip


def innermost(function: SampledFunction, instruction: int) -> str:
    """The innermost open region of an instruction."""
    if not function.at:
        return UNKNOWN
    return (function.stack(instruction) or (NO_REGION,))[-1]


def _by_line(function: SampledFunction, instruction: int, pc: int) -> tuple[str, str]:
    place = user_place(function, instruction)
    return shown_place(place) or (NO_LINE if function.at else UNKNOWN), innermost(function, instruction)


def _by_instruction(function: SampledFunction, instruction: int, pc: int) -> tuple[str, str]:
    text = function.text[instruction] if instruction >= 0 else "?"
    where = [innermost(function, instruction), shown_place(user_place(function, instruction))]
    return f"{pc:#06x} {text}", ", ".join(one for one in where if one)


_NAMES: dict[str, Callable[[SampledFunction, int, int], tuple[str, str]]] = {
    "region": lambda function, instruction, pc: (innermost(function, instruction), ""),
    "line": _by_line,
    "instruction": _by_instruction,
    "kernel": lambda function, instruction, pc: (function.name, ""),
}
