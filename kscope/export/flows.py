"""Arrows: which record of one region belongs to which record of another, told by their values.

A pair of regions ("load", "dot") with `value=tile` in both: each `dot` gets an arrow from the latest `load`
of the same value that began before it did, of its own lane where that has one, else of its block. Where
none had begun, but one of the block did before the record ended (a wait for it), the arrow goes to the
record's end. One load may have several arrows, to each warp that uses it; values may come again, as the
slots of a ring of buffers do.

What lives here: this choice. What does not: how a format writes an arrow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..capture.layout import Kind
from ..capture.model import Problem
from ..errors import UsageError
from ..tracedata.data import TraceData
from ..util.text import counted

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Flows:
    """Arrows (f,), by source: indices of records, and whether an arrow goes to its target's end."""

    source: Int64
    target: Int64
    at_end: Bools

    def __len__(self) -> int:
        return len(self.source)


def flows(
    trace: TraceData, begin: Int64, end: Int64, pairs: tuple[tuple[str, str], ...]
) -> tuple[Flows, list[Problem]]:
    """The arrows of all pairs; begin, end: (n,) or longer, ns. Records without one are told in a problem.

    Raises UsageError for a region that is not there or has no values.
    """
    nothing = np.zeros(0, np.int64)
    found = [Flows(nothing, nothing, nothing.astype(bool))]
    problems: list[Problem] = []
    for first, second in pairs:
        sources, targets = _with_value(trace, first), _with_value(trace, second)
        arrows = _pair(trace, begin, end, sources, targets)
        found.append(arrows)
        if missing := len(targets) - len(arrows):
            text = f"{counted(missing, 'record')} of {second!r} without an arrow: no {first!r} of the same value before"
            problems.append(Problem("unlinked", text, missing))
    source, target, at_end = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("source", "target", "at_end")
    )
    order = np.argsort(source, kind="stable")
    return Flows(source[order], target[order], at_end[order]), problems


def _with_value(trace: TraceData, name: str) -> Int64:
    """The records of a region that have a value. Raises UsageError where the trace knows none."""
    valued = (Kind.SPAN_VALUE, Kind.INSTANT_VALUE)
    known = sorted({region.name for region in trace.regions if region.kind in valued})
    if name not in known:
        have = ", ".join(known[:20]) or "none"
        raise UsageError(f"export(flows=...): no region {name!r} with value=; this trace has {have}")
    wanted = np.array([region.name == name and region.kind in valued for region in trace.regions])
    return np.flatnonzero(wanted[trace.region])


def _pair(trace: TraceData, begin: Int64, end: Int64, sources: Int64, targets: Int64) -> Flows:
    if not len(sources) or not len(targets):
        nothing = np.zeros(0, np.int64)
        return Flows(nothing, nothing, nothing.astype(bool))
    both = np.concatenate([sources, targets])
    _, block = np.unique(np.stack([trace.warps.launch, trace.warps.block], axis=1), axis=0, return_inverse=True)
    _, value = np.unique(trace.value[both], return_inverse=True)
    track = trace.track[both].astype(np.int64)
    in_lane, in_block = (place * (len(both) + 1) + value for place in (track, block.ravel()[track]))
    cut, started = len(sources), begin[sources]
    own = _latest(in_lane[:cut], started, in_lane[cut:], begin[targets])
    before = _latest(in_block[:cut], started, in_block[cut:], begin[targets])
    at_begin = np.where(own >= 0, own, before)
    at_end = _latest(in_block[:cut], started, in_block[cut:], end[targets])
    chosen = np.where(at_begin >= 0, at_begin, at_end)
    # a record that is both source and target must not point at itself
    linked = (chosen >= 0) & (sources[chosen] != targets)
    return Flows(sources[chosen[linked]], targets[linked], (at_begin < 0)[linked])


def _latest(source_key: Int64, source_time: Int64, key: Int64, time: Int64) -> Int64:
    """For each (key, time) the index of the latest source of that key before that time, or -1."""
    keys, times = np.concatenate([source_key, key]), np.concatenate([source_time, time])
    is_source = np.arange(len(keys)) < len(source_key)
    order = np.lexsort((is_source, times, keys))  # at one time, sources come last: they are not before
    last = np.maximum.accumulate(np.where(is_source[order], np.arange(len(order)), -1))
    found = np.full(len(keys), -1)
    inside = last >= 0
    same = np.zeros(len(keys), bool)
    same[inside] = keys[order[last[inside]]] == keys[order[inside]]
    found[order[same]] = order[last[same]]
    return np.asarray(found[len(source_key) :], np.int64)
