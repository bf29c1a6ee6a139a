"""`kscope occupancy CAPTURE`: occupancy of each SM over time, waves of blocks and the tail."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..analysis import occupancy as analysis
from .common import filters, json_output
from .common.command_parser import Command

_BINS, _JSON_BINS = 40, 64


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("occupancy", occupancy)
    filters.add(parser)
    json_output.add(parser)


def occupancy(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace = filters.filtered_trace(options)
    with filters.busy_bar(len(trace), "occupancy"):
        found = analysis.occupancy(trace, _JSON_BINS if options.json else _BINS)
    rows = {"launches": list(map(asdict, found.launches)), "sms": list(map(asdict, found.sms))}
    json_output.show(options, lambda: {**rows, "over_time": asdict(found.over_time)}, lambda: found, trace)
    return 0
