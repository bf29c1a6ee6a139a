"""`kscope export CAPTURE -o FILE`: a capture as a file for a viewer or a table.

What lives here: the command. What does not: formats (export/), which records (selecting.py).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

from ..export import FORMATS, HUGE, LIMIT, check
from ..export.view import GROUPS, PROCESSES
from . import outputs, selecting
from .options import is_number

STRICT = 3
"""Exit code of --strict where the data has problems."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the grammar."""
    formats = "\n".join(f"  {suffix:17} {form.what}{', or .gz' * form.packed}" for suffix, form in FORMATS.items())
    parser = commands.add_parser(
        "export", parents=[common], help="turn a capture into a timeline, a table or a flame graph", allow_abbrev=False,
        description="Writes a capture as what the suffix of FILE says:\n" + formats,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    selecting.add(parser)
    flag = parser.add_argument
    flag("-o", "--output", metavar="FILE", type=Path, required=True, help="what to write, by suffix")
    flag(
        "--limit", metavar="N", default="auto", type=_limit,
        help=f"the first N by time, or all (default: {LIMIT:,} for timelines, else all)",
    )  # fmt: skip
    flag("--force", action="store_true", help=f"a timeline of more than the {HUGE:,} slices that a viewer opens")
    flag("--progress", action=argparse.BooleanOptionalAction, help="show a bar (default: in a terminal)")
    timelines = parser.add_argument_group("timelines")
    flag = timelines.add_argument
    flag("--group", metavar="BY", choices=GROUPS, help=f"what holds the lanes of a launch: {', '.join(GROUPS)} (sm)")
    flag(
        "--processes", metavar="WHAT", choices=PROCESSES,
        help=f"what viewers fold first: {', '.join(PROCESSES)}; with groups an SM (or block, warp) holds its launches",
    )  # fmt: skip
    flag(
        "--no-args", dest="args", action="store_false", default=None, help="slices without cycles and exact ns: smaller"
    )
    flag(
        "--flow", dest="flows", nargs=2, metavar=("FROM", "TO"), action="append",
        help="arrows from one region's records to those of another with the same value; may be given again",
    )  # fmt: skip
    parser.set_defaults(command=export)


def export(options: argparse.Namespace) -> int:
    """Runs the command. Raises UsageError, before the capture is read, where the file cannot be written."""
    outputs.apart("-o", options.output, options.capture)
    check(options.output)
    trace = selecting.read(options)
    chosen = ("group", "processes", "args", "flows")
    shown = {name: getattr(options, name) for name in chosen if getattr(options, name) is not None}
    progress = sys.stderr.isatty() if options.progress is None else options.progress
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        written = trace.export(options.output, limit=options.limit, force=options.force, progress=progress, **shown)
    for warning in caught:
        print(f"kscope: {warning.message}", file=sys.stderr)
    of = f" of {len(trace):,}" if written < len(trace) else ""
    print(f"{options.output}: {written:,}{of} records, {options.output.stat().st_size:,} bytes")
    return 0


def _limit(text: str) -> int | str | None:
    if text == "auto":
        return text
    if text == "all":
        return None
    if not is_number(text):
        raise argparse.ArgumentTypeError(f"{text}: expected a number of records, all, or auto")
    return int(text)
