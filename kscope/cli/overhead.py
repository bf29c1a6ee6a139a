"""`kscope overhead CAPTURE` and `kscope perturb OFF ON`: what recording cost, and what marks did to a kernel.

What lives here: the commands and their tables. What does not: the numbers (analysis/overhead.py, perturbation.py),
measuring a region on a GPU (the runtime's probe).
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import frontends
from ..analysis.overhead import RegionCost, compensate, overheads
from ..analysis.perturbation import Perturbation, perturbation
from ..analysis.table import cut, grid, part_text, terminal, time_text, wrapped
from ..errors import UsageError
from . import selecting


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the commands to the grammar."""
    parser = commands.add_parser(
        "overhead", parents=[common], help="what recording cost, per region", allow_abbrev=False
    )
    selecting.add(parser)
    cost = parser.add_mutually_exclusive_group(required=True)
    cost.add_argument("--cost", metavar="CYCLES[,INSIDE]", help="of a region, and how many of them in its own duration")
    cost.add_argument("--measure", action="store_true", help="measure it on this machine's GPU")
    parser.add_argument("--compensate", action="store_true", help="print the summary without the cost, too")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.set_defaults(command=overhead)
    report = commands.add_parser(
        "perturb", parents=[common], help="a kernel with marks against without: registers, spills, occupancy, time",
        description="Compares two cubins of a kernel, or what nvdisasm and cuobjdump print of them.",
        allow_abbrev=False,
    )  # fmt: skip
    report.add_argument("off", metavar="OFF", type=Path, help="the cubin without marks")
    report.add_argument("on", metavar="ON", type=Path, help="the cubin with marks")
    report.add_argument("--kernel", metavar="NAME", help="where the cubins have several kernels")
    report.add_argument("--threads", metavar="N", type=int, help="of a block: for occupancy")
    report.add_argument("--shared", metavar="BYTES", type=int, default=0, help="dynamic shared memory of a block (0)")
    report.add_argument("--times", metavar="OFF,ON", help="the kernel's time, measured: 27.6us,31us")
    report.add_argument("--json", action="store_true", help="the same as JSON")
    report.set_defaults(command=perturb)


def overhead(options: argparse.Namespace) -> int:
    """Runs `kscope overhead`."""
    cost = measured() if options.measure else _cost(options.cost)
    trace = selecting.read(options)
    rows = overheads(trace, cost)
    corrected = compensate(trace, cost).summary() if options.compensate else None
    if options.json:
        found: dict[str, Any] = {"cost": asdict(cost), "regions": [asdict(row) for row in rows]}
        print(selecting.json(found if corrected is None else {**found, "compensated": corrected.to_dict()}))
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
    lines = [f"a region costs {cost.cycles:g} cycles, {cost.inside:g} of them in its own duration"]
    lines += grid("region", names, columns, terminal())
    lines.append(f"  in all {part_text(sum(row.share for row in rows))}" if not several else "")
    lines += wrapped(
        "where a warp waits anyway, the cost hides in the wait: this is the most that it can be", terminal()
    )
    print("\n".join(line for line in lines if line))
    if corrected is not None:
        print(f"\n{corrected}")
    return 0


def perturb(options: argparse.Namespace) -> int:
    """Runs `kscope perturb`."""
    times = None
    if options.times is not None:
        parts = options.times.split(",")
        if len(parts) != 2:
            raise UsageError(f"--times {options.times}: expected two times, such as 27.6us,31us")
        times = selecting.nanoseconds("--times", parts[0]), selecting.nanoseconds("--times", parts[1])
    found = perturbation(
        options.off, options.on, kernel=options.kernel, threads=options.threads, dynamic_shared=options.shared,
        times_ns=times,
    )  # fmt: skip
    if options.json:
        print(selecting.json({**asdict(found), "slowdown": found.slowdown, "warnings": found.warnings}))
    else:
        print("\n".join(_report(found, terminal())))
    return 0


def measured() -> RegionCost:
    """The cost of a region on this machine's GPU, now. Raises MissingError without one."""
    backend = frontends.backend("cuda")
    package = frontends.BACKENDS["cuda"].partition(":")[0]
    cycles, inside = import_module(f"{package}.probe").region_cost(backend)
    return RegionCost(cycles, min(inside, cycles))


def _report(found: Perturbation, width: int) -> list[str]:
    off, on = found.off, found.on
    rows = [
        ("registers", off.registers, on.registers),
        ("stack, bytes", off.stack_bytes, on.stack_bytes),
        ("spill instructions", off.spill_instructions, on.spill_instructions),
        ("static shared, bytes", off.shared_bytes, on.shared_bytes),
        ("instructions", off.instructions, on.instructions),
    ]
    if off.warps_per_sm is not None and on.warps_per_sm is not None:
        rows.append(("warps that fit on an SM", off.warps_per_sm, on.warps_per_sm))
    columns = {
        "off": [f"{before:,}" for _, before, _ in rows],
        "on": [f"{after:,}" for _, _, after in rows],
        "change": [f"{after - before:+,}" if after != before else "" for _, before, after in rows],
    }
    names = [name for name, _, _ in rows]
    if found.off_ns is not None and found.on_ns is not None and found.slowdown is not None:
        names.append("kernel time")
        for column, text in zip(("off", "on"), (found.off_ns, found.on_ns), strict=True):
            columns[column].append(time_text(text))
        columns["change"].append(f"{found.slowdown:+.1%}")
    lines = [cut(f"{on.kernel}, sm_{on.arch}", width), *grid("", names, columns, width)]
    return [*lines, *(line for one in found.warnings for line in wrapped(f"! {one}", width))]


def _cost(text: str) -> RegionCost:
    parts = text.split(",")
    try:
        return RegionCost(*(float(part) for part in parts))
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"--cost {text}: expected cycles, such as 28, or 28,2 with those in its duration") from None
