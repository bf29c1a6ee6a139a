"""Stall samples as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...util.terminal import cut, grid, part_text, terminal_width, wrapped
from ...util.text import counted
from .annotated import Line
from .reasons import meaning, remedy
from .stalls import StallRow, Stalls

_REASONS, _WIDE = 3, 100
"""Reasons in a row; one fewer on terminals of fewer columns."""
_LEAST = 0.05
"""Reasons with a smaller share of the row are not explained below."""


def text(found: Stalls, width: int | None = None, top: int | None = 50) -> str:
    """The tables, one per kernel, and below them the meanings of the reasons.

    Args:
        found: the rows.
        width: columns; None for this terminal's.
        top: rows of each kernel; None for all.
    """
    width = terminal_width(width)
    lines = [f"{counted(found.total, 'sample')}, one per SM sub-partition and {found.period:,} cycles"]
    if not found.rows:
        return "no samples: no kernel ran while stalls were sampled"
    explained: dict[str, None] = {}
    kernels = dict.fromkeys("" if found.by == "kernel" else row.kernel for row in found.rows)
    for kernel in kernels:
        rows = [row for row in found.rows if not kernel or row.kernel == kernel]
        shown = rows[:top]
        lines.append("")
        if kernel:
            lines.append(cut(f"{kernel}: {counted(sum(row.samples for row in rows), 'sample')}", width))
        lines += _table(found.by, shown, width)
        if len(shown) < len(rows):
            lines.append(f"  + {len(rows) - len(shown):,} more rows with fewer samples")
        explained |= dict.fromkeys(_main(shown))
    if explained:
        lines.append("")
    for reason in explained:
        if meaning(reason):
            lines += wrapped(f"{reason}: {meaning(reason)}; {remedy(reason)}", width, "  ")
    for one in found.unresolved:
        lines += wrapped(f"! {one}: its clock reads could not be found in the code, so it has no samples", width)
    for one in found.unknown:
        lines += wrapped(f"! {one}", width)
    if found.dropped:
        lines += wrapped(f"! the hardware dropped {found.dropped:,} samples: record with a longer --period", width)
    return "\n".join(lines)


def reasons_text(row: StallRow | Line, most: int = _REASONS) -> str:
    """long_scoreboard 95%, wait 3%"""
    shown = list(row.reasons.items())[:most]
    return ", ".join(f"{name} {count / row.samples:.0%}" for name, count in shown if count / row.samples >= 0.005)


def _table(by: str, rows: list[StallRow], width: int) -> list[str]:
    columns = {
        "samples": [f"{row.samples:,}" for row in rows],
        "share": [part_text(row.share) for row in rows],
        "between reads": [f"{row.between_reads:,}" if row.between_reads >= 0 else "-" for row in rows],
        "per execution": [f"{row.per_execution:.3g}" if row.executions else "-" for row in rows],
        "issued": [part_text(row.issued) for row in rows],
        "stalled": [part_text(row.stalled) for row in rows],
        "where": [row.where for row in rows],
        "waits for": [reasons_text(row, _REASONS - (width < _WIDE)) for row in rows],
    }
    if not any(row.executions for row in rows):
        del columns["per execution"]
    if all(row.between_reads < 0 for row in rows):
        del columns["between reads"]
    if not any(row.where for row in rows):
        del columns["where"]
    head, *lines = grid(by, [row.name for row in rows], columns, width, ("stalled", "per execution", "issued", "where"))
    return [head, *(one for row, line in zip(rows, lines, strict=True) for one in (line, *_instructions(row, width)))]


def _instructions(row: StallRow, width: int) -> list[str]:
    """The region's most sampled instructions, each with its share of the region's samples."""
    return [
        cut(f"    {part_text(one.samples / row.samples):>6}  {one.name}{one.where and f' ({one.where})'}", width)
        for one in row.instructions
    ]


def _main(rows: Iterable[StallRow]) -> list[str]:
    """The reasons that explain most of the rows' samples, most first."""
    total = Counter[str]()
    for row in rows:
        total.update(row.reasons)
    every = sum(row.samples for row in rows) or 1
    return [name for name, count in total.most_common() if count / every >= _LEAST]
