"""The analyses as text for a terminal."""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from ..util.terminal import cut, grid, paragraph, part_text, terminal_width, time_text, wrapped
from . import rates_text
from .compare import Change, Comparison
from .critical_path import Path
from .display import Shown
from .idle import Gaps
from .occupancy import Occupancy, SmUse, Waves
from .overlap import Overlap, Wait
from .pipelines import text as pipelines_text
from .pipelines.data import Pipelines
from .pipelines.waits import BarrierWait
from .rates import Rates
from .samples import crosscheck_text, stalls_text
from .samples.crosscheck import Crosscheck
from .samples.stalls import Stalls

_BESIDE, _LEAST, _STEPS = 3, 0.005, 40
_BARS = " ▁▂▃▄▅▆▇█"
_ROWS = 50
_LEAST_BETWEEN = 5
_UNITS = {"launch": "launches", "block": "blocks", "warp": "warps"}


@singledispatch
def rendered(result: Shown, width: int | None) -> str:
    """A result as text of this width; None for the terminal's."""
    raise AssertionError(f"{type(result).__name__} has no text")


rendered.register(Crosscheck, crosscheck_text.text)
rendered.register(Pipelines, pipelines_text.text)
rendered.register(Rates, rates_text.text)
rendered.register(Stalls, stalls_text.text)


@rendered.register
def _gaps(found: Gaps, width: int | None) -> str:
    """Waits, gaps by neighboring regions, and the longest gaps."""
    width = terminal_width(width)
    if not found.between:
        return "no records"
    lines = paragraph(found.caveat, width) + _waits(found.waits, width) + _barriers(found.barriers, width)
    inside = f"in {found.of} and no nested region" if found.of else "in no region"
    lines += ["", cut(f"time {inside}, by neighboring regions", width)]
    shown = found.between[: max(found.top, _LEAST_BETWEEN)]
    columns = {
        "count": [f"{row.count:,}" for row in shown],
        "warp time": [time_text(row.warp_time_ns) for row in shown],
        "part": [part_text(row.share) for row in shown],
        "longest": [time_text(row.max_ns) for row in shown],
    }
    lines += grid("between", [f"{row.after} > {row.before}" for row in shown], columns, width, ("longest",))
    lines += ["", "the longest"] if found.longest else []
    for row in found.longest:
        beside = _beside([(name, part) for name, part in row.beside])
        where = f"{row.warp}, at {time_text(row.start_ns)}, {row.after} > {row.before}"
        lines += wrapped(f"{time_text(row.ns)}: {where}{f'; beside it {beside}' if beside else ''}", width, "  ")
    return "\n".join(lines)


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


def _barriers(rows: tuple[BarrierWait, ...], width: int) -> list[str]:
    if not rows:
        return []
    columns = {
        "warp time": [time_text(row.warp_time_ns) for row in rows],
        "not issued": [part_text(row.not_issued) for row in rows],
        "in flight": [part_text(row.in_flight) for row in rows],
        "landed": [part_text(row.landed) for row in rows],
    }
    lines = ["", *grid("waits for barriers", [f"{row.role}: {row.region}" for row in rows], columns, width)]
    for row, line in reversed(list(enumerate(lines[2:], 2))):
        signals = _beside([(f"{role}: {name}", part) for role, name, part in rows[row - 2].signals])
        lines[row : row + 1] = [line, *wrapped(f"for {signals}", width, "      ")] if signals else [line]
    return lines


def _beside(parts: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {part:.0%}" for name, part in parts[:_BESIDE] if part >= _LEAST)


@rendered.register
def _overlap(one: Overlap, width: int | None) -> str:
    """The activity of the other warps, in percent; each row adds up to 100."""
    width = terminal_width(width)
    names = [f"{role}: {region}" for role, region in one.states]
    columns = {"time": [time_text(ns) for ns in one.alive_ns.tolist()]}
    for number in range(len(names)):
        column = [one.beside(row, other_roles=False)[number] for row in range(len(names))]
        columns[f"[{number}]"] = ["." if part < 0.005 else f"{part:.0%}" for part in column]
    lines = grid("while in", [f"[{number}] {name}" for number, name in enumerate(names)], columns, max(width, 60))
    head = cut(f"{one.kernel}: while a warp was in the row's region, the others of its block were in", width)
    return "\n".join([*paragraph(one.caveat, width), head, *lines])


@rendered.register
def _path(found: Path, width: int | None) -> str:
    """The regions that the path goes through, and its steps."""
    width = terminal_width(width)
    lines = paragraph(found.caveat, width)
    lines += [cut(f"{found.kernel}, launch {found.launch}, block {found.block}: {time_text(found.total_ns)}", width)]
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
    lines += [f"  + {more:,} more steps (--json --top N has more)"] if more > 0 else []
    lines += [f"! {found.unmatched:,} waits without a signal before their end"] if found.unmatched else []
    return "\n".join(lines)


@rendered.register
def _occupancy(found: Occupancy, width: int | None) -> str:
    """Waves by launch, and warps alive by SM."""
    if not found.sms:
        return "no records"
    width = terminal_width(width)
    limits = [line for text in found.limits for line in wrapped(text, width, "  ")]
    lines = [*wrapped(found.recorded.line, width), "", *_launches(found.launches, width), *limits]
    return "\n".join([*lines, "", *_sms(found, width)])


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


def _sms(found: Occupancy, width: int) -> list[str]:
    rows, alive, nouns = found.sms, found.over_time.alive, "lanes" if found.recorded.lanes else "warps"
    several = len({row.device for row in rows}) > 1
    most = float(alive.max(initial=0.0)) or 1.0
    shown = rows[:_ROWS] if len(rows) <= _ROWS else _spread(rows)
    place = {(row.device, row.sm): number for number, row in enumerate(rows)}
    columns = {
        "blocks": [f"{row.blocks:,}" for row in shown],
        nouns: [f"{row.warps:,}" for row in shown],
        "used": [part_text(row.used) for row in shown],
        "mean": [f"{row.mean_warps:.1f}" for row in shown],
        "in regions": [part_text(row.busy_ns / row.alive_ns if row.alive_ns > 0 else float("nan")) for row in shown],
        f"{nouns} alive over time, up to {most:.1f}": [_bar(alive[place[row.device, row.sm]] / most) for row in shown],
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


@rendered.register
def _comparison(found: Comparison, width: int | None) -> str:
    """The comparison for a terminal."""
    width = terminal_width(width)
    rows = [*found.kernels, *found.regions]
    if not rows:
        return "no records in either"
    head = [
        line for name, one in zip("ab", found.recorded, strict=True) for line in wrapped(f"{name}: {one.line}", width)
    ]
    several = len({row.kernel for row in rows}) > 1
    names = [f"{row.kernel}: {row.region}" if several else row.region for row in rows]
    columns: dict[str, list[str]] = {
        "a": [time_text(row.a_mean_ns) for row in rows],
        "b": [time_text(row.b_mean_ns) for row in rows],
        "change": [_signed(row.change) for row in rows],
        "interval": [_interval(row) for row in rows],
        "count": [_pair(row.a_count, row.b_count) for row in rows],
        "drawn": [f"{_pair(row.a_units, row.b_units)} {_unit(row)}" for row in rows],
        "verdict": [row.verdict for row in rows],
    }
    lines = grid("mean of", names, columns, width, ("count", "drawn", "interval"))
    lines += ["", f"verdict: {found.verdict}"]
    if found.kernels and max(min(row.a_units, row.b_units) for row in found.kernels) == 1:
        lines += wrapped("one launch on a side: intervals cover differences between blocks, not runs", width)
    lines += [line for one in found.problems for line in wrapped(f"! {one}", width)]
    return "\n".join(cut(line, width) for line in [*head, "", *lines])


def _signed(part: float) -> str:
    return "-" if math.isnan(part) else f"{part:+.1%}"


def _interval(row: Change) -> str:
    return "-" if math.isnan(row.low) else f"{row.low:+.1%} to {row.high:+.1%}"


def _unit(row: Change) -> str:
    return row.unit if row.a_units == row.b_units == 1 else _UNITS[row.unit]


def _pair(a: int, b: int) -> str:
    return f"{a:,}" if a == b else f"{a:,} / {b:,}"
