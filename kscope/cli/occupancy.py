"""`kscope occupancy CAPTURE`: occupancy of each SM over time, waves of blocks and the tail."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..analysis import occupancy as analysis
from . import filters
from .command import Command

_BINS, _JSON_BINS = 40, 64


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("occupancy", occupancy, "warps alive per SM over time, waves of blocks and the tail")
    filters.add(parser)
    parser.add_argument("--json", action="store_true", help="launches, SMs and SM x time as JSON")


def occupancy(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    found = analysis.occupancy(filters.read(options), _JSON_BINS if options.json else _BINS)
    if not options.json:
        print(found)
        return 0
    rows: dict[str, object] = {
        "recorded": found.recorded.to_dict(),
        "launches": [asdict(row) for row in found.launches],
    }
    print(filters.json({**rows, "sms": [asdict(row) for row in found.sms], "over_time": asdict(found.over_time)}))
    return 0
