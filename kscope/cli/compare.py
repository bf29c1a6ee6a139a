"""`kscope compare A B`: what became slower between two recordings."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from ..analysis.compare import Options, compare
from ..errors import UsageError
from .common import json_output
from .common.command_parser import Command
from .common.filters import add_opening, busy_bar, open_trace

SLOWER = 1
"""Exit code of --fail-slower if something is slower."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    default = Options()
    parser = command("compare", comparison)
    parser.add_argument("a", metavar="A", type=Path, help="the capture before")
    parser.add_argument("b", metavar="B", type=Path, help="the capture after")
    about = "smaller changes count as same (1%%)"
    parser.add_argument("--least", metavar="PART", default=f"{default.least:.0%}", help=about)
    parser.add_argument("--level", metavar="PART", default=f"{default.level:.0%}", help="of the intervals (95%%)")
    json_output.add(parser)
    about = f"exit code {SLOWER} if a kernel or a region is slower"
    parser.add_argument("--fail-slower", action="store_true", help=about)
    add_opening(parser)


def comparison(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    settings = Options(level=_part("--level", options.level), least=_part("--least", options.least))
    a, b = (open_trace(path, options) for path in (options.a, options.b))
    with busy_bar(len(a) + len(b), "compare"):
        found = compare(a, b, settings)
    rows = {name: value for name, value in asdict(found).items() if name != "recorded"}  # part of answer()
    json_output.show(options, lambda: rows, lambda: found, a, b)
    slower = any(row.verdict == "slower" for row in (*found.kernels, *found.regions))
    return SLOWER if options.fail_slower and slower else 0


def _part(flag: str, typed: str) -> float:
    number, percent = (typed[:-1], 100.0) if typed.endswith("%") else (typed, 1.0)
    try:
        return float(number) / percent
    except ValueError:
        raise UsageError(f"{flag} {typed}: expected a fraction, such as 5% or 0.05") from None
