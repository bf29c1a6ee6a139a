"""`kscope merge`: one timeline of a capture and a trace of torch.profiler, or of the captures of a job's ranks.

kscope merge step.kscope --torch trace.json.gz -o step.pftrace
kscope merge run/ -o run.pftrace --ranks 0-7
kscope merge run/ -o records/
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import UsageError
from ..export import DEFAULT_LIMIT
from ..util.terminal import cut, time_text
from ..util.text import counted
from .common import filters, outputs
from .common.command_parser import Command
from .common.numbers import members
from .export import limit_of
from .ranks import add_collective


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "merge", merge,
        description="Writes one timeline: of a capture and torch.profiler's trace, with kscope's rows below their "
        "stream; or of all ranks in a folder. Prints how exact the shared axis is.",
    )  # fmt: skip
    about = "a .kscope file, - for stdin; or a folder with one for each rank"
    parser.add_argument("capture", metavar="CAPTURE", type=Path, help=about)
    about = "what p.export_chrome_trace() wrote: .json, .json.gz"
    parser.add_argument("--torch", metavar="TRACE", type=Path, help=about)
    parser.add_argument("--nsys", metavar="REPORT", type=Path, help="what nsys export --type sqlite wrote")
    parser.add_argument("--ranks", metavar="LIST", help="for a folder: only these ranks, such as 0-7")
    parser.add_argument("--launch", metavar="N", type=int, help="for a folder: only launch N of each rank, from 0")
    add_collective(parser)
    about = "file to write: .pftrace or .json, or with .gz; for a folder also FOLDER/, for kscope query"
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help=about)
    about = f"the first N records by time, or all (default: {DEFAULT_LIMIT:,})"
    parser.add_argument("--limit", metavar="N", default=DEFAULT_LIMIT, type=limit_of, help=about)
    parser.add_argument(
        "--peer", nargs=2, metavar=("FROM", "TO"), action="append", default=[],
        help="for a folder: arrows between ranks, from region FROM with value=rank to the end of region TO of that "
        "rank with value=this rank; may be repeated",
    )  # fmt: skip
    parser.add_argument("--max-bytes", metavar="SIZE", help="memory limit for a capture that you trust: 24GiB")
    parser.set_defaults(reader=None, names=None)


def merge(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from ..merging import entry, torch  # not needed by other commands

    if options.capture.is_dir():
        return _ranks(options)
    if (options.torch is None) == (options.nsys is None):
        raise UsageError(
            f"{options.capture}: expected --torch TRACE or --nsys REPORT beside it, or a folder with captures of ranks"
        )
    outputs.check_distinct("-o", options.output, options.capture, options.torch, options.nsys)
    torch.check_output(options.output)
    trace = filters.open_trace(options.capture, options)
    found = entry.merge(trace, options.torch, nsys=options.nsys)
    limit = DEFAULT_LIMIT if options.limit == "auto" else options.limit
    with filters.progress(len(trace), options.output.name) as step:
        written = found.write(options.output, limit, step)
    for problem in found.trace.problems:
        print(f"kscope: {cut(problem.text, 2000)}", file=sys.stderr)
    of = f" of {len(trace):,}" if written < len(trace) else ""
    launches = f"{found.paired:,} of {counted(len(trace.launches), 'launch')} paired"
    print(f"{options.output}: {written:,}{of} records, {options.output.stat().st_size:,} bytes; {launches}")
    for bound in found.bounds:
        print(bound)
    return 0


def _ranks(options: argparse.Namespace) -> int:
    """Merge a folder."""
    from ..merging import torch
    from ..merging.ranks import dataset, gpus, timeline

    if options.torch is not None:
        raise UsageError(
            f"--torch {options.torch}: merge a rank's capture with its torch trace, or a folder without one"
        )
    ranks = None if options.ranks is None else members("--ranks", options.ranks)
    files = gpus.captures(options.capture)
    found: dataset.Dataset | timeline.Ranks
    if options.output.suffix:
        torch.check_output(options.output)
        found = timeline.merge_ranks(files, ranks, options.launch, options.collective)
        limit = DEFAULT_LIMIT if options.limit == "auto" else options.limit
        written = found.trace.export(options.output, limit=limit, peers=options.peer)
    else:
        found = dataset.write_dataset(files, options.output, ranks, options.launch, options.collective)
        written = found.records
    print(f"{options.output}: {written:,} records of {counted(len(found.gpus), 'GPU')}")
    for gpu, bound in zip(found.gpus[1:], found.bounds[1:], strict=True):
        print(f"rank {gpu.rank}: within \N{PLUS-MINUS SIGN}{time_text(bound)} of rank {found.gpus[0].rank}")
    return 0
