"""`kscope ranks FOLDER`: which rank of a job came late to collectives, and what made it late."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from ..errors import UsageError
from ..util.terminal import grid, terminal_width, time_text
from .common import json_output
from .common.command_parser import Command

_TOP = 10
"""Ranks and launches without --top."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    about = "Reads the captures of a job's ranks, and compares when they arrived at each collective."
    parser = command("ranks", ranks, description=about)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the captures, one per rank")
    add_collective(parser)
    about = "durations of all ranks, from the files of kscope run --ranks --sketch"
    parser.add_argument("--sketch", action="store_true", help=about)
    about = f"ranks and launches to list ({_TOP}), and rows of each list of --json ({json_output.MOST})"
    json_output.add(parser, top=about)


def add_collective(parser: argparse.ArgumentParser) -> None:
    """Add --collective."""
    about = "kernels that no rank leaves before the last one has arrived (default: names such as *all_reduce*)"
    parser.add_argument("--collective", metavar="GLOB", action="append", default=[], help=f"{about}; may be repeated")


def ranks(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from ..merging.ranks import gpus, skew, skew_text  # not needed by other commands

    if not options.folder.is_dir():
        raise UsageError(f"{options.folder}: expected a folder with the captures of a job, one per rank")
    if options.sketch:
        return _sketches(options)
    found = skew.report(gpus.read_all(gpus.captures(options.folder)), options.collective)
    json_output.show(options, lambda: asdict(found), lambda: skew_text.text(found, options.top or _TOP))
    return 0


def _sketches(options: argparse.Namespace) -> int:
    from ..merging.ranks import sketches

    found = sketches.spreads(sketches.files(options.folder))
    if options.json:
        print(json_output.answer(options, {"rows": [asdict(row) for row in found]}))
        return 0
    shown = found[: options.top or 50]
    columns = {
        "role": [row.role for row in shown],
        "ranks": [f"{row.ranks:,}" for row in shown],
        "count": [f"{row.count:,}" for row in shown],
        "p50": [time_text(row.p50_ns) for row in shown],
        "p90": [time_text(row.p90_ns) for row in shown],
        "p99": [time_text(row.p99_ns) for row in shown],
        "slowest rank": [f"{row.slowest}: {time_text(row.slowest_ns)}, {row.times:.2f}x" for row in shown],
    }
    names = [f"{row.kernel}: {row.region}" for row in shown]
    print("\n".join(grid("region", names, columns, terminal_width(), ("ranks", "p90", "role"))))
    if len(found) > len(shown):
        print(f"  + {len(found) - len(shown):,} more rows with less time")
    return 0
