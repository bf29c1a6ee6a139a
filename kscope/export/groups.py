"""The hierarchy of a timeline: launch, group, lane, and their names; the same for every format.

    group      a launch holds     which hold
    sm         SM 12              block 3 warp 0
    block      block 3 SM 12      warp 0
    warp       warp 0             block 3 SM 12

With processes="groups" the first two levels swap: SM 12 is a process, and holds launches if there are several.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..util.runs import fresh
from .timeline import Timeline

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The t drawn tracks in display order.

    Attributes:
        index: (t,) index into timeline.tracks.
        row: (t,) row of trace.warps.
        process: (t,) index into `processes`.
        group: (t,) number of the group, unique within its process.
        groups: (t,) names of the groups; a group with an empty name is not drawn.
        names: (t,) names of the tracks.
        processes: names of the processes.
    """

    index: Int64
    row: Int64
    process: Int64
    group: Int64
    groups: list[str]
    names: list[str]
    processes: list[str]


def hierarchy(timeline: Timeline, *, padded: bool = False) -> Hierarchy:
    """Arrange the drawn tracks.

    Args:
        timeline: the timeline.
        padded: group numbers have leading zeros, for viewers that sort by name.
    """
    warps = timeline.trace.warps
    drawn = np.zeros(len(timeline.tracks), bool)
    drawn[timeline.alive] = True
    drawn[len(warps) :] = True
    index = np.flatnonzero(drawn)
    row = np.concatenate(
        [index[index < len(warps)], np.array([track.row for track in timeline.tracks[len(warps) :]], np.int64)]
    )
    launch, block, warp, sm = (getattr(warps, name)[row].astype(np.int64) for name in ("launch", "block", "warp", "sm"))
    group = {"sm": sm, "block": block, "warp": warp}[timeline.view.group]
    swapped = timeline.view.processes == "groups"
    device = warps.device[row] if swapped and timeline.view.group == "sm" else np.zeros(len(row), np.int64)
    outer, inner = (group, launch) if swapped else (launch, group)
    order = np.lexsort((index, warps.lane[row], warp, block, inner, outer, device))
    index, row, inner, outer, device = (column[order] for column in (index, row, inner, outer, device))
    groups, names = _names(timeline, row, padded)
    first = fresh(outer, device)
    starts = np.flatnonzero(first).tolist()
    if swapped:
        several = len(timeline.trace.launches) > 1
        processes = [_process(timeline, groups[at], int(row[at])) for at in starts]
        groups = [launch_name(timeline, number) if several else "" for number in inner.tolist()]
    else:
        processes = [launch_name(timeline, int(outer[at])) for at in starts]
    for at in np.flatnonzero(index >= len(warps)).tolist():  # user tracks and tracks of crossing spans
        names[at] += timeline.tracks[index[at]].suffix
    return Hierarchy(index, row, np.cumsum(first) - 1, inner, groups, names, processes)


def _process(timeline: Timeline, group: str, row: int) -> str:
    """The name of a group that is a process. Blocks omit the SM, which differs between launches."""
    trace, by = timeline.trace, timeline.view.group
    if by == "block":
        return f"block {trace.warps.blocks(np.array([row]))[0]}"
    if by == "sm" and len(trace.devices) > 1:
        return f"{group} on device {trace.devices[trace.warps.device[row]]}"
    return group


def _names(timeline: Timeline, row: Int64, padded: bool) -> tuple[list[str], list[str]]:
    warps, group = timeline.trace.warps, timeline.view.group
    digits = len(str(int(warps.sm[row].max(initial=0)))) if padded and group == "sm" else 1
    sms = [f"SM {sm:0{digits}}" for sm in warps.sm[row].tolist()]
    if group == "sm":
        return sms, warps.labels(row)
    digits = len(str(int(warps.warp[row].max(initial=0)))) if padded and group == "warp" else 1
    roles = [f"warp {warp:0{digits}}" for warp in warps.warp[row].tolist()]
    lanes = [f" lane {lane}" if lane else "" for lane in warps.lane[row].tolist()]
    size = [len(str(most)) for most in (warps.grid[row].max(axis=0, initial=1) - 1).tolist()]
    blocks = warps.blocks(row, size if padded and group == "block" else (1, 1, 1))
    on = [f"block {block} {sm}" for block, sm in zip(blocks, sms, strict=True)]
    if group == "block":
        return on, [role + lane for role, lane in zip(roles, lanes, strict=True)]
    return roles, [block + lane for block, lane in zip(on, lanes, strict=True)]


def launch_name(timeline: Timeline, launch: int) -> str:
    """``matmul #3``, with the device if there are several. Launch numbers have equally many digits."""
    info = timeline.trace.launches[launch]
    digits = len(str(len(timeline.trace.launches) - 1))
    device = f" on device {info.device}" if len(timeline.trace.devices) > 1 else ""
    return f"{info.kernel} #{launch:0{digits}}{device}"
