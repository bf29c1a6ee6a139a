"""Arrows between devices for records whose value is the other device: who waited for whom."""

from __future__ import annotations

import numpy as np

from ..capture.counted_problems import note
from ..capture.model import Problem
from ..tracedata.data import TraceData
from ..util.arrays import Int64
from ..util.runs import least_of, ordinals
from .flows import NO_FLOWS, Flows, with_value


def peer_flows(
    trace: TraceData, begin: Int64, end: Int64, pairs: tuple[tuple[str, str], ...]
) -> tuple[Flows, list[Problem]]:
    """Find the arrows of all pairs.

    For a pair ("signal", "wait"), the n-th `wait` of rank 3 with value 5 in a launch gets an arrow to its end from the
    n-th `signal` of rank 5 with value 3 in the launch of the same kernel and number. If both are one region, such as an
    `exchange`, the arrow comes from the begin of the one that began later: the other one waited for it.

    Args:
        trace: of several devices; a record's value is the number of a device.
        begin, end: (n,) or longer, int64, ns.
        pairs: (source, target) region names; they may be the same.

    Returns:
        The arrows, all to ends, and a problem per pair with unlinked targets.

    Raises:
        UsageError: a region does not exist or has no values.
    """
    found, problems = NO_FLOWS, list[Problem]()
    place = _places(trace) if pairs else np.zeros(0, np.int64)
    for first, second in pairs:
        sources, targets = with_value(trace, first), with_value(trace, second)
        to = _matched(trace, place, sources, targets)
        linked = to >= 0
        if first == second:
            linked &= begin[sources] > begin[to]
        else:
            text = f" of {second!r} without an arrow: no {first!r} of its peer"
            note(problems, "unlinked", len(targets) - np.count_nonzero(linked), "record", text)
        from_, to = sources[linked], to[linked]
        found = found.with_more(Flows(from_, to, np.ones(len(to), bool)))
    return found, problems


def _places(trace: TraceData) -> Int64:
    """(launches,) index of each launch among those of its kernel on its device, combined with the kernel."""
    warps, count = trace.warps, len(trace.launches)
    device, kernel = np.zeros((2, count), np.int64)
    device[warps.launch], kernel[warps.launch] = warps.device, warps.kernel
    first = least_of(warps.launch, warps.start_ns, count, np.inf)
    names = {name: number for number, name in enumerate(dict.fromkeys(trace.kernels))}
    kernel = np.array([names[name] for name in trace.kernels], np.int64)[kernel] if count else kernel
    order = np.lexsort((first, kernel, device))
    return _numbers(order, device, kernel) * max(1, len(names)) + kernel


def _numbers(order: Int64, *keys: Int64) -> Int64:
    """The index of each item among those with equal keys, in this order."""
    found = np.zeros(len(order), np.int64)
    found[order] = ordinals(*(key[order] for key in keys))
    return found


def _matched(trace: TraceData, place: Int64, sources: Int64, targets: Int64) -> Int64:
    """(s,) the target of each source, or -1."""
    warps = trace.warps
    numbers = np.array(trace.devices, np.int64)

    def keys(at: Int64, mine_first: bool) -> Int64:
        track = trace.track[at]
        mine, peer = numbers[warps.device[track]], np.nan_to_num(trace.value[at], nan=-1.0).astype(np.int64)
        waits, signals = (mine, peer) if mine_first else (peer, mine)
        where = place[warps.launch[track]]
        order = np.lexsort((trace.start_ns[at], warps.warp[track], warps.block[track], where, signals, waits))
        return np.stack([waits, signals, where, _numbers(order, waits, signals, where)], axis=1)

    both = np.concatenate([keys(sources, False), keys(targets, True)])
    _, code = np.unique(both, axis=0, return_inverse=True)
    of_source, of_target = np.split(code.ravel(), [len(sources)])
    target = np.full(int(code.max(initial=-1)) + 1, -1)
    target[of_target] = targets
    return np.asarray(target[of_source])
