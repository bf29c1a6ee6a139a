"""Pairs the launches of a capture with the kernels of another profiler's trace."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..util.arrays import Int64
from ..util.grouping import grouped
from ..util.text import counted, some
from .kineto import Kernels, Kineto
from .launch_times import LaunchTimes
from .names import identifier

NONE = -1
"""The kernel of a launch that is not paired."""
Group = tuple[int, str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs.

    Attributes:
        kernel: (l,) int64, index of each launch's kernel, or NONE.
        by_order_of_enqueue: launches that overlapped on several streams.
        unsure: launches left without a kernel because their order is unknown.
    """

    kernel: Int64
    by_order_of_enqueue: int = 0
    unsure: int = 0


def pair(trace: TraceData, times: LaunchTimes, kernels: Kernels, kineto: Kineto) -> Pairs:
    """Pair launches with kernels.

    Both list all launches of a kernel, so they pair by order, per device, kernel and grid. On one stream, and where
    kernels of several streams do not overlap, this is the order of begin. Those that overlap pair by the order in which
    they were enqueued (%gridid beside the correlation) if all other launches of the capture confirm that order, else
    not at all. Counts that differ are an error.

    Args:
        trace: a whole trace.
        times: of its launches.
        kernels: of the file `kineto`.
        kineto: the file.

    Raises:
        UsageError: the two do not list the same launches; the message names the kernel and possible reasons.
    """
    _refuse_filtered(trace)
    ours, theirs = _ours(trace, times), _theirs(trace, kernels)
    _compare_counts(trace, kernels, kineto, ours, theirs)
    found = np.full(len(trace.launches), NONE, np.int64)
    disputed: list[tuple[list[int], list[int]]] = []
    unsure = 0
    for group, launches in ours.items():
        by_begin = sorted(launches, key=lambda one: int(times.first[one]))
        members = np.array(theirs[group])  # in order of begin
        if (kernels.grid_id[members] >= 0).all():
            found[by_begin] = _by_grid_id(trace, kernels, by_begin, members)
            continue
        for part in _apart(kernels, members):
            mine, other = by_begin[part], members[part].tolist()
            if len(set(kernels.stream[other].tolist())) == 1:
                found[mine] = other
            elif (by_enqueue := _in_order_of_enqueue(trace, kernels, mine, other)) is not None:
                disputed.append(by_enqueue)
            else:
                unsure += len(mine)
    count = sum(len(mine) for mine, _ in disputed)
    if not count or not _enqueued_in_order(trace, kernels, found):
        return Pairs(found, 0, unsure + count)
    for mine, other in disputed:
        found[mine] = other
    return Pairs(found, count, unsure)


def _by_grid_id(trace: TraceData, kernels: Kernels, launches: list[int], members: Int64) -> list[int]:
    """The kernel of each launch, by %gridid; the replays of one, which share it, by order of begin."""
    unpaired = defaultdict[int, deque[int]](deque)
    for at in members.tolist():
        unpaired[int(kernels.grid_id[at])].append(at)
    found = []
    for one in launches:
        launch = trace.launches[one]
        if not unpaired[launch.grid_id] and (kernels.node[members] != NONE).any():
            raise UsageError(
                f"merge: a launch of {launch.kernel} has the grid id {launch.grid_id}, which no kernel of the report "
                "has. Some ran in CUDA graphs: the files are not of the same run, or this nsys gives the kernels of "
                "graphs other ids; torch.profiler's trace pairs them (--torch)"
            )
        if not unpaired[launch.grid_id]:
            raise UsageError(
                f"merge: a launch of {launch.kernel} has the grid id {launch.grid_id}, which no kernel of the report "
                "has: the files are not of the same run"
            )
        found.append(unpaired[launch.grid_id].popleft())
    return found


def _apart(kernels: Kernels, members: Int64) -> list[slice]:
    """Parts of the kernels, in order of begin, such that those of one part end before those of the next one begin, and
    so do their launches.
    """
    begin, latest = kernels.begin[members], np.maximum.accumulate(kernels.end[members])
    cuts = [0, *(np.flatnonzero(begin[1:] >= latest[:-1]) + 1).tolist(), len(members)]
    return [slice(first, last) for first, last in pairwise(cuts)]


def _refuse_filtered(trace: TraceData) -> None:
    if trace.filtered:
        raise UsageError("merge of a filtered trace: launches pair by their order, so merge the whole capture")
    if trace.lost_launches:
        lost = some([f"{one.kernel} ({one.count})" for one in trace.lost_launches], 5)
        raise UsageError(
            f"merge: launches of {lost} left no record, because the pool was full or a fault ended the context; "
            "launches pair by their order, so all must be there: record with a larger pool="
        )


def _ours(trace: TraceData, times: LaunchTimes) -> dict[Group, list[int]]:
    launches = ((number, trace.launches[number]) for number in np.flatnonzero(times.recorded).tolist())
    return grouped(((launch.device, launch.kernel, launch.grid), number) for number, launch in launches)


def _theirs(trace: TraceData, kernels: Kernels) -> dict[Group, list[int]]:
    """Kernels by group, named as in the capture; those that the capture does not have are left out."""
    names = {launch.kernel for launch in trace.launches}
    short = grouped((identifier(name), name) for name in sorted(names))
    known: dict[str, str | None] = {}
    groups = defaultdict[Group, list[int]](list)
    grids = {(launch.device, launch.kernel): launch.grid for launch in trace.launches}
    for at, name in enumerate(kernels.name):
        if name not in known:
            known[name] = name if name in names else _by_identifier(name, short)
        mine = known[name]
        if mine is not None:
            device = int(kernels.device[at])
            groups[device, mine, kernels.grid[at] or grids.get((device, mine), ())].append(at)
    return groups


def _by_identifier(name: str, short: dict[str, list[str]]) -> str | None:
    found = short.get(identifier(name), [])
    if len(found) > 1:
        raise UsageError(
            f"merge: {name!r} may be any of {some(found, 4)}: kernels of one name cannot be paired; record one of them "
            "with kernel="
        )
    return found[0] if found else None


def _compare_counts(
    trace: TraceData, kernels: Kernels, kineto: Kineto, ours: dict[Group, list[int]], theirs: dict[Group, list[int]]
) -> None:
    if not len(kernels):
        raise UsageError(
            f"merge: {kineto.name} has no kernels: profile with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA]"
        )
    counts = defaultdict[tuple[int, str], list[int]](lambda: [0, 0])
    for side, groups in enumerate((ours, theirs)):
        for (device, name, _), members in groups.items():
            counts[device, name][side] += len(members)
    wrong = [(key, mine, other) for key, (mine, other) in sorted(counts.items()) if mine != other]
    if wrong:
        several = len({device for device, _ in counts}) > 1
        texts = [
            f"{name}{f' on GPU {device}' if several else ''}: {counted(mine, 'launch')} in the capture, "
            f"{counted(other, 'kernel')} in {kineto.name}"
            for (device, name), mine, other in wrong
        ]
        raise UsageError(
            f"merge: counts differ, so no order pairs them. {some(texts, 4)}. {_why(trace, kineto, wrong)}"
        )
    every = ours.keys() | theirs.keys()
    if uneven := {group[1] for group in every if len(ours.get(group, ())) != len(theirs.get(group, ()))}:
        raise UsageError(f"merge: launches of {min(uneven)} have different grids: the files are not of the same run")


def _why(trace: TraceData, kineto: Kineto, wrong: Iterable[tuple[tuple[int, str], int, int]]) -> str:
    """Possible reasons for counts that differ."""
    options = trace.recorded.options
    subset = [name for name in ("block", "warp", "sm") if options.get(name)]
    if kineto.steps:
        first, last = kineto.steps[0], kineto.steps[-1]
        which = f"step {first}" if first == last else f"steps {first} to {last}"
        gaps = last - first + 1 > len(kineto.steps)
        return (
            f"The profiler has a schedule, and {kineto.name} has {which} only{' with gaps: several cycles' * gaps}: "
            "record one cycle, with kscope.profile() around its active steps"
        )
    if kineto.whole_graphs and any(mine > other for _, mine, other in wrong):
        return (
            f"{kineto.name} has {counted(kineto.whole_graphs, 'run')} of CUDA graphs without their kernels: run nsys "
            "with --cuda-graph-trace=node"
        )
    if subset:
        return f"The capture was limited by {', '.join(subset)}, which leaves launches out: record all blocks"
    if trace.tuning_launches:
        return (
            f"The capture leaves out {counted(trace.tuning_launches, 'launch')} of autotuners: tune before both begin"
        )
    if all(mine < other for _, mine, other in wrong):
        return (
            "Begin and end both over the same launches, as in `with torch.profiler.profile() as p, kscope.profile():`"
        )
    return f"{kineto.name} must be of the same run, and of all its launches while kscope recorded"


def _in_order_of_enqueue(
    trace: TraceData, kernels: Kernels, launches: list[int], members: list[int]
) -> tuple[list[int], list[int]] | None:
    """Launches and their kernels by the order of enqueue; None for launches of graphs, which are enqueued together."""
    ids = {trace.launches[one].grid_id for one in launches}
    correlations = set(kernels.correlation[members].tolist())
    if len(ids) < len(launches) or len(correlations) < len(members) or (kernels.node[members] != NONE).any():
        return None
    mine = sorted(launches, key=lambda one: trace.launches[one].grid_id)
    return mine, sorted(members, key=lambda one: int(kernels.correlation[one]))


def _enqueued_in_order(trace: TraceData, kernels: Kernels, found: Int64) -> bool:
    """True if %gridid rises with the correlation in all pairs, per device, and there are some."""
    direct = [at for at, launch in enumerate(trace.launches) if found[at] != NONE and not launch.replay]
    direct.sort(key=lambda one: (trace.launches[one].device, trace.launches[one].grid_id))
    neighbors = [(a, b) for a, b in pairwise(direct) if trace.launches[a].device == trace.launches[b].device]
    correlation = kernels.correlation[found]
    return bool(neighbors) and all(correlation[a] <= correlation[b] for a, b in neighbors)
