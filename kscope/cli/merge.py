"""`kscope merge CAPTURE --torch TRACE -o FILE`: one timeline of a capture and a trace of torch.profiler."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..analysis.table import cut
from ..export import DEFAULT_LIMIT
from ..util.text import counted
from . import filters, outputs
from .command import Command
from .export import limit_of


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "merge", merge, "put a capture and a trace of torch.profiler on one timeline",
        description="Writes one timeline: torch.profiler's events as they are, and kscope's rows below their stream. "
        "Launches pair by kernel and order; how exact the shared axis is, is printed.",
    )  # fmt: skip
    parser.add_argument("capture", metavar="CAPTURE", type=Path, help="a .kscope file; - for stdin")
    parser.add_argument(
        "--torch", metavar="TRACE", type=Path, required=True, help="what p.export_chrome_trace() wrote: .json, .json.gz"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="file to write: .pftrace or .json, or with .gz"
    )
    parser.add_argument(
        "--limit", metavar="N", default=DEFAULT_LIMIT, type=limit_of,
        help=f"the first N records by time, or all (default: {DEFAULT_LIMIT:,})",
    )  # fmt: skip
    parser.add_argument("--max-bytes", metavar="SIZE", help="memory limit for a capture that you trust: 24GiB")
    parser.set_defaults(reader=None, names=None)


def merge(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from ..merging import entry, torch  # not needed by other commands

    outputs.apart("-o", options.output, options.capture, options.torch)
    torch.checked(options.output)
    trace = filters.opened(options.capture, options)
    found = entry.merge(trace, options.torch)
    limit = DEFAULT_LIMIT if options.limit == "auto" else options.limit
    with filters.watched(len(trace), options.output.name) as step:
        written = found.write(options.output, limit, step)
    for problem in found.trace.problems:
        print(f"kscope: {cut(problem.text, 2000)}", file=sys.stderr)
    of = f" of {len(trace):,}" if written < len(trace) else ""
    launches = f"{found.paired:,} of {counted(len(trace.launches), 'launch')} paired"
    print(f"{options.output}: {written:,}{of} records, {options.output.stat().st_size:,} bytes; {launches}")
    for bound in found.bounds:
        print(bound)
    return 0
