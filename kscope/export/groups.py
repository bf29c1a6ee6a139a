"""The hierarchy of a timeline: launch, group, lane, and their names; the same for every format.

    group      a launch holds     which hold
    sm         SM 12              block 3 warp 0
    block      block 3 SM 12      warp 0
    warp       warp 0             block 3 SM 12

With processes="groups" the first two levels swap: SM 12 is a process, and holds launches if there are several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..util.cells import Cells, constant, decimals, joined
from ..util.runs import fresh
from .timeline import Timeline

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The t drawn tracks in display order.

    Attributes:
        index: (t,) the track.
        row: (t,) row of trace.warps.
        process: (t,) index into `processes`.
        group: (t,) index into `groups`.
        groups: (process, number, name) of each group: the number orders those of a process; one without a name is not
            drawn.
        labels: (t,) names of the tracks without their suffixes.
        suffixes: suffixes by place in (t,), of user tracks and tracks of crossing spans.
        processes: names of the processes.
    """

    index: Int64
    row: Int64
    process: Int64
    group: Int64
    groups: list[tuple[int, int, str]]
    labels: Cells
    suffixes: dict[int, str]
    processes: list[str]

    def names(self) -> list[str]:
        """(t,) names of the tracks."""
        names = self.labels.strings()
        for at, suffix in self.suffixes.items():
            names[at] += suffix
        return names


def hierarchy(timeline: Timeline, *, padded: bool = False) -> Hierarchy:
    """Arrange the drawn tracks.

    Args:
        timeline: the timeline.
        padded: group numbers have leading zeros, for viewers that sort by name.
    """
    warps = timeline.trace.warps
    drawn = np.zeros(timeline.tracks, bool)
    drawn[timeline.alive] = True
    drawn[len(warps) :] = True
    index = np.flatnonzero(drawn)
    row = timeline.rows[index]
    launch, block, warp, sm = (getattr(warps, name)[row].astype(np.int64) for name in ("launch", "block", "warp", "sm"))
    group = {"sm": sm, "block": block, "warp": warp}[timeline.view.group]
    swapped = timeline.view.processes == "groups"
    device = warps.device[row] if swapped and timeline.view.group == "sm" else np.zeros(len(row), np.int64)
    outer, inner = (group, launch) if swapped else (launch, group)
    order = np.lexsort((index, warps.lane[row], warp, block, inner, outer, device))
    index, row, inner, outer, device = (column[order] for column in (index, row, inner, outer, device))
    first, grouped = fresh(outer, device), fresh(outer, device, inner)
    process, starts, heads = np.cumsum(first) - 1, np.flatnonzero(first), np.flatnonzero(grouped)
    titles = _titles(timeline, row, padded)
    if swapped:
        several = len(timeline.trace.launches) > 1
        named = zip(titles(starts), row[starts].tolist(), strict=True)
        processes = [_process(timeline, title, at) for title, at in named]
        names = [launch_name(timeline, number) if several else "" for number in inner[heads].tolist()]
    else:
        processes = [launch_name(timeline, number) for number in outer[starts].tolist()]
        names = titles(heads)
    groups = list(zip(process[heads].tolist(), inner[heads].tolist(), names, strict=True))
    extra = np.flatnonzero(index >= len(warps))
    more = [timeline.more[number].suffix for number in (index[extra] - len(warps)).tolist()]
    suffixes = dict(zip(extra.tolist(), more, strict=True))
    place = np.cumsum(grouped) - 1
    return Hierarchy(index, row, process, place, groups, _labels(timeline, row), suffixes, processes)


def _process(timeline: Timeline, group: str, row: int) -> str:
    """The name of a group that is a process. Blocks omit the SM, which differs between launches."""
    trace, by = timeline.trace, timeline.view.group
    if by == "block":
        return f"block {trace.warps.blocks(np.array([row])).strings()[0]}"
    if by == "sm" and len(trace.devices) > 1:
        return f"{group} on device {trace.devices[trace.warps.device[row]]}"
    return group


def _titles(timeline: Timeline, row: Int64, padded: bool) -> Callable[[Int64], list[str]]:
    """Names the groups of some of the drawn tracks (t,), whose rows are `row`."""
    warps, group = timeline.trace.warps, timeline.view.group
    column: npt.NDArray[np.integer] = warps.sm if group == "sm" else warps.block if group == "block" else warps.warp
    digits = len(str(int(column[row].max(initial=0)))) if padded else 1
    axes = (warps.grid[row].max(axis=0, initial=1) - 1).tolist()
    least = [len(str(most)) for most in axes] if padded else [1, 1, 1]

    def titles(at: Int64) -> list[str]:
        some = row[at]
        if group == "block":
            return joined(constant(b"block ", len(at)), warps.blocks(some, least), _on_sm(timeline, some)).strings()
        word = b"SM " if group == "sm" else b"warp "
        return joined(constant(word, len(at)), decimals(column[some], digits)).strings()

    return titles


def _on_sm(timeline: Timeline, row: Int64) -> Cells:
    return joined(constant(b" SM ", len(row)), decimals(timeline.trace.warps.sm[row]))


def _labels(timeline: Timeline, row: Int64) -> Cells:
    """Names of tracks in their groups."""
    warps, group = timeline.trace.warps, timeline.view.group
    if group == "sm":
        return warps.labels(row)
    lane = warps.lane[row]
    lanes = joined(constant(b" lane ", len(row)), decimals(lane)).where(lane > 0)
    if group == "block":
        return joined(constant(b"warp ", len(row)), decimals(warps.warp[row]), lanes)
    return joined(constant(b"block ", len(row)), warps.blocks(row), _on_sm(timeline, row), lanes)


def launch_name(timeline: Timeline, launch: int) -> str:
    """``matmul #3``, with the device if there are several. Launch numbers have equally many digits."""
    info = timeline.trace.launches[launch]
    digits = len(str(len(timeline.trace.launches) - 1))
    device = f" on device {info.device}" if len(timeline.trace.devices) > 1 else ""
    return f"{info.kernel} #{launch:0{digits}}{device}"
