"""A Summary as text that fits a terminal.

What lives here: columns, widths, units. What does not: any number (summary.py).
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..wording import counted

if TYPE_CHECKING:
    from .summary import PointStats, RegionStats, Summary

_OPTIONAL = ("min", "p90", "imbalance", "p99", "max", "p50", "share", "mean")
"""Columns in the order in which a narrow terminal loses them."""
_NARROWEST = 40


def time_text(ns: float) -> str:
    """Nanoseconds with a unit and three or four digits: 5.05 ns, 123.4 us, 1.234 s; - for NaN."""
    if math.isnan(ns):
        return "-"
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if abs(ns) < 1000 * scale * (1 - 5e-4):
            value = ns / scale
            return f"{value:.0f} {unit}" if value == int(value) and scale == 1.0 else f"{value:.4g} {unit}"
    return f"{ns / 1e9:.4g} s" if ns < 1e13 else f"{ns / 1e9:,.0f} s"


def _share(row: RegionStats) -> str:
    return "-" if math.isnan(row.share) else f"{row.share:.1%}"


def _imbalance(row: RegionStats) -> str:
    return "-" if math.isnan(row.imbalance) else f"{row.imbalance:.2f}"


_COLUMNS: dict[str, Callable[[RegionStats], str]] = {
    "count": lambda row: f"{row.count:,}",
    "total": lambda row: time_text(row.total_ns),
    "share": _share,
    "mean": lambda row: time_text(row.mean_ns),
    "p50": lambda row: time_text(row.p50_ns),
    "p90": lambda row: time_text(row.p90_ns),
    "p99": lambda row: time_text(row.p99_ns),
    "min": lambda row: time_text(row.min_ns),
    "max": lambda row: time_text(row.max_ns),
    "imbalance": _imbalance,
}


def render(summary: Summary, width: int | None = None) -> str:
    """The whole summary: a table per kernel, points, notes and problems."""
    width = max(_NARROWEST, width or shutil.get_terminal_size((120, 24)).columns)
    lines: list[str] = []
    kernels = [row.kernel for row in summary.regions] + [row.kernel for row in summary.points]
    for kernel in dict.fromkeys(kernels):
        lines += ["", _cut(kernel, width)] if lines else [_cut(kernel, width)]
        rows = [row for row in summary.regions if row.kernel == kernel]
        if rows:
            lines += _regions(rows, width)
        lines += [_cut(_point(row), width) for row in summary.points if row.kernel == kernel]
    if not lines:
        lines = ["no records: no annotated kernel ran while recording was on"]
    lines += ["", *(line for note in summary.notes for line in _wrapped(note, width))] if summary.notes else []
    lines += [line for problem in summary.problems for line in _wrapped(f"! {problem.text}", width)]
    return "\n".join(lines)


def _regions(rows: list[RegionStats], width: int) -> list[str]:
    cells = {name: [name, *(show(row) for row in rows)] for name, show in _COLUMNS.items()}
    widths = {name: max(map(len, column)) for name, column in cells.items()}
    label = min(max(len(row.region) for row in rows) + 2, 32)
    dropped = iter(_OPTIONAL)
    while label + sum(2 + size for size in widths.values()) > width and (name := next(dropped, None)):
        del widths[name]
    label = max(8, min(max(len(row.region) for row in rows) + 2, width - sum(2 + size for size in widths.values())))
    lines = []
    for line in range(len(rows) + 1):
        name = "  region" if line == 0 else "  " + rows[line - 1].region
        lines.append(
            _cut(name, label).ljust(label) + "".join("  " + cells[c][line].rjust(w) for c, w in widths.items())
        )
    unknown = sum(row.unknown for row in rows)
    return [line.rstrip() for line in lines] + (
        [f"  + {counted(unknown, 'span')} of unknown duration"] if unknown else []
    )


def _point(row: PointStats) -> str:
    numbers = "" if math.isnan(row.mean) else f", {row.least:g} to {row.greatest:g}, mean {row.mean:.6g}"
    return f"  {row.name}: {counted(row.count, row.kind)}{numbers}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _wrapped(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = "  " + word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
