"""The hierarchy of a timeline: GPU, launch, group, row, and their names; the same for every format.

    group      a launch holds     which hold
    sm         SM 12              block 3 warp 0
    block      block 3 SM 12      warp 0
    warp       warp 0             block 3 SM 12

With processes="groups", groups are outermost, and hold launches if there are several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..util.arrays import Bools, Int64
from ..util.json_values import clean
from ..util.parallel import chunks
from ..util.runs import count_distinct, fresh, group_equal, order_by
from ..util.text_columns import TextColumn, constant, decimals, joined, take
from .timeline import Timeline

TOP = -1
"""The parent of a GPU."""
BETWEEN = " · "
"""Separator of the levels of a row's name."""
_UNFINISHED = b" (unfinished)"


@dataclass(frozen=True)
class Group:
    """A group of rows.

    Attributes:
        name: its name.
        parent: index of the group that holds it, or TOP.
        place: number of rows above it.
        launch: the launch that it shows as a slice, None for none.
    """

    name: str
    parent: int
    place: int
    launch: int | None = None


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The t drawn tracks in display order.

    Attributes:
        index: (t,) the track.
        row: (t,) row of trace.warps.
        gpu: (t,) index into trace.devices.
        parent: (t,) index into `groups` of the group that holds the track.
        groups: GPUs, launches and groups, parents first, in display order.
        titled: (t,) the track's name begins with that of its group.
        suffixes: suffixes by place in (t,), of user tracks and tracks of crossing spans.
        timeline: that of the tracks.
    """

    index: Int64
    row: Int64
    gpu: Int64
    parent: Int64
    groups: list[Group]
    titled: Bools
    suffixes: dict[int, str]
    timeline: Timeline

    def labels(self, part: slice) -> TextColumn:
        """Names of some of the tracks, without their suffixes."""
        row, titled = self.row[part], self.titled[part]
        label = _labels(self.timeline, row)
        if not titled.any():
            return label
        swapped = self.timeline.view.processes == "groups"
        before = (_launch_cells if swapped else _titled)(self.timeline, row)
        between = constant(BETWEEN.encode(), len(row))
        return joined(before.where(titled), between.where(titled), label)

    def names(self) -> list[str]:
        """(t,) names of the tracks."""
        names = [name for part in chunks(len(self.row)) for name in self.labels(part).strings()]
        for at, suffix in self.suffixes.items():
            names[at] += suffix
        return names


def hierarchy(timeline: Timeline, *, nested: bool = False) -> Hierarchy:
    """Arrange the drawn tracks.

    Viewers open with only the outermost level expanded, so the rows of a GPU's first launch are not nested: they follow
    the launch's row directly, with the group in their names ("SM 12 · block 3 warp 0"). Formats without nesting list
    all launches like this.

    Args:
        timeline: the timeline.
        nested: later launches hold their groups, and these their rows; else all rows are on one level.
    """
    warps = timeline.trace.warps
    drawn = np.zeros(timeline.tracks, bool)
    drawn[timeline.drawn] = True
    drawn[len(warps) :] = True
    index = np.flatnonzero(drawn)
    row = timeline.rows[index]
    gpu = warps.device[row].astype(np.int64)
    launch, block, warp, sm = (getattr(warps, name)[row].astype(np.int64) for name in ("launch", "block", "warp", "sm"))
    group = {"sm": sm, "block": block, "warp": warp}[timeline.view.group]
    swapped = timeline.view.processes == "groups"
    outer, inner = (group, launch) if swapped else (launch, group)
    order = order_by(gpu, outer, inner, block, warp, warps.lane[row])
    index, row, gpu, launch, outer, inner = (one[order] for one in (index, row, gpu, launch, outer, inner))
    groups, parent = list[Group](), np.empty(len(index), np.int64)
    titled = np.zeros(len(index), bool)
    several = not swapped or count_distinct(launch) > 1
    heads, holder = np.flatnonzero(fresh(gpu, outer)), TOP
    outer_names, inner_names = _groups(timeline, row, nested), _launch_names(timeline, launch)
    if not swapped:
        outer_names, inner_names = inner_names, outer_names
    starts = np.flatnonzero(fresh(gpu, outer, inner)) if nested and several else heads[:0]
    below = list(zip(inner_names(starts.tolist()), pairwise([*starts.tolist(), len(index)]), strict=True))
    part = pairwise([*np.searchsorted(starts, heads).tolist(), len(starts)])
    spans = pairwise([*heads.tolist(), len(index)])
    for name, (first, stop), within in zip(outer_names(heads.tolist()), spans, part, strict=True):
        new = not first or gpu[first] != gpu[first - 1]
        if swapped:
            more = f" on {gpu_name(timeline, int(gpu[first]))}" if len(timeline.trace.devices) > 1 else ""
            groups.append(Group(name + more, TOP, first))
            parent[first:stop] = len(groups) - 1
        else:
            if new:
                holder = len(groups)
                groups.append(Group(gpu_name(timeline, int(gpu[first])), TOP, first))
            groups.append(Group(name, holder, first, int(launch[first])))
            parent[first:stop] = holder if new or not nested else len(groups) - 1
        titled[first:stop] = several and (not nested or (new and not swapped))
        if nested and several and not titled[first]:
            here = len(groups) - 1
            for inside, (at, end) in below[slice(*within)]:
                groups.append(Group(inside, here, at))
                parent[at:end] = len(groups) - 1
    extra = np.flatnonzero(index >= len(warps))
    more_tracks = [timeline.more[number].suffix for number in (index[extra] - len(warps)).tolist()]
    suffixes = dict(zip(extra.tolist(), more_tracks, strict=True))
    return Hierarchy(index, row, gpu, parent, groups, titled, suffixes, timeline)


def gpu_name(timeline: Timeline, index: int) -> str:
    """``NVIDIA H200``, with its number if there are several."""
    trace = timeline.trace
    name = next((gpu.name for gpu in trace.recorded.gpus if gpu.device == trace.devices[index]), "")
    if len(trace.devices) > 1:
        return f"GPU {trace.devices[index]}{BETWEEN}{name}" if name else f"GPU {trace.devices[index]}"
    return name or "GPU"


def _launch_names(timeline: Timeline, launch: Int64) -> Callable[[list[int]], list[str]]:
    """Names launches, ``matmul #3``, by place in `launch`."""
    return lambda at: [f"{timeline.trace.launches[one].kernel} #{one}" for one in launch[at].tolist()]


def _launch_cells(timeline: Timeline, row: Int64) -> TextColumn:
    """The name of the launch of each row."""
    launch = timeline.trace.warps.launch[row]
    first, _, which = group_equal(launch)
    names = _launch_names(timeline, launch)(first.tolist())
    return take([clean(name).encode() for name in names], which)


def _groups(timeline: Timeline, row: Int64, padded: bool) -> Callable[[list[int]], list[str]]:
    """Names groups, ``SM 12``, by place in `row`. padded: where groups are the outermost level, which viewers sort by
    name, SMs have leading zeros."""
    outermost = timeline.view.processes == "groups"
    digits = len(str(int(timeline.trace.warps.sm.max(initial=0)))) if outermost and padded else 1

    def names(at: list[int]) -> list[str]:
        if outermost and timeline.view.group == "block":  # its SM differs between launches
            return [f"block {name}" for name in timeline.trace.warps.blocks(row[at]).strings()]
        return _titled(timeline, row[at], digits).strings()

    return names


def _titled(timeline: Timeline, row: Int64, digits: int = 1) -> TextColumn:
    """The names of the groups of rows."""
    warps, group = timeline.trace.warps, timeline.view.group
    if group == "block":
        return joined(constant(b"block ", len(row)), warps.blocks(row), _on_sm(timeline, row))
    if group == "sm":
        return joined(constant(b"SM ", len(row)), decimals(warps.sm[row], digits))
    return _warps(timeline, row)


def _on_sm(timeline: Timeline, row: Int64) -> TextColumn:
    return joined(constant(b" SM ", len(row)), decimals(timeline.trace.warps.sm[row]))


def _warps(timeline: Timeline, row: Int64) -> TextColumn:
    """``warp 4``, with its role if that is known: ``producer warp 4``."""
    word = constant(b"warp ", len(row))
    names = timeline.roles.known
    parts = [take([clean(f"{name} ").encode() if name else b"" for name in names], timeline.roles.code[row])]
    return joined(*parts, word, decimals(timeline.trace.warps.warp[row]))


def _labels(timeline: Timeline, row: Int64) -> TextColumn:
    """Names of tracks in their groups."""
    warps, group = timeline.trace.warps, timeline.view.group
    lane = warps.lane[row]
    lanes = joined(constant(b" lane ", len(row)), decimals(lane)).where(lane > 0)
    unfinished = constant(_UNFINISHED, len(row)).where(~warps.finished[row])
    blocks = joined(constant(b"block ", len(row)), warps.blocks(row))
    if group == "sm":
        return joined(blocks, constant(b" ", len(row)), _warps(timeline, row), lanes, unfinished)
    if group == "block":
        return joined(_warps(timeline, row), lanes, unfinished)
    return joined(blocks, _on_sm(timeline, row), lanes, unfinished)
