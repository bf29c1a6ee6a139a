"""`kscope crosscheck CAPTURE`: each region's share by the marks' clocks beside its share by samples."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict

from ..analysis import crosscheck as analysis
from ..analysis.table import cut, grid, part_text, terminal, wrapped
from . import answers, filters
from .command import Command
from .stalls import add_capture, sampled

DISAGREES = 1
"""Exit code if a region's measures do not agree, or nothing could be compared."""
_MEANING = {
    "moved": "instructions of other source lines are inside the region, or its own are outside",
    "empty": "no instruction is between the clock readings: the compiler moved the work elsewhere",
    "perturbed": "the shares differ, and no moved instruction explains it: the marks change what they measure, or "
    "not all warps record",
    "unknown": "the clock readings were not found in the code, or nothing was sampled",
}


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "crosscheck", crosscheck, "whether regions' times agree with samples, which know nothing of the marks",
        epilog=f"Exit code {DISAGREES} if a region does not agree.",
    )  # fmt: skip
    add_capture(parser)
    answers.add(parser)


def crosscheck(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace, samples = sampled(options)
    with filters.computing(len(trace), "shares"):
        found = analysis.crosscheck(trace, samples)
    if options.json:
        print(answers.answer(options, asdict(found) | {"agrees": found.agrees}, trace))
    else:
        print("\n".join(_text(found, terminal())))
    return 0 if found.agrees else DISAGREES


def _text(found: analysis.Crosscheck, width: int) -> list[str]:
    lines: list[str] = []
    for kernel in dict.fromkeys(row.kernel for row in found.rows):
        rows = [row for row in found.rows if row.kernel == kernel]
        lines += ["", cut(kernel, width)] if lines else [cut(kernel, width)]
        columns: dict[str, list[str]] = {
            "by clocks": [part_text(row.clocks) for row in rows],
            "by samples": [part_text(row.samples) for row in rows],
            "difference": [_points(row.samples - row.clocks) for row in rows],
            "+-": ["-" if math.isnan(row.margin) else f"{100 * row.margin:.2g}" for row in rows],
            "samples": [f"{row.count:,}" for row in rows],
            "verdict": [str(row.verdict) for row in rows],
        }
        lines += grid("region", [row.region for row in rows], columns, width, ("samples", "+-"))
        for row in rows:
            lines += _moved(row, width)
        for verdict in dict.fromkeys(row.verdict for row in rows if row.verdict in _MEANING):
            lines += wrapped(f"{verdict}: {_MEANING[verdict]}", width, "  ")
    lines += [line for text in found.problems for line in wrapped(f"! {text}", width)]
    return lines or ["no kernel has both records and samples"]


def _moved(row: analysis.Crossed, width: int) -> list[str]:
    if row.verdict != "moved":
        return []
    lines = []
    if row.moved_in > analysis.MOVED:
        lines.append(f"  {row.region}: {row.moved_in:.0%} of its samples are at instructions of other lines:")
        lines += [f"    {one}" for one in row.foreign]
    if row.moved_out > analysis.MOVED:
        lines.append(f"  {row.region}: {row.moved_out:.0%} of the samples at its lines are outside of it:")
        lines += [f"    {one}" for one in row.missing]
    return [cut(line, width) for line in lines]


def _points(difference: float) -> str:
    return "-" if math.isnan(difference) else f"{100 * difference:+.1f} points"
