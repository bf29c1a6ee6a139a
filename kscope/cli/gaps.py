"""`kscope gaps`, `kscope overlap` and `kscope path`: why a gap exists, and which warp waited for which."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..analysis import gaps as gap_analysis
from ..analysis import overlap as overlap_analysis
from ..analysis.critical import Edge, Path, critical_path
from ..analysis.overlap import Overlap, Wait
from ..analysis.table import cut, grid, part_text, terminal, time_text, wrapped
from ..errors import UsageError
from ..tracedata.info import info
from . import filters
from .command import Command
from .options import is_number

_BESIDE, _LEAST, _STEPS = 3, 0.005, 40


def add(command: Command) -> None:
    """Add the commands to the parser."""
    parser = command("gaps", gaps, "time in no region and in waits, and what other warps did meanwhile")
    filters.add(parser)
    filters.add_roles(parser)
    parser.add_argument("--of", metavar="REGION", help="gaps within this region instead of time in no region")
    words = ", ".join(overlap_analysis.WAIT_WORDS)
    parser.add_argument("--wait", metavar="REGION", action="append", help=f"a region that waits (names with {words})")
    parser.add_argument("--top", metavar="N", type=int, default=10, help="single gaps to list (10)")
    parser.add_argument("--json", action="store_true", help="all of it as JSON")
    matrix = command("overlap", overlap, "what the warps of a block did at the same time")
    filters.add(matrix)
    filters.add_roles(matrix)
    matrix.add_argument("--json", action="store_true", help="the matrix as JSON, in ns")
    path = command(
        "path", critical, "the critical path of one block, over signals and waits that you name",
        description="Walks back from the block's last region: along warps, and over edges from a wait to its signal.",
    )  # fmt: skip
    filters.add(path)
    path.add_argument(
        "--edge", metavar="SIGNAL:WAIT[:LAG]", action="append", required=True,
        help="the end of region SIGNAL satisfies region WAIT, LAG rounds later (0); may be repeated",
    )  # fmt: skip
    path.add_argument("--json", action="store_true", help="steps and parts as JSON")


def gaps(options: argparse.Namespace) -> int:
    """Run `kscope gaps`; returns the exit code."""
    if options.top < 0:
        raise UsageError(f"--top {options.top}: expected a number of gaps")
    trace, roles = filters.read(options), filters.roles(options.role)
    between = gap_analysis.between(trace, options.of)
    longest = gap_analysis.longest(trace, options.top, options.of)
    with filters.watched(len(trace), "waits") as step:
        waits = overlap_analysis.waits(trace, options.wait, roles, step)
    if options.json:
        print(filters.json({
            "between": [asdict(row) for row in between], "longest": [asdict(row) for row in longest],
            "waits": [asdict(row) for row in waits], "recorded": info(trace).to_dict(),
        }))  # fmt: skip
        return 0
    width = terminal()
    if not between:
        print("no records")
        return 0
    lines = [*filters.sample(trace, width), *_waits(waits, width)]
    inside = f"in {options.of} and no nested region" if options.of else "in no region"
    lines += ["", cut(f"time {inside}, by neighboring regions", width)]
    shown = between[: max(options.top, 5)]
    columns = {
        "count": [f"{row.count:,}" for row in shown],
        "warp time": [time_text(row.warp_time_ns) for row in shown],
        "part": [part_text(row.share) for row in shown],
        "longest": [time_text(row.max_ns) for row in shown],
    }
    lines += grid("between", [f"{row.after} > {row.before}" for row in shown], columns, width, ("longest",))
    lines += ["", "the longest"] if longest else []
    for row in longest:
        beside = _beside([(name, part) for name, part in row.beside])
        where = f"{row.warp}, at {time_text(row.start_ns)}, {row.after} > {row.before}"
        lines += wrapped(f"{time_text(row.ns)}: {where}{f'; beside it {beside}' if beside else ''}", width, "  ")
    print("\n".join(lines))
    return 0


def overlap(options: argparse.Namespace) -> int:
    """Run `kscope overlap`; returns the exit code."""
    trace, roles = filters.read(options), filters.roles(options.role)
    with filters.watched(len(trace), "overlap") as step:
        found = overlap_analysis.overlap(trace, roles, step)
    if options.json:
        print(filters.json([asdict(one) for one in found]))
    else:
        width = terminal()
        parts = [*filters.sample(trace, width), *("\n".join(_matrix(one, width)) for one in found)]
        print("\n\n".join(parts) if found else "no records")
    return 0


def critical(options: argparse.Namespace) -> int:
    """Run `kscope path`; returns the exit code.

    Raises:
        UsageError: several launches or blocks.
    """
    edges = [_edge(text) for text in options.edge]
    launch, block = _launch(options.launch), options.block or 0
    options.launch = options.block = None
    trace = filters.read(options)
    found = critical_path(trace, edges, launch, block)
    lines = [*filters.sample(trace, terminal()), *_path(found, terminal())]
    print(filters.json(asdict(found)) if options.json else "\n".join(lines))
    return 0


def _waits(rows: tuple[Wait, ...], width: int) -> list[str]:
    columns = {
        "warp time": [time_text(row.warp_time_ns) for row in rows],
        "of its role": [part_text(row.share) for row in rows],
    }
    lines = grid("waits", [f"{row.role}: {row.region}" for row in rows], columns, width)
    for row, line in reversed(list(enumerate(lines[1:], 1))):
        beside = _beside([(f"{role}: {name}", part) for role, name, part in rows[row - 1].beside])
        lines[row : row + 1] = [line, *wrapped(f"meanwhile {beside}", width, "      ")] if beside else [line]
    return lines


def _beside(parts: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {part:.0%}" for name, part in parts[:_BESIDE] if part >= _LEAST)


def _matrix(one: Overlap, width: int) -> list[str]:
    """What the other warps did, in percent; each row adds up to 100."""
    names = [f"{role}: {region}" for role, region in one.states]
    columns = {"time": [time_text(ns) for ns in one.alive_ns.tolist()]}
    for number in range(len(names)):
        column = [one.beside(row, other_roles=False)[number] for row in range(len(names))]
        columns[f"[{number}]"] = ["." if part < 0.005 else f"{part:.0%}" for part in column]
    lines = grid("while in", [f"[{number}] {name}" for number, name in enumerate(names)], columns, max(width, 60))
    return [
        cut(f"{one.kernel}: while a warp was in the row's region, the others of its block were in", width),
        *lines,
    ]


def _path(found: Path, width: int) -> list[str]:
    lines = [cut(f"{found.kernel}, launch {found.launch}, block {found.block}: {time_text(found.total_ns)}", width)]
    columns = {
        "time": [time_text(ns) for _, ns, _ in found.parts],
        "part": [part_text(part) for _, _, part in found.parts],
    }
    lines += [*grid("path goes through", [name for name, _, _ in found.parts], columns, width), "", "steps"]
    base = found.steps[0].start_ns
    for step in found.steps[:_STEPS]:
        what = step.warp if step.kind == "run" else f"{step.warp}, {step.via} in flight"
        lines.append(
            cut(f"  {time_text(step.start_ns - base):>10}  {time_text(step.end_ns - step.start_ns):>10}  {what}", width)
        )
    more = len(found.steps) - _STEPS
    lines += [f"  + {more:,} more steps (--json has all)"] if more > 0 else []
    return lines + ([f"! {found.unmatched:,} waits without a signal before their end"] if found.unmatched else [])


def _edge(text: str) -> Edge:
    parts = text.split(":")
    if len(parts) not in (2, 3) or not parts[0] or not parts[1] or (len(parts) == 3 and not is_number(parts[2])):
        raise UsageError(
            f"--edge {text}: expected SIGNAL:WAIT or SIGNAL:WAIT:LAG, such as load:wait_full or mma:wait_empty:4"
        )
    return Edge(parts[0], parts[1], int(parts[2]) if len(parts) == 3 else 0)


def _launch(typed: list[str] | None) -> int:
    if typed is not None and (len(typed) > 1 or not is_number(typed[0])):
        raise UsageError(f"--launch {' '.join(typed)}: expected one number; a path goes through one launch")
    return int(typed[0]) if typed else 0
