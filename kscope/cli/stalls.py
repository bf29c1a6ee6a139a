"""`kscope stalls CAPTURE`: where warps waited, and why."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..analysis.samples import stalls as analysis
from ..analysis.samples import stalls_text
from ..analysis.samples.named_lines import unsampled_ranges, with_named_lines
from ..analysis.samples.reasons import meaning, remedy
from ..capture.samples import Samples
from ..errors import UsageError
from ..export import sample_rows
from ..instrument.selection.auto import Lines
from ..util.text import nearest
from .common import filters, json_output, outputs
from .common.command_parser import Command

_NAMED = "name these source lines as a region, in kernels without marks; may be repeated"


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("stalls", stalls)
    add_capture(parser)
    add_mark(parser)
    parser.add_argument("--by", metavar="KEY", choices=analysis.KEYS, default="region",
                        help=f"rows: {', '.join(analysis.KEYS)} (default: region)")  # fmt: skip
    formats = ", ".join(sample_rows.FORMATS)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path,
                        help=f"write all samples as a table ({formats}) instead of printing")  # fmt: skip
    json_output.add(parser, top=f"the N most sampled rows of each kernel (table: 50, JSON: {json_output.MOST})")


def add_capture(parser: argparse.ArgumentParser) -> None:
    """Add CAPTURE and --kernel."""
    parser.add_argument("capture", metavar="CAPTURE", type=Path, help="a .kscope file; - for stdin")
    parser.add_argument("--kernel", metavar="GLOB", action="append", help="only these: 'attn_*'; may be repeated")
    filters.add_opening(parser)


def add_mark(parser: argparse.ArgumentParser, about: str = _NAMED) -> None:
    """Add --mark."""
    parser.add_argument("--mark", metavar="NAME=FILE:FIRST-LAST", action="append", default=[], help=about)


def load_samples(options: argparse.Namespace, *, needed: bool = True) -> tuple[filters.Undecoded, Samples, list[Lines]]:
    """A capture, its samples, of the kernels that --kernel names, and the lines of --mark.

    Args:
        options: the command line.
        needed: whether kernels without any sample are of no use.

    Raises:
        UsageError: the capture has no samples, no kernel has such a name, or nothing was sampled at the lines.
    """
    capture = filters.open_lazily(options.capture, options)
    samples = capture.samples
    if samples is None:
        raise UsageError(
            f"{options.capture}: no samples of stalls; record with kscope run --stalls SCRIPT, "
            f"kscope.profile(stalls=True), or kscope sample SCRIPT{'' if needed else '; --code CUBIN needs none'}"
        )
    if needed and not samples:
        raise UsageError(f"{options.capture}: no stall was sampled; kscope info {options.capture} says why")
    if options.kernel:
        names = [function.name for function in samples.functions]
        for glob in options.kernel:
            if not any(fnmatchcase(name, glob) for name in names):
                raise UsageError(f"--kernel {glob}: no sampled kernel has this name{nearest(glob, names)}")
        kept = (number for number, name in enumerate(names) if any(fnmatchcase(name, glob) for glob in options.kernel))
        samples = samples.of(kept)
    marks = [Lines.of(text) for text in options.mark]
    for text in unsampled_ranges(samples, marks):
        raise UsageError(f"--mark {text}")
    return capture, samples, marks


def stalls(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    capture, samples, marks = load_samples(options)
    samples = with_named_lines(samples, marks)
    if options.output is not None:
        outputs.check_distinct("-o", options.output, options.capture)
        count = sample_rows.write(samples, options.output)
        print(f"{options.output}: {count:,} rows, {options.output.stat().st_size:,} bytes")
        return 0
    executions = analysis.executions(capture.trace) if options.by == "region" else {}
    with filters.busy_bar(len(samples.rows), "samples"):
        found = analysis.stalls(samples, options.by, executions)
    recorded = [capture.trace] if options.json else []
    json_output.show(options, lambda: _data(found), lambda: stalls_text.text(found, top=options.top or 50), *recorded)
    return 0


def _data(found: analysis.Stalls) -> dict[str, Any]:
    used = dict.fromkeys(reason for row in found.rows for reason in row.reasons)
    reasons = {one: {"meaning": meaning(one), "remedy": remedy(one)} for one in used}
    return asdict(found) | {"rows": found.to_dicts(), "reasons": reasons}
