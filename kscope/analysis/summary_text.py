"""A summary as text that fits a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ..tracedata.info import Info, blocks_text
from ..util.terminal import cut, grid, part_text, terminal_width, time_text, wrapped
from ..util.text import counted
from .groups import label
from .summary_data import PointStats, RegionStats, SummaryData
from .warp_stats import WarpStats

_OPTIONAL = ("last", "first", "idle", "min", "p90", "self", "p99", "max", "p50", "imbalance", "share", "mean", "wall")
"""Columns in the order in which a narrow terminal drops them."""
_UNEVEN_FROM, _MOST_UNEVEN = 1.2, 3
"""Least imbalance that is reported below the table, and the most such lines."""
_SHORT = 0.01
"""Regions with a smaller share have no imbalance worth a line."""


CELLS: dict[str, Callable[[RegionStats], str]] = {
    "count": lambda row: f"{row.count:,}",
    "warp time": lambda row: time_text(row.warp_time_ns),
    "wall": lambda row: time_text(row.wall_ns),
    "share": lambda row: part_text(row.share),
    "self": lambda row: time_text(row.self_ns),
    "mean": lambda row: time_text(row.mean_ns),
    "p50": lambda row: time_text(row.p50_ns),
    "p90": lambda row: time_text(row.p90_ns),
    "p99": lambda row: time_text(row.p99_ns),
    "min": lambda row: time_text(row.min_ns),
    "max": lambda row: time_text(row.max_ns),
    "imbalance": lambda row: "-" if math.isnan(row.imbalance) else f"{row.imbalance:.2f}",
    "first": lambda row: time_text(row.first_ns),
    "last": lambda row: time_text(row.last_ns),
    "idle": lambda row: time_text(row.idle_ns),
}
"""Column -> its text."""


def render(summary: SummaryData, width: int | None = None, top: int | None = None) -> str:
    """The whole summary: a table per kernel, points, notes and problems."""
    width = terminal_width(width)
    head = wrapped(summary.info.line, width) if summary.info else []
    lines: list[str] = []
    kernels = [row.kernel for row in summary.regions] + [row.kernel for row in summary.points]
    for kernel in dict.fromkeys(kernels):
        lines += ["", cut(kernel, width)] if lines else [cut(kernel, width)]
        rows = [row for row in summary.regions if row.kernel == kernel]
        if rows:
            lines += _regions(rows, summary.by, width, top)
            lines += _uneven(rows, summary.by, width)
            lines += [line for text in hints(rows) for line in wrapped(text, width, "  ")]
        lines += [cut(_point(row), width) for row in summary.points if row.kernel == kernel]
        lines += _warps([row for row in summary.warps if row.kernel == kernel], summary.info, width)
    empty = [problem.text for problem in summary.problems if problem.kind == "blank"]
    if not lines:
        head = []
        lines = empty or [
            "no records" + ": the filters matched nothing, or no region was reached" * bool(summary.warps)
        ]
    lines += ["", *(line for note in summary.notes for line in wrapped(note, width))] if summary.notes else []
    problems = [problem.text for problem in summary.problems if problem.kind != "blank"]
    lines += [line for text in problems for line in wrapped(f"! {text}", width)]
    return "\n".join([*head, *([""] if head else []), *lines])


def _regions(rows: list[RegionStats], by: Sequence[str], width: int, top: int | None) -> list[str]:
    shown = rows
    if top is not None and len(rows) > top:
        least = sorted(row.warp_time_ns for row in rows)[-top]
        shown = [row for row in rows if row.warp_time_ns >= least][:top]
    names = [f"{label(by, row.key)}: {row.region}" if by else row.region for row in shown]
    columns = {name: [show(row) for row in shown] for name, show in CELLS.items()}
    if not any(row.idle_ns for row in shown):
        del columns["idle"]
    if all(abs(row.self_ns - row.warp_time_ns) < 1e-6 * row.warp_time_ns + 1e-9 for row in shown):
        del columns["self"]  # nothing is inside anything
    lines = grid("region", names, columns, width, _OPTIONAL)
    if len(shown) < len(rows):
        lines.append(f"  + {len(rows) - len(shown):,} more rows with less warp time")
    unknown = sum(row.unknown for row in rows)
    return lines + ([f"  + {counted(unknown, 'span')} of unknown duration"] if unknown else [])


def _uneven(rows: list[RegionStats], by: Sequence[str], width: int) -> list[str]:
    """The imbalances that cost the most time: not those of short regions, however uneven they are."""
    uneven = [row for row in rows if row.imbalance >= _UNEVEN_FROM and not row.share < _SHORT]
    uneven.sort(key=lambda row: (1 - row.imbalance) * row.warp_time_ns)
    named = [f"{label(by, row.key)}: {row.region}" if by else row.region for row in uneven[:_MOST_UNEVEN]]
    return [cut(f"  {name}: {row.worst}", width) for name, row in zip(named, uneven, strict=False)]


def hints(rows: Iterable[RegionStats]) -> list[str]:
    """Remarks about the regions' times for readers, once per region."""
    return list(dict.fromkeys(f"{row.region}: {row.hint}" for row in rows if row.hint))


def _warps(rows: list[WarpStats], info: Info | None, width: int) -> list[str]:
    """A kernel's time, time in no region, and dropped records."""
    alive, idle = sum(row.alive_ns for row in rows), sum(row.idle_ns for row in rows)
    if not alive:
        return []
    quiet = max(rows, key=lambda row: row.longest_idle_ns)
    text = f"in no region: {idle / alive:.1%}, longest gap {time_text(quiet.longest_idle_ns)} ({quiet.longest_idle_in})"
    if len(rows) == 1:
        row = rows[0]
        least = "at least " if row.blocks < row.grid_blocks else ""  # the other blocks may run longer
        blocks = blocks_text(row.blocks, row.grid_blocks, info is not None and info.partial)
        text = f"{counted(row.launches, 'launch')} of {least}{time_text(row.time_ns)}, {blocks}; {text}"
    lost = sum(row.dropped for row in rows)
    return wrapped(text + (f"; dropped: {lost:,}" if lost else ""), width, "  ")


def _point(row: PointStats) -> str:
    numbers = "" if math.isnan(row.mean) else f", {row.least:g} to {row.greatest:g}, mean {row.mean:.6g}"
    return f"  {row.name}: {counted(row.count, row.kind)}{numbers}"
