"""`kscope ranks FOLDER`: which rank of a job came late to collectives, and what made it late."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UsageError
from . import answers
from .command import Command

_TOP = 10
"""Ranks and launches without --top."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "ranks", ranks, "which rank of a job came late to collectives, and why",
        description="Reads the captures of a job's ranks, and compares when they came to each launch of a collective.",
    )  # fmt: skip
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the captures, one per rank")
    parser.add_argument(
        "--collective", metavar="GLOB", action="append", default=[],
        help="kernels that no rank leaves before the last one has arrived (names such as all_reduce, barrier); may be "
        "repeated",
    )  # fmt: skip
    answers.add(parser, top=f"ranks and launches to list ({_TOP}), and rows of each list of --json ({answers.MOST})")


def ranks(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from ..merging import seats, skew, skew_text  # not needed by other commands

    if not options.folder.is_dir():
        raise UsageError(f"{options.folder}: expected a folder with the captures of a job, one per rank")
    found = skew.report(seats.seats(seats.captures(options.folder)), options.collective)
    if options.json:
        print(answers.answer(options, found.to_dict()))
    else:
        print(skew_text.text(found, options.top or _TOP))
    return 0
