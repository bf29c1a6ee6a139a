"""`kscope occupancy CAPTURE`: occupancy of each SM over time, waves of blocks and the tail."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from ..analysis.occupancy import SmUse, Waves, overview, utilization, waves
from ..analysis.table import cut, grid, part_text, terminal, time_text, wrapped
from ..tracedata.info import info
from . import filters
from .command import Command

_BARS = " ▁▂▃▄▅▆▇█"
_BINS, _ROWS = 40, 50
_UNKNOWN = "the other blocks' SMs and times are unknown, so waves, ramp and tail are not given"
_LEAST = "an SM's use is a lower bound"


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command("occupancy", occupancy, "warps alive per SM over time, waves of blocks and the tail")
    filters.add(parser)
    parser.add_argument("--json", action="store_true", help="launches, SMs and SM x time as JSON")


def occupancy(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace = filters.read(options)
    found, launches = utilization(trace), waves(trace)
    width = terminal()
    view = overview(trace, 64 if options.json else _BINS)
    if options.json:
        rows: dict[str, object] = {"recorded": info(trace).to_dict()}
        rows |= {"launches": [asdict(row) for row in launches], "sms": [asdict(row) for row in found]}
        print(filters.json({**rows, "over_time": asdict(view)}))
        return 0
    about = info(trace)
    lines = [*wrapped(about.line, width), "", *_launches(launches, width)]
    if any(row.blocks < row.grid_blocks for row in launches):
        some = "some blocks selected" if trace.filtered else about.blocks_text
        lines += wrapped(f"{some}: {_UNKNOWN}, and {_LEAST}", width, "  ")
    elif "warp" in about.sampling:
        lines += wrapped(f"only warp {about.sampling['warp']} of each block recorded: {_LEAST}", width, "  ")
    lines += ["", *_sms(found, view.alive, width)]
    print("\n".join(lines) if found else "no records")
    return 0


def _blocks(row: Waves) -> str:
    return f"{row.blocks:,} of {row.grid_blocks:,}" if row.blocks < row.grid_blocks else f"{row.blocks:,}"


def _launches(rows: tuple[Waves, ...], width: int) -> list[str]:
    shown = rows[:_ROWS]
    columns = {
        "time": [f"{'≥ ' * (row.blocks < row.grid_blocks)}{time_text(row.time_ns)}" for row in shown],
        "blocks": [_blocks(row) for row in shown],
        "SMs": [f"{row.sms}" for row in shown],
        "at once": [f"{'≥ ' * (row.blocks < row.grid_blocks)}{row.resident}" for row in shown],
        "waves": ["-" if row.waves is None else f"{row.waves}" for row in shown],
        "ramp": [time_text(row.ramp_ns) for row in shown],
        "tail": [time_text(row.tail_ns) for row in shown],
        "lost in tail": [part_text(row.tail_idle) for row in shown],
    }
    lines = grid("launch", [f"{row.launch} {row.kernel}" for row in shown], columns, width, ("ramp", "SMs"))
    return lines + ([f"  + {len(rows) - len(shown):,} more launches"] if len(rows) > len(shown) else [])


def _sms(rows: tuple[SmUse, ...], alive: npt.NDArray[np.float64], width: int) -> list[str]:
    several = len({row.device for row in rows}) > 1
    most = float(alive.max(initial=0.0)) or 1.0
    shown = rows[:_ROWS] if len(rows) <= _ROWS else _spread(rows)
    place = {(row.device, row.sm): number for number, row in enumerate(rows)}
    columns = {
        "blocks": [f"{row.blocks:,}" for row in shown],
        "warps": [f"{row.warps:,}" for row in shown],
        "used": [part_text(row.used) for row in shown],
        "mean": [f"{row.mean_warps:.1f}" for row in shown],
        "in regions": [part_text(row.busy_ns / row.alive_ns if row.alive_ns > 0 else float("nan")) for row in shown],
        f"warps alive over time, up to {most:.1f}": [_bar(alive[place[row.device, row.sm]] / most) for row in shown],
    }
    names = [f"device {row.device} SM {row.sm}" if several else f"SM {row.sm}" for row in shown]
    lines = [cut(line, width) for line in grid("SM", names, columns, 10_000)]
    return lines + ([f"  the least and the most used of {len(rows)} SMs"] if len(rows) > len(shown) else [])


def _spread(rows: tuple[SmUse, ...]) -> tuple[SmUse, ...]:
    ranked = sorted(rows, key=lambda row: row.mean_warps)
    return (*ranked[:5], *ranked[-5:])


def _bar(parts: npt.NDArray[np.float64]) -> str:
    steps = np.ceil(np.clip(parts, 0, 1) * (len(_BARS) - 1)).astype(int)
    return "".join(_BARS[step] for step in steps.tolist())
