"""`kscope trust overhead CAPTURE`: the cost of recording."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ...analysis.trust.overhead import RegionCost, compensate, overheads
from ...errors import UsageError
from ...instrument import registry
from ...trace import Trace
from ...util.terminal import grid, part_text, terminal_width, time_text, wrapped
from ...util.text import some
from ..common import filters, json_output
from ..common.command_parser import Command


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("overhead", overhead)
    filters.add(parser)
    cost = parser.add_mutually_exclusive_group()
    cost.add_argument("--cost", metavar="CYCLES[,INSIDE]", help="of a region, and how many of them in its duration")
    cost.add_argument("--measure", action="store_true", help="measure it on this machine's GPU")
    parser.add_argument("--compensate", action="store_true", help="print the summary without the cost, too")
    json_output.add(parser)


def overhead(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace = None if options.measure or options.cost else filters.filtered_trace(options)
    if trace is not None:
        raise UsageError(f"expected --cost CYCLES[,INSIDE] or --measure; {_offered(trace)}")
    cost = measure_cost() if options.measure else _cost(options.cost)
    trace = filters.filtered_trace(options)
    with filters.busy_bar(len(trace), "overhead"):
        rows = overheads(trace, cost)
        corrected = compensate(trace, cost).summary() if options.compensate else None
    if options.json:
        found: dict[str, Any] = {"cost": asdict(cost), "regions": [asdict(row) for row in rows]}
        more = {} if corrected is None else {"compensated": corrected.to_dict(options.top or json_output.MOST)}
        print(json_output.answer(options, {**found, **more}, trace))
        return 0
    if not rows:
        print("no spans")
        return 0
    several = len({row.kernel for row in rows}) > 1
    columns = {
        "count": [f"{row.count:,}" for row in rows],
        "cost": [time_text(row.cost_ns) for row in rows],
        "of the kernel": [part_text(row.share) for row in rows],
        "of the region": [part_text(row.inside_part) for row in rows],
    }
    names = [f"{row.kernel}: {row.region}" if several else row.region for row in rows]
    lines = filters.caveat(trace, terminal_width())
    lines += [f"a region costs {cost.cycles:g} cycles, {cost.inside:g} of them in its duration"]
    lines += grid("region", names, columns, terminal_width())
    lines.append(f"  in all {part_text(sum(row.share for row in rows))}" if not several else "")
    lines += wrapped("if a warp waits anyway, the wait hides the cost: this is an upper bound", terminal_width())
    print("\n".join(line for line in lines if line))
    if corrected is not None:
        print(f"\n{corrected}")
    return 0


def _offered(trace: Trace) -> str:
    """The regions of a capture and their counts."""
    rows = sorted(trace.summary().regions, key=lambda row: -row.count)
    return f"this capture has spans of {some([f'{row.region} ({row.count:,})' for row in rows])}"


def measure_cost() -> RegionCost:
    """Measure the cost of a region on this machine's GPU.

    Raises:
        MissingError: there is no GPU.
    """
    cycles, inside = registry.backend("cuda").region_cost()
    return RegionCost(cycles, min(inside, cycles))


def _cost(text: str) -> RegionCost:
    parts = text.split(",")
    try:
        return RegionCost(*(float(part) for part in parts))
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"--cost {text}: expected cycles, such as 28, or 28,2 with those inside") from None
