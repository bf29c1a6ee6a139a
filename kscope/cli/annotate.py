"""`kscope annotate CAPTURE`: the source with its stall samples, in the terminal or as a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ..analysis.samples import annotated as analysis
from ..analysis.samples.named_lines import with_named_lines
from ..analysis.samples.stalls_text import reasons_text
from ..report.annotate import page
from ..util.terminal import cut, part_text, terminal_width, time_text
from ..util.text import counted
from .common import filters, json_output, outputs
from .common.command_parser import Command
from .stalls import add_capture, add_mark, load_samples

_WIDE = 110
"""Least columns of a terminal that also shows each line's executed instructions and registers."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("annotate", annotate)
    add_capture(parser)
    add_mark(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write a page (.html) instead of printing")
    json_output.add(parser)


def annotate(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if options.output is not None:
        outputs.check_distinct("-o", options.output, options.capture)
    capture, samples, marks = load_samples(options)
    trace, samples = capture.trace, with_named_lines(samples, marks)
    with filters.busy_bar(len(samples.rows), "lines"):
        found = analysis.annotate(trace, samples)
    if options.json:
        print(json_output.answer(options, _data(found), trace))
    elif options.output is not None:
        outputs.text("-o", options.output, page(found, f"{options.capture.name}: where warps waited"))
    else:
        print("\n".join(_text(found, terminal_width())))
    return 0


def _data(found: analysis.Annotated) -> dict[str, object]:
    """The lines with samples only."""
    data = asdict(found)
    for file in data["files"]:
        file["lines"] = [line for line in file["lines"] if line["samples"]]
    return data


def _text(found: analysis.Annotated, width: int) -> Iterator[str]:
    more = width >= _WIDE
    kernels = ", ".join(cut(name, 60) for name in found.kernels)
    yield f"{counted(found.total, 'sample')} in {kernels}" if found.total else "no samples"
    for file in found.files:
        yield ""
        yield cut(f"{file.path}: {counted(file.samples, 'sample')}", width)
        if not file.known:
            yield f"  {analysis.UNREAD}"
        code = f"{'executed':>8}  {'registers':>9}  " if more else ""
        yield f"  {'share':>6}  {code}{'waits for':<26}  {'line':>5}"
        for line in file.lines:
            share = part_text(line.share) if line.samples else ""
            reasons = cut(reasons_text(line, 2), 26)
            executed = part_text(line.executed) if line.samples else ""
            code = f"{executed:>8}  {line.registers or '':>9}  " if more else ""
            yield cut(f"  {share:>6}  {code}{reasons:<26}  {line.number:>5}  {line.text}", width).rstrip()
            for one in line.begins:
                about = f"{one.name}: {time_text(one.mean_ns)} a time, {part_text(one.share)} of its warps' time"
                yield cut(f"  {'':>6}  {' ' * len(code)}{'':<26}  {'':>5}    ^ {about}", width)
    for name, count in found.elsewhere.items():
        yield cut(f"{name}: {counted(count, 'sample')} without a source line", width)
