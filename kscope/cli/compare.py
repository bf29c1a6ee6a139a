"""`kscope compare A B`: what became slower between two recordings."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path

from ..analysis.compare import Change, Comparison, Options, compare
from ..analysis.table import cut, grid, terminal, time_text, wrapped
from ..errors import UsageError
from .command import Command
from .filters import add_opening, json, opened

_UNITS = {"launch": "launches", "block": "blocks", "warp": "warps"}
SLOWER = 1
"""Exit code of --fail-slower if something is slower."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    default = Options()
    parser = command("compare", comparison, "what became slower between two captures")
    parser.add_argument("a", metavar="A", type=Path, help="the capture before")
    parser.add_argument("b", metavar="B", type=Path, help="the capture after")
    parser.add_argument(
        "--least", metavar="PART", default=f"{default.least:.0%}", help="smaller changes count as same (1%%)"
    )
    parser.add_argument("--level", metavar="PART", default=f"{default.level:.0%}", help="of the intervals (95%%)")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON")
    parser.add_argument(
        "--fail-slower", action="store_true", help=f"exit code {SLOWER} if a kernel or a region is slower"
    )
    add_opening(parser)


def comparison(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    settings = Options(level=_part("--level", options.level), least=_part("--least", options.least))
    a, b = (opened(path, options) for path in (options.a, options.b))
    found = compare(a, b, settings)
    if options.json:
        print(json(asdict(found)))
    else:
        print(text(found))
    slower = any(row.verdict == "slower" for row in (*found.kernels, *found.regions))
    return SLOWER if options.fail_slower and slower else 0


def text(found: Comparison, width: int | None = None) -> str:
    """The comparison for a terminal."""
    width = terminal(width)
    rows = [*found.kernels, *found.regions]
    if not rows:
        return "no records in either"
    several = len({row.kernel for row in rows}) > 1
    names = [f"{row.kernel}: {row.region}" if several else row.region for row in rows]
    columns: dict[str, list[str]] = {
        "a": [time_text(row.a_mean_ns) for row in rows],
        "b": [time_text(row.b_mean_ns) for row in rows],
        "change": [_signed(row.change) for row in rows],
        "interval": [_interval(row) for row in rows],
        "count": [_pair(row.a_count, row.b_count) for row in rows],
        "drawn": [f"{_pair(row.a_units, row.b_units)} {_unit(row)}" for row in rows],
        "verdict": [row.verdict for row in rows],
    }
    lines = grid("mean of", names, columns, width, ("count", "drawn", "interval"))
    lines += ["", f"verdict: {found.verdict}"]
    if found.kernels and max(min(row.a_units, row.b_units) for row in found.kernels) == 1:
        lines += wrapped("one launch on a side: intervals cover differences between blocks, not runs", width)
    lines += [line for one in found.problems for line in wrapped(f"! {one}", width)]
    return "\n".join(cut(line, width) for line in lines)


def _signed(part: float) -> str:
    return "-" if math.isnan(part) else f"{part:+.1%}"


def _interval(row: Change) -> str:
    return "-" if math.isnan(row.low) else f"{row.low:+.1%} to {row.high:+.1%}"


def _unit(row: Change) -> str:
    return row.unit if row.a_units == row.b_units == 1 else _UNITS[row.unit]


def _pair(a: int, b: int) -> str:
    return f"{a:,}" if a == b else f"{a:,} / {b:,}"


def _part(flag: str, typed: str) -> float:
    number, percent = (typed[:-1], 100.0) if typed.endswith("%") else (typed, 1.0)
    try:
        return float(number) / percent
    except ValueError:
        raise UsageError(f"{flag} {typed}: expected a part, such as 5% or 0.05") from None
