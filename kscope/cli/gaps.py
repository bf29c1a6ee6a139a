"""`kscope gaps`, `kscope overlap` and `kscope path`: causes of gaps, concurrency, and the critical path."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..analysis import idle
from ..analysis import overlap as overlap_analysis
from ..analysis.critical_path import candidates, critical_path
from ..analysis.pipelines.events import has_records
from ..errors import UsageError
from ..util.text import is_number
from .common import filters, json_output
from .common.command_parser import Command
from .common.edges import add_edges, parse_edges

_GAPS = 10
"""Single gaps without --top."""


def add(command: Command) -> None:
    """Add the commands to the parser."""
    parser = command("gaps", gaps)
    filters.add(parser)
    filters.add_roles(parser)
    parser.add_argument("--of", metavar="REGION", help="gaps within this region instead of time in no region")
    words = ", ".join(overlap_analysis.WAIT_WORDS)
    parser.add_argument("--wait", metavar="REGION", action="append", help=f"a region that waits (names with {words})")
    json_output.add(parser, top=f"single gaps to list ({_GAPS}), and rows of each list of --json ({json_output.MOST})")
    matrix = command("overlap", overlap)
    filters.add(matrix)
    filters.add_roles(matrix)
    json_output.add(matrix)
    about = "Walks back from the block's last region: along warps, and over edges from a wait to its signal."
    path = command("path", critical, description=about)
    filters.add(path)
    add_edges(path)
    json_output.add(path)


def gaps(options: argparse.Namespace) -> int:
    """Run `kscope gaps`; returns the exit code."""
    trace, roles = filters.filtered_trace(options), filters.roles(options.role)
    with filters.progress(len(trace), "waits") as step:
        found = idle.gaps(trace, of=options.of, wait=options.wait, roles=roles, top=options.top or _GAPS, step=step)
    lists = ("between", "longest", "waits", "barriers")
    json_output.show(
        options, lambda: {name: list(map(asdict, getattr(found, name))) for name in lists}, lambda: found, trace
    )
    return 0


def overlap(options: argparse.Namespace) -> int:
    """Run `kscope overlap`; returns the exit code."""
    trace, roles = filters.filtered_trace(options), filters.roles(options.role)
    with filters.progress(len(trace), "overlap") as step:
        found = overlap_analysis.overlap(trace, roles, step)
    text = "\n\n".join(map(str, found)) or "no records"
    json_output.show(options, lambda: {"kernels": [asdict(one) for one in found]}, lambda: text, trace)
    return 0


def critical(options: argparse.Namespace) -> int:
    """Run `kscope path`; returns the exit code.

    Raises:
        UsageError: several launches or blocks.
    """
    edges = parse_edges(options.edge)
    launch, block = _launch(options.launch), options.block or 0
    options.launch = options.block = None
    trace = filters.filtered_trace(options)
    if not edges and not has_records(trace):
        raise UsageError(
            f'expected --edge SIGNAL:WAIT, such as --edge load:wait_full, or a capture with auto="pipeline"; '
            f"{candidates(trace)}"
        )
    with filters.busy_bar(len(trace), "path"):
        found = critical_path(trace, edges, launch, block)
    json_output.show(options, lambda: asdict(found), lambda: found, trace)
    return 0


def _launch(typed: list[str] | None) -> int:
    if typed is not None and (len(typed) > 1 or not is_number(typed[0])):
        raise UsageError(f"--launch {' '.join(typed)}: expected one number; a path goes through one launch")
    return int(typed[0]) if typed else 0
