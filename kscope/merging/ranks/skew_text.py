"""`kscope ranks` as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...util.terminal import cut, grid, terminal_width, time_text, wrapped
from ...util.text import counted
from .skew import BETWEEN, Arrival, RankReport, Straggler

_PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


def text(found: RankReport, top: int = 10, width: int | None = None) -> str:
    """The collectives by kernel, the latest ranks, and the launches with the largest skew.

    Args:
        found: the report.
        top: ranks and launches to list.
        width: columns; None for this terminal's.
    """
    width = terminal_width(width)
    lines = wrapped(
        f"{counted(len(found.stragglers), 'GPU')}, {counted(len(found.arrivals), 'launch')} of collectives; clocks "
        f"within {_PLUS_MINUS}{time_text(found.bound_ns)}",
        width,
    )
    kernels = list(dict.fromkeys(one.kernel for one in found.arrivals))
    groups = [[one for one in found.arrivals if one.kernel == name] for name in kernels]
    columns = {
        "launches": [f"{len(group):,}" for group in groups],
        "skew p50": [time_text(float(np.median([one.skew_ns for one in group]))) for group in groups],
        "skew max": [time_text(max(one.skew_ns for one in group)) for group in groups],
        "wait": [time_text(float(np.mean([one.wait_ns for one in group]))) for group in groups],
        "transfer": [time_text(float(np.mean([one.transfer_ns for one in group]))) for group in groups],
    }
    lines += ["", *grid("collective", kernels, columns, width, ("skew p50",))]
    lines += ["", *_stragglers(found.stragglers[:top], width)]
    lines += ["", "the launches with the largest skew"]
    for one in sorted(found.arrivals, key=lambda one: -one.skew_ns)[:top]:
        lines += wrapped(_arrival(one), width, "  ")
    lines += [line for problem in found.problems for line in wrapped(problem, width)]
    return "\n".join(cut(line, width) for line in lines)


def _stragglers(rows: Sequence[Straggler], width: int) -> list[str]:
    several = len({one.device for one in rows}) > 1
    names = [f"rank {one.rank}" + f" GPU {one.device}" * several for one in rows]
    columns = {
        "late": [time_text(one.late_ns) for one in rows],
        "95 % interval": [f"{time_text(one.low_ns)} to {time_text(one.high_ns)}" for one in rows],
        "last": [f"{one.last:,}" for one in rows],
        "because of": [one.cause or "-" for one in rows],
    }
    return grid("latest", names, columns, width)


def _arrival(one: Arrival) -> str:
    sure = "" if one.sure else " (within the bound also another)"
    cause = ""
    if one.cause is not None:
        where = BETWEEN if one.cause.kernel == BETWEEN else f"{one.cause.region} of {one.cause.kernel}"
        cause = f"; {time_text(one.cause.more_ns)} more than the median rank in {where}"
    skew = f"{time_text(one.skew_ns)} {_PLUS_MINUS}{time_text(one.bound_ns)}"
    return f"{one.kernel} {one.ordinal}: {skew}, last rank {one.last}{sure}{cause}"
