"""Rates of regions as text for a terminal."""

from __future__ import annotations

import math

from ..util.terminal import cut, grid, part_text, terminal_width, time_text, wrapped
from .rates import Rate, Rates


def text(found: Rates, width: int | None = None, top: int | None = 50) -> str:
    """A table per kernel.

    Args:
        found: the rows.
        width: columns; None for this terminal's.
        top: rows of each kernel; None for all.
    """
    width = terminal_width(width)
    lines: list[str] = []
    for kernel in dict.fromkeys(row.kernel for row in found.rows):
        rows = [row for row in found.rows if row.kernel == kernel][:top]
        lines += ["", cut(kernel, width)] if lines else [cut(kernel, width)]
        columns = {
            "busy": [time_text(row.busy_ns) for row in rows],
            "bytes": [_amount(row.bytes, row) for row in rows],
            "GB/s": [_number(row.bandwidth) for row in rows],
            "shared GB/s": [_number(row.shared_bandwidth) for row in rows],
            "flops": [_amount(row.flops, row) for row in rows],
            "TFLOP/s": [_number(row.speed / 1e3) for row in rows],
            "flops/byte": [_number(row.intensity) for row in rows],
            "of the roof": [f"{part_text(row.part)} {row.roof}".strip() for row in rows],
        }
        if found.peaks is None:
            del columns["of the roof"]
        if not any(row.shared > 0 for row in rows):  # NaN is not
            del columns["shared GB/s"]
        lines += grid("region", [row.region for row in rows], columns, width,
                      ("busy", "flops/byte", "flops", "bytes", "shared GB/s"))  # fmt: skip
        for row in rows:
            if row.unknown:
                lines += wrapped(f"{row.region}: not counted in the machine code: {row.unknown}", width, "  ")
        if any(row.most for row in rows):
            lines += wrapped("<=: instructions have a predicate, and lanes without it do less", width, "  ")
        if any(row.part > 1 for row in rows):
            about = "more than 100%: asynchronous work goes on after its region, or data is in caches"
            lines += wrapped(about, width, "  ")
        if not any(row.bytes_from or row.flops_from for row in rows):
            hint = "no amounts: mark regions with bytes= and flops=, pass --bytes and --flops, or record with --stalls"
            lines += wrapped(hint, width, "  ")
    if found.peaks is not None:
        lines += ["", *wrapped(f"roof: {found.peaks.gpu}, {found.peaks}", width)]
    lines += [line for one in found.problems for line in wrapped(f"! {one}", width)]
    return "\n".join(lines) or "no region was recorded"


def _amount(amount: float, row: Rate) -> str:
    if math.isnan(amount):
        return "-"
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= scale:
            return f"{'<= ' if row.most else ''}{amount / scale:.4g} {unit}"
    return f"{'<= ' if row.most and amount else ''}{amount:.0f}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.4g}"
