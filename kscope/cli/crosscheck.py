"""`kscope crosscheck CAPTURE`: compares each region's share by the marks' clocks with its share by samples."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..analysis.samples import crosscheck as analysis
from .common import filters, json_output
from .common.command_parser import Command
from .stalls import add_capture, sampled

DISAGREES = 1
"""Exit code if a region's measures do not agree, or nothing could be compared."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("crosscheck", crosscheck, epilog=f"Exit code {DISAGREES} if a region does not agree.")
    add_capture(parser)
    json_output.add(parser)


def crosscheck(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    capture, samples = sampled(options)
    trace = capture.trace
    with filters.computing(len(trace), "shares"):
        found = analysis.crosscheck(trace, samples)
    json_output.show(options, lambda: asdict(found) | {"agrees": found.agrees}, lambda: found, trace)
    return 0 if found.agrees else DISAGREES
