"""`kscope trust ipc`: instructions per cycle of every warp and region.

kscope trust ipc CAPTURE --cutracer-trace HIST.csv [--cutracer-log LOG] [-o OUT.csv]     counts that CUTracer measured
kscope trust ipc --chrome-trace F --cutracer-trace F --cutracer-log F [-o OUT.csv]       with Proton's trace instead
kscope trust ipc --chrome-trace F | --cutracer-trace F                                   one side alone, as CSV
kscope trust ipc CAPTURE --code KERNEL.cubin                                             counted in the machine code
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict, astuple
from pathlib import Path

from ...analysis.instructions import CodeReport, region_code
from ...analysis.trust import cutracer
from ...analysis.trust import ipc as join
from ...analysis.trust.cutracer import LogLaunch
from ...analysis.trust.ipc import Joined, Source
from ...errors import UsageError
from ...machine_code import tools
from ...machine_code.disassembly import functions
from ...trace import Trace
from ...util.terminal import cut, grid, terminal_width
from ...util.text import is_number
from ..common import filters, json_output, outputs
from ..common.command_parser import Command

MISMATCH = 1
"""Exit code if some regions could not be joined; the rest is written."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "ipc", ipc,
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"Exit code {MISMATCH} if warps or regions could not be joined; they are listed.",
    )  # fmt: skip
    filters.add(parser, optional=True)
    group = parser.add_argument_group("instructions")
    flag = group.add_argument
    flag("--cutracer-trace", metavar="CSV", type=Path, help="CUTracer's instruction histogram")
    flag("--cutracer-log", metavar="LOG", type=Path, help="CUTracer's log: grid and block sizes")
    flag("--kernel-hash", metavar="HEX", help="which kernel of the log (default: the histogram's)")
    flag("--chrome-trace", metavar="JSON", type=Path, help="a Chrome trace of the same regions, instead of a capture")
    flag(
        "--anchors",
        metavar="BEFORE,AFTER",
        help="clock pairs before and after a warp's regions (capture: 1,1, else 0,0)",
    )
    flag("--code", metavar="CUBIN", type=Path, help="the kernel's cubin, or its disassembly")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the CSV there instead of printing it")
    json_output.add(parser)


def ipc(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code.

    Raises:
        UsageError: the files do not make a pair, or the output is one of the inputs.
    """
    if options.output is not None:
        inputs = ("capture", "cutracer_trace", "cutracer_log", "chrome_trace", "code")
        outputs.check_distinct("-o", options.output, *(getattr(options, name) for name in inputs))
    if options.capture and options.chrome_trace:
        raise UsageError("a capture and --chrome-trace: both have regions; give one of them")
    if options.code:
        if not options.capture or options.cutracer_trace:
            raise UsageError("--code: expected a capture beside it, and no --cutracer-trace")
        return _from_code(options)
    if options.capture and not options.cutracer_trace:
        raise UsageError("a capture alone has no instructions: add --cutracer-trace HIST.csv, or --code KERNEL.cubin")
    if options.cutracer_trace and (options.capture or options.chrome_trace):
        return _joined(options)
    if options.chrome_trace:
        events = cutracer.read_chrome(options.chrome_trace)
        rows = [(e.name, e.category, e.cycles, e.timestamp_ns, e.core, e.cta, e.warp) for e in events]
        _write(options, cutracer.to_csv(join.CHROME_COLUMNS, rows))
        return 0
    if options.cutracer_trace:
        counts = cutracer.read_histogram(options.cutracer_trace)
        _write(options, cutracer.to_csv(join.HIST_COLUMNS, [(*key, counts[key]) for key in sorted(counts)]))
        return 0
    raise UsageError("nothing to read: name a capture, --chrome-trace or --cutracer-trace; kscope trust ipc --help")


def _joined(options: argparse.Namespace) -> int:
    counts = cutracer.read_histogram(options.cutracer_trace)
    launch = _launch(options)
    source, traces = _source(options, launch)
    with filters.busy_bar(sum(map(len, traces)), "instructions"):
        found = join.join(source, counts)
    if options.json:
        data = {"regions": [asdict(row) for row in found.regions], "mismatches": found.mismatches}
        _write(options, json_output.answer(options, data, *traces) + "\n")
    else:
        _write(options, cutracer.to_csv(join.COLUMNS, map(astuple, found.rows)))
        if options.output:
            print("\n".join(_regions(found)))
    _print_notes(found.mismatches)
    return MISMATCH if found.mismatches or not found.rows else 0


def _launch(options: argparse.Namespace) -> LogLaunch | None:
    """The launch in the log that the histogram belongs to."""
    if options.cutracer_log is None:
        if options.chrome_trace:
            raise UsageError("--chrome-trace: expected --cutracer-log LOG, which has the block size")
        return None
    kernel_hash = _hash(options.kernel_hash) if options.kernel_hash else cutracer.histogram_hash(options.cutracer_trace)
    return join.select_launch(cutracer.read_log(options.cutracer_log), kernel_hash)


def _source(options: argparse.Namespace, launch: LogLaunch | None) -> tuple[Source, list[Trace]]:
    """The regions to join, and their trace if they come from a capture."""
    default = join.CAPTURE_ANCHORS if options.capture else join.CHROME_ANCHORS
    anchors = default if options.anchors is None else _anchors(options.anchors)
    if launch is not None and options.chrome_trace:
        return join.of_events(cutracer.read_chrome(options.chrome_trace), launch, anchors), []
    trace = filters.filtered_trace(options)
    source = join.of_trace(trace, anchors)
    if launch is not None:
        row = int(trace.track[0])
        grid_size, threads = (tuple(column[row].tolist()) for column in (trace.warps.grid, trace.warps.threads))
        if (grid_size, threads) != (launch.grid, launch.block):
            raise UsageError(
                f"the capture's launch has grid {grid_size} and block {threads}, the log's {launch.grid} and"
                f" {launch.block}: they are not the same launch; see --launch and --kernel-hash"
            )
    return source, [trace]


def _from_code(options: argparse.Namespace) -> int:
    trace = filters.filtered_trace(options)
    code = functions(tools.disassembly(options.code))
    if not code:
        raise UsageError(f"{options.code}: neither a cubin nor a disassembly; cuobjdump -sass makes one")
    with filters.busy_bar(len(trace), "instructions"):
        found = region_code(trace, code, tools.builds(options.code), tools.layouts(options.code))
    if options.json:
        _write(options, json_output.answer(options, asdict(found), trace) + "\n")
    elif found.regions:
        _write(options, "\n".join(_code(found)) + "\n")
    _print_notes(found.problems)
    return MISMATCH if found.problems or not found.regions else 0


def _code(found: CodeReport) -> list[str]:
    rows = found.regions
    columns = {
        "executions": [f"{row.executions:,}" for row in rows],
        "places": [f"{row.places}" for row in rows],
        "cycles": [f"{row.cycles:.4g}" for row in rows],
        "ipc": [_range(row.ipc_least, row.ipc_most) for row in rows],
        "instructions": [row.text for row in rows],
    }
    several = len({row.kernel for row in rows}) > 1
    names = [f"{row.kernel}: {row.region}" if several else row.region for row in rows]
    lines = grid("region", names, columns, 10_000)
    lines.append("  between two clock reads in the code, with kscope's stores of nested records; times executions")
    return [cut(line, max(terminal_width(), 100)) for line in lines]


def _regions(found: Joined) -> list[str]:
    columns = {
        "rows": [f"{row.rows:,}" for row in found.regions],
        "instructions": [f"{row.instructions:,}" for row in found.regions],
        "cycles": [f"{row.cycles:,.0f}" for row in found.regions],
        "mean ipc": [f"{row.mean:.4g}" for row in found.regions],
        "median ipc": [f"{row.median:.4g}" for row in found.regions],
    }
    return grid("region", [row.name for row in found.regions], columns, terminal_width())


def _range(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return "-"
    return f"{least:.3g}" if least == most else f"{least:.3g} to {most:.3g}"


def _write(options: argparse.Namespace, text: str) -> None:
    if options.output is None:
        print(text, end="")
        return
    outputs.text("-o", options.output, text)


def _print_notes(lines: Iterable[str]) -> None:
    """Print lines to stderr, each cut to one line: they contain names from files."""
    for one in lines:
        print(f"kscope: {cut(one, 2000)}", file=sys.stderr)


def _hash(text: str) -> int:
    digits = text[2:] if text[:2].lower() == "0x" else text
    try:
        return int(digits, 16)
    except ValueError:
        raise UsageError(f"--kernel-hash {text}: expected hexadecimal digits, such as 0x7fa21c3") from None


def _anchors(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(is_number(part) for part in parts):
        raise UsageError(f"--anchors {text}: expected two numbers, such as 1,1")
    return int(parts[0]), int(parts[1])
