"""`kscope assert CAPTURE EXPR ...`: conditions for continuous integration, and an exit code."""

from __future__ import annotations

import argparse
from typing import Any

from ..analysis import checks
from ..analysis.expressions import Outcome
from ..util.terminal import terminal_width
from .common import filters, json_output
from .common.command_parser import Command

FAILED = 1
"""Exit code if a condition does not hold."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "assert", check,
        description=f"Exit code 0 if all conditions hold, {FAILED} if one does not, 2 if one cannot be parsed.",
        epilog=checks.__doc__.split("\n\n")[1] if checks.__doc__ else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    filters.add(parser)
    parser.add_argument("conditions", metavar="EXPR", nargs="+", help="a condition")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only conditions that do not hold")
    json_output.add(parser)


def check(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace = filters.filtered_trace(options)
    with filters.busy_bar(len(trace), "conditions"):
        found = checks.check(trace, options.conditions)
    if options.json:
        print(json_output.answer(options, {"conditions": [_plain(one) for one in found]}, trace))
    else:
        shown = [_line(one) for one in found if not (one.holds and options.quiet)]
        print("\n".join([*filters.caveat(trace, terminal_width()), *shown]) if shown else "", end="\n" * bool(shown))
    return 0 if all(one.holds for one in found) else FAILED


def _line(one: Outcome) -> str:
    seen = ", ".join(f"{name} = {value}" for name, value in one.seen)
    unknown = f"; not known: {', '.join(one.unknown)}" if one.unknown else ""
    return f"{'ok    ' if one.holds else 'FAILED'}  {one.text}    ({seen}{unknown})"


def _plain(one: Outcome) -> dict[str, Any]:
    seen = {name: {"value": value.value, "unit": "ns" if value.time else ""} for name, value in one.seen}
    return {"condition": one.text, "holds": one.holds, "seen": seen, "unknown": list(one.unknown)}
