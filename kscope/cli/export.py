"""`kscope export CAPTURE -o FILE`: write a capture as a timeline, a table or a flame graph."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError
from ..export import DEFAULT_LIMIT, FORMATS, MAX_SLICES, check, sample_rows
from ..export.view_options import GROUPS, PROCESSES, VIEW_OPTIONS
from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..util.text import is_number
from .common import filters, outputs
from .common.command_parser import Command
from .common.edges import add_edges, parse_edges

STDOUT = "-"


def add(command: Command) -> None:
    """Add the command to the parser."""
    formats = "\n".join(f"  {suffix:17} {form.description}{', or .gz' * form.gzip}" for suffix, form in FORMATS.items())
    parser = command(
        "export", export,
        description="Writes a capture in the format given by the suffix of FILE:\n" + formats,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    filters.add(parser)
    flag = parser.add_argument
    flag("-o", "--output", metavar="FILE", type=Path, help="file to write; its suffix is the format; - for stdout")
    flag("--format", metavar="SUFFIX", help="of -o -, such as csv or pftrace")
    about = f"the first N by time, or all (default: {DEFAULT_LIMIT:,} for timelines, else all)"
    flag("--limit", metavar="N", default="auto", type=limit_of, help=about)
    flag("--force", action="store_true", help=f"write a timeline of more than {MAX_SLICES:,} slices")
    flag("--progress", action=argparse.BooleanOptionalAction, help="show a bar (default: in a terminal)")
    add_edges(parser, "; for the critical path of a page")
    timelines = parser.add_argument_group("timelines")
    flag = timelines.add_argument
    flag("--group", metavar="BY", choices=GROUPS, help=f"how to group the warps of a launch: {', '.join(GROUPS)} (sm)")
    about = f"top level of the timeline: {', '.join(PROCESSES)}; with groups, an SM (block, warp) holds its launches"
    flag("--processes", metavar="WHAT", choices=PROCESSES, help=about)
    about = "omit cycles and exact ns from slices: smaller files"
    flag("--no-args", dest="args", action="store_false", default=None, help=about)
    about = "draw arrows between records of two regions with the same value; may be repeated"
    flag("--flow", dest="flows", nargs=2, metavar=("FROM", "TO"), action="append", help=about)
    about = "draw arrows between devices, where values are the other device's number; may be repeated"
    flag("--peer", dest="peers", nargs=2, metavar=("FROM", "TO"), action="append", help=about)


def export(options: argparse.Namespace) -> int:
    """Run the command. Raises UsageError before it reads the capture if the output cannot be written."""
    if options.output is None:
        trace = filters.filtered_trace(options)
        raise UsageError(f"expected -o FILE for these {len(trace):,} records, with a suffix of {', '.join(FORMATS)}")
    with _target(options) as output:
        return _export(options, output)


@contextmanager
def _target(options: argparse.Namespace) -> Generator[Path]:
    """The file to write; for stdout a temporary one, copied at the end."""
    if str(options.output) != STDOUT:
        if options.format is not None:
            raise UsageError(f"--format {options.format}: only for -o -; the suffix of {options.output} is the format")
        yield options.output
        return
    suffix = f".{(options.format or '').lstrip('.')}"
    if suffix == "." or sys.stdout.isatty():
        raise UsageError("-o -: expected --format SUFFIX, such as csv, and a stdout that is not a terminal")
    if suffix not in FORMATS and suffix.removesuffix(".gz") not in FORMATS:
        raise UsageError(f"--format {options.format}: expected one of {', '.join(one.lstrip('.') for one in FORMATS)}")
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        path = Path(folder, f"trace{suffix}")
        yield path
        sys.stdout.flush()
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def _export(options: argparse.Namespace, output: Path) -> int:
    outputs.check_distinct("-o", output, options.capture)
    check(output)
    trace = filters.filtered_trace(options)
    edges = parse_edges(options.edge)
    view = {name: getattr(options, name) for name in VIEW_OPTIONS if getattr(options, name) is not None}
    progress = sys.stderr.isatty() if options.progress is None else options.progress
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        written = trace.export(output, limit=options.limit, force=options.force, progress=progress, edges=edges, **view)
    for warning in caught:
        print(f"kscope: {warning.message}", file=sys.stderr)
    of = f" of {len(trace):,}" if written < len(trace) else ""
    stream = sys.stderr if str(options.output) == STDOUT else sys.stdout
    caveat = info(trace).caveat
    text = f"{options.output}: {written:,}{of} records, {output.stat().st_size:,} bytes"
    print(f"{text}; {caveat}" if caveat else text, file=stream)
    if stream is sys.stdout and (beside := _samples_of(trace, output)):
        print(beside)
    return 0


def _samples_of(trace: TraceData, output: Path) -> str:
    """The file of the samples that was written beside a table; empty if none was."""
    if not trace.samples or output.suffix not in sample_rows.FORMATS:
        return ""
    file = sample_rows.beside(output)
    return f"{file}: {len(trace.samples):,} samples of stalls, {file.stat().st_size:,} bytes"


def limit_of(text: str) -> int | str | None:
    """A limit of records as typed."""
    if text == "auto":
        return text
    if text == "all":
        return None
    if not is_number(text):
        raise argparse.ArgumentTypeError(f"{text}: expected a number of records, all, or auto")
    return int(text)
