"""The threads of a timeline in Chrome's format: a launch and each of its warps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..util.arrays import Int64
from ..util.grouping import grouped
from ..util.json_values import clean
from .groups import TOP, hierarchy
from .timeline import Timeline

_FIRST_PID = 2


@dataclass(frozen=True)
class Thread:
    """A row: its process, its name, and the launch that it shows, or the row of trace.warps."""

    pid: int
    name: str
    launch: int | None = None
    row: int | None = None


@dataclass(frozen=True)
class Threads:
    """pid, tid: (tracks,) int64. rows: threads by tid, in display order. processes: names by pid. free: unused tid.
    home: the process of the problems."""

    pid: Int64
    tid: Int64
    rows: dict[int, Thread]
    processes: dict[int, str]
    free: int
    home: int = _FIRST_PID


@dataclass(frozen=True, eq=False)
class Beside:
    """Place of the launches (l,) of a timeline in a file of another profiler.

    Attributes:
        pid: process of each.
        stream: number of its stream, by which launches of a process are sorted.
        prefix: prefix of the names of its rows.
        first: a tid above all others of these processes.
    """

    pid: Int64
    stream: Int64
    prefix: list[str]
    first: int


def threads_of(timeline: Timeline, beside: Beside | None = None) -> Threads:
    """The threads of a timeline: in processes for its GPUs, or in those of another profiler's file.

    A tid of 0, 1 or its pid makes viewers merge tracks and drop slices, so tids start after all pids. They rise in
    display order, because Perfetto sorts by them and ignores sort_index.
    """
    drawn = hierarchy(timeline)
    outermost = (at for at, one in enumerate(drawn.groups) if one.parent == TOP)
    gpus = {at: pid for pid, at in enumerate(outermost, _FIRST_PID)}
    processes = {pid: clean(drawn.groups[at].name) for at, pid in gpus.items()} or {_FIRST_PID: "GPU"}
    order, free, home = np.arange(len(drawn.index)), _FIRST_PID + len(processes) + 1, _FIRST_PID
    launch = timeline.trace.warps.launch[drawn.row]
    if beside is not None:
        order = np.lexsort((order, beside.stream[launch], beside.pid[launch]))
        processes, free, home = {}, beside.first, int(beside.pid.min(initial=0))
    before = grouped((one.place, one) for one in drawn.groups if one.launch is not None)
    pid, tid = np.zeros((2, timeline.tracks), np.int64)
    rows: dict[int, Thread] = {}
    columns = (drawn.index.tolist(), drawn.row.tolist(), drawn.parent.tolist(), drawn.names(), launch.tolist())
    tracks = list(zip(*columns, strict=True))
    for at in order.tolist():
        track, row, parent, name, number = tracks[at]
        process, prefix = gpus.get(parent, home), ""
        if beside is not None:
            process, prefix = int(beside.pid[number]), beside.prefix[number]
        for group in before.get(at, ()):
            rows[free] = Thread(process, clean(prefix + group.name), group.launch)
            free += 1
        rows[free] = Thread(process, clean(prefix + name), row=row)
        pid[track], tid[track] = process, free
        free += 1
    return Threads(pid, tid, rows, processes, free, home)
