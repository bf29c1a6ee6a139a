"""`kscope crosscheck CAPTURE`: compares each region's share by the marks' clocks with its share by samples."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from ..analysis.samples import crosscheck as analysis
from ..capture.samples import SampledFunction, Samples
from ..errors import UsageError
from ..instrument.selection.auto import Lines
from ..machine_code import code_map, tools
from ..util import bounded_reading
from .common import filters, json_output
from .common.command_parser import Command
from .stalls import add_capture, add_mark, load_samples

DISAGREES = 1
"""Exit code if a region's measures do not agree, or nothing could be compared."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("crosscheck", crosscheck, epilog=f"Exit code {DISAGREES} if a region does not agree.")
    add_capture(parser)
    about = "judge the regions by this machine code alone, without samples"
    parser.add_argument("--code", metavar="CUBIN", type=Path, help=about)
    add_mark(parser, "show the share of samples at these source lines as well; may be repeated")
    json_output.add(parser)


def crosscheck(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    capture, samples, lines = _of_code(options) if options.code is not None else load_samples(options, needed=False)
    trace = capture.trace
    with filters.busy_bar(len(trace), "shares"):
        found = analysis.crosscheck(trace, samples, lines)
    json_output.show(options, lambda: asdict(found) | {"agrees": found.agrees}, lambda: found, trace)
    return 0 if found.agrees else DISAGREES


def _of_code(options: argparse.Namespace) -> tuple[filters.Undecoded, Samples, list[Lines]]:
    """A capture, and the machine code of its kernels in place of samples."""
    if options.mark:
        raise UsageError(f"--mark {options.mark[0]}: shows samples, and --code has none; give one of them")
    data = bounded_reading.read_bytes(options.code)
    sought = [SampledFunction(symbol, number) for symbol, number in tools.builds_in(data).items()]
    if not sought:
        raise UsageError(f"--code {options.code}: not a cubin of kernels with marks")
    functions = tuple(code_map.with_instructions(sought, data, *code_map.marks_of(tools.modules_in(data))))
    return filters.open_lazily(options.capture, options), Samples(1, functions=functions), []
