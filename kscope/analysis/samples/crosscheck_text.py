"""Clocks beside samples as text for a terminal."""

from __future__ import annotations

import math

from ...util.terminal import cut, grid, part_text, terminal_width, wrapped
from .crosscheck import Crosscheck, Crossed

_MEANING = {
    "moved": "instructions of other source lines are inside the region, or its own are outside",
    "empty": "no instruction is between the clock readings: the compiler moved the work elsewhere",
    "partial": "the shares differ, but only some warps recorded, and all were sampled: record all warps and blocks",
    "perturbed": "the shares differ, and no moved instruction explains it: the marks change what they measure",
    "unknown": "the clock readings were not found in the code, nothing was sampled, or the shares differ and each warp "
    "has few samples: pass a shorter period",
    "pure": "the machine code has the region's instructions in it, and few others; there are no samples to compare",
    "lines": "the samples at the lines of --mark, wherever the compiler has put them; they are not compared",
}


def text(found: Crosscheck, width: int | None = None) -> str:
    """A table per kernel, and the moved instructions.

    Args:
        found: the rows.
        width: columns; None for this terminal's.
    """
    width = terminal_width(width)
    lines: list[str] = []
    for kernel in dict.fromkeys(row.kernel for row in found.rows):
        rows = [row for row in found.rows if row.kernel == kernel]
        lines += ["", cut(kernel, width)] if lines else [cut(kernel, width)]
        columns: dict[str, list[str]] = {
            "by clocks": [part_text(row.clocks) for row in rows],
            "by samples": [part_text(row.samples) for row in rows],
            "difference": [_points(row.samples - row.clocks) for row in rows],
            "+-": ["-" if math.isnan(row.margin) else f"{100 * row.margin:.2g}" for row in rows],
            "samples": [f"{row.count:,}" for row in rows],
            "verdict": [str(row.verdict) for row in rows],
        }
        lines += grid("region", [row.region for row in rows], columns, width, ("samples", "+-"))
        for row in rows:
            lines += _moved(row, width)
        for verdict in dict.fromkeys(row.verdict for row in rows if row.verdict in _MEANING):
            lines += wrapped(f"{verdict}: {_MEANING[verdict]}", width, "  ")
    lines += [line for text in found.problems for line in wrapped(f"! {text}", width)]
    return "\n".join(lines) or "no kernel has both records and samples"


def _moved(row: Crossed, width: int) -> list[str]:
    if row.verdict != "moved":
        return []
    lines = []
    inside, outside = row.moved
    if inside:
        what = "samples are at instructions" if row.count else "working instructions are"
        lines.append(f"  {row.region}: {row.moved_in:.0%} of its {what} of other lines:")
        lines += [f"    {one}" for one in row.foreign]
    if outside:
        what = "the samples at its lines" if row.count else "its lines' working instructions"
        lines.append(f"  {row.region}: {row.moved_out:.0%} of {what} are outside of it:")
        lines += [f"    {one}" for one in row.missing]
    return [cut(line, width) for line in lines]


def _points(difference: float) -> str:
    return "-" if math.isnan(difference) else f"{100 * difference:+.1f} points"
