"""The regions of a trace as a call tree with exclusive times: kernel, then nested regions. A node's own time excludes
its children; a kernel's is the lifetime outside all regions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..analysis.warp_stats import warp_ends
from ..tracedata.data import TraceData
from ..tracedata.nesting import parents, track_aligned
from ..util.arrays import Int64
from ..util.parallel import each


@dataclass(frozen=True)
class Node:
    """A kernel, or a region inside its parent.

    Attributes:
        name: of the kernel or region.
        parent: index of an earlier node; -1 for kernels.
        where: "file:line" of a region; None if unknown.
        count: number of spans, or for a kernel, of its warps.
        ticks: own time in cycles, or in ns if `timer`.
        ns: own time.
        kernel: index of its kernel's node.
        warps: number of warps (with AllThreads, lanes) that recorded the kernel.
        timer: the clock is globaltimer.
    """

    name: str
    parent: int
    where: str | None
    count: int
    ticks: int
    ns: float
    kernel: int
    warps: int
    timer: bool


def stacks(trace: TraceData) -> tuple[Node, ...]:
    """Build the call tree.

    Args:
        trace: the trace. Records without a duration and warps without records after a filter are skipped.

    Returns:
        The nodes, parents first.
    """
    spans = np.flatnonzero(trace.is_span & ~trace.flights)
    track = trace.track[spans]
    start, length = trace.start_ticks[spans], trace.dur_cycles[spans]
    parent = _parents(start, start + length, track)
    inside = parent >= 0
    own, even = (_own(parent, one.dur_cycles[spans]) for one in (trace, trace.even))
    names, name_of = np.unique(trace.region_names(), return_inverse=True)
    of_kernel = trace.warps.kernel[track]
    path, table = _paths(parent, name_of[trace.region[spans]], of_kernel, len(names), len(trace.kernels))
    wheres = {region.name: region.where for region in trace.regions}
    nodes = _kernels(trace, spans[~inside])
    size = len(nodes) + len(table)
    count = np.bincount(path, minlength=size)
    ticks, ns = np.zeros(size, np.int64), np.zeros(size)
    np.add.at(ticks, path, own)
    np.add.at(ns, path, even * trace.warps.tick_ns[track])
    for index, (above, number) in enumerate(table, start=len(nodes)):
        name, kernel = str(names[number]), nodes[above].kernel
        nodes.append(Node(
            name, above, wheres[name], int(count[index]), int(ticks[index]), float(ns[index]), kernel,
            nodes[kernel].warps, nodes[kernel].timer,
        ))  # fmt: skip
    return tuple(nodes)


def _own(parent: Int64, length: Int64) -> Int64:
    """The lengths of spans without those inside them."""
    covered, inside = np.zeros(len(length), np.int64), parent >= 0
    np.add.at(covered, parent[inside], length[inside])
    return np.asarray(np.maximum(length - covered, 0))  # crossing spans may cover more than the whole


def _parents(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> Int64:
    """The span that contains each span, or -1."""
    parent = np.full(len(start), -1, np.int64)

    def work(part: slice) -> None:
        local = parents(start[part], end[part], track[part])
        parent[part] = np.where(local >= 0, local + part.start, -1)

    each(work, track_aligned(track))
    return parent


def _paths(parent: Int64, name: Int64, kernel: Int64, names: int, kernels: int) -> tuple[Int64, list[tuple[int, int]]]:
    """The node of each span, numbered after the kernels, and (parent, name) of these nodes."""
    path = np.full(len(parent), -1, np.int64)
    table: list[tuple[int, int]] = []
    level = np.flatnonzero(parent < 0)
    rest = np.flatnonzero(parent >= 0)
    while len(level):
        above = np.where(parent[level] < 0, kernel[level], path[parent[level]])
        keys, which = np.unique(above * names + name[level], return_inverse=True)
        path[level] = kernels + len(table) + which
        table += [divmod(key, names) for key in keys.tolist()]
        ready = path[parent[rest]] >= 0
        level, rest = rest[ready], rest[~ready]
    return path, table


def _kernels(trace: TraceData, outermost: Int64) -> list[Node]:
    """The kernels' nodes: lifetimes of the warps minus their outermost spans."""
    warps = trace.warps
    used = np.zeros(len(warps), bool)
    used[trace.shown_warps] = True
    pace = np.where(warps.tick_ns > 0, warps.tick_ns, 1.0)
    life = np.rint((warp_ends(trace) - warps.start_ns) / pace)
    life = np.clip(np.nan_to_num(life), 0, 1 << 62).astype(np.int64)
    covered = np.zeros((2, len(warps)), np.int64)
    for column, one in zip(covered, (trace, trace.even), strict=True):
        np.add.at(column, trace.track[outermost], one.dur_cycles[outermost])
    own, even = np.where(used, np.maximum(life - covered, 0), 0)
    nodes = []
    for index, name in enumerate(trace.kernels):
        rows = np.flatnonzero((warps.kernel == index) & used)
        ns = float((even[rows] * warps.tick_ns[rows]).sum())
        timer = bool(len(rows)) and bool(warps.timer[rows].all())
        nodes.append(Node(name, -1, None, len(rows), int(own[rows].sum()), ns, index, len(rows), timer))
    return nodes
