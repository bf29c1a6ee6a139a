"""`kscope crosscheck CAPTURE`: each region's share by the marks' clocks beside its share by samples."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..analysis.samples import crosscheck as analysis
from .common import filters, json_output
from .common.command_parser import Command
from .stalls import add_capture, add_mark, sampled

DISAGREES = 1
"""Exit code if a region's measures do not agree, or nothing could be compared."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("crosscheck", crosscheck, epilog=f"Exit code {DISAGREES} if a region does not agree.")
    add_capture(parser)
    add_mark(parser, "show the share of samples at these source lines as well; may be repeated")
    json_output.add(parser)


def crosscheck(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    capture, samples, lines = sampled(options)
    trace = capture.trace
    with filters.computing(len(trace), "shares"):
        found = analysis.crosscheck(trace, samples, lines)
    json_output.show(options, lambda: asdict(found) | {"agrees": found.agrees}, lambda: found, trace)
    return 0 if found.agrees else DISAGREES
