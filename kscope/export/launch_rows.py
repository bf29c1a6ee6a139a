"""The row of a launch in a timeline: one slice from its first warp's start to its last warp's end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..analysis.warp_stats import warp_ends
from ..util.text import counted
from .timeline import Timeline

_FAR = float(1 << 60)


@dataclass(frozen=True)
class LaunchRow:
    """A launch as a slice.

    Attributes:
        name: the kernel's name.
        begin, end: ns after the timeline's origin.
        arguments: what is known about it, by name.
    """

    name: str
    begin: int
    end: int
    arguments: dict[str, str | int]


def launch_row(timeline: Timeline, launch: int) -> LaunchRow:
    """The slice of a launch, of the warps that are drawn."""
    trace, warps = timeline.trace, timeline.trace.warps
    rows = timeline.drawn[warps.launch[timeline.drawn] == launch]
    info = trace.launches[launch]
    base = trace.origin - timeline.origin
    begin = np.clip(np.rint(warps.start_ns[rows].min()) + base, 0, _FAR)
    end = np.clip(np.rint(np.nan_to_num(warp_ends(trace)[rows]).max()) + base, begin, _FAR)
    blocks, of = len(np.unique(warps.block[rows])), int(np.prod(info.grid, dtype=object))
    x, y, z = info.grid
    arguments: dict[str, str | int] = {
        "grid": f"{x} x {y} x {z}",
        "blocks": f"{blocks:,} of {of:,} recorded",
        "warps": len(rows),
        "records": int(np.isin(trace.track, rows).sum()),
        "SMs": len(np.unique(warps.sm[rows])),
        "kernel": info.hash,
        "start_unix_ns": timeline.origin + int(begin),
    }
    if timeline.problems:
        arguments["problems"] = counted(len(timeline.problems), "problem") + ", on the last row"
    return LaunchRow(info.kernel, int(begin), int(end), arguments)
