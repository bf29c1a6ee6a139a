"""Arrows between records of two regions with the same value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..capture.counted_problems import note
from ..capture.layout import Kind
from ..capture.model import Problem
from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.values import distinct
from ..util.arrays import Bools, Int64
from ..util.runs import group_equal


@dataclass(frozen=True, eq=False)
class Flows:
    """Arrows (f,), sorted by source.

    Attributes:
        source, target: int64, indices of records.
        at_end: bool, the arrow points to the target's end.
    """

    source: Int64
    target: Int64
    at_end: Bools

    def __len__(self) -> int:
        return len(self.source)

    def with_more(self, more: Flows) -> Flows:
        """These arrows and further ones."""
        if not len(more):
            return self
        source = np.concatenate([self.source, more.source])
        order = np.argsort(source, kind="stable")
        target, at_end = np.concatenate([self.target, more.target]), np.concatenate([self.at_end, more.at_end])
        return Flows(source[order], target[order], at_end[order])


NO_FLOWS = Flows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))


def arrival(name: str) -> str:
    """The name of the instant where an arrow from a region ends inside a span."""
    return f"{name} arrived"


def flows(
    trace: TraceData, begin: Int64, end: Int64, pairs: tuple[tuple[str, str], ...]
) -> tuple[Flows, list[Problem]]:
    """Find the arrows of all pairs.

    For a pair ("load", "dot") with `value=tile` in both, each `dot` gets an arrow from the latest `load` of the same
    value that began before it: in its own lane if there is one, else in its block. If none began before the `dot`, but
    one did before it ended (the `dot` waits for it), the arrow points to the end. A `load` may have several arrows, and
    values may be reused, as ring buffer slots are.

    Args:
        trace: the trace.
        begin, end: (n,) or longer, int64, ns.
        pairs: (source, target) region names.

    Returns:
        The arrows, and a problem per pair with unlinked targets.

    Raises:
        UsageError: a region does not exist or has no values.
    """
    found, problems = NO_FLOWS, list[Problem]()
    for first, second in pairs:
        sources, targets = with_value(trace, first), with_value(trace, second)
        arrows = _pair(trace, begin, end, sources, targets)
        found = found.with_more(arrows)
        text = f" of {second!r} without an arrow: no earlier {first!r} has the same value"
        note(problems, "unlinked", len(targets) - len(arrows), "record", text)
    return found, problems


def with_value(trace: TraceData, name: str) -> Int64:
    """The records of a region that have a value. Raises UsageError if there is no such region."""
    valued = (Kind.SPAN_VALUE, Kind.INSTANT_VALUE)
    known = sorted({region.name for region in trace.regions if region.kind in valued})
    if name not in known:
        have = ", ".join(known[:20]) or "none"
        raise UsageError(f"export(flows=...): no region {name!r} with value=; this trace has {have}")
    matches = np.array([region.name == name and region.kind in valued for region in trace.regions])
    return np.flatnonzero(matches[trace.region])


def _pair(trace: TraceData, begin: Int64, end: Int64, sources: Int64, targets: Int64) -> Flows:
    if not len(sources) or not len(targets):
        return NO_FLOWS
    both = np.concatenate([sources, targets])
    _, value = distinct(trace.value, trace.integers, both)
    track, block = trace.track[both].astype(np.int64), group_equal(trace.warps.block_key)[2]
    in_lane, in_block = (place * (len(both) + 1) + value for place in (track, block[track]))
    cut, started = len(sources), begin[sources]
    same_lane = _latest(in_lane[:cut], started, in_lane[cut:], begin[targets])
    same_block = _latest(in_block[:cut], started, in_block[cut:], begin[targets])
    at_begin = np.where(same_lane >= 0, same_lane, same_block)
    at_end = _latest(in_block[:cut], started, in_block[cut:], end[targets])
    index = np.where(at_begin >= 0, at_begin, at_end)
    # a record that is both source and target must not point at itself
    linked = (index >= 0) & (sources[index] != targets)
    return Flows(sources[index[linked]], targets[linked], (at_begin < 0)[linked])


def _latest(source_key: Int64, source_time: Int64, key: Int64, time: Int64) -> Int64:
    """For each (key, time): the index of the latest source with that key before that time, or -1."""
    keys, times = np.concatenate([source_key, key]), np.concatenate([source_time, time])
    is_source = np.arange(len(keys)) < len(source_key)
    order = np.lexsort((is_source, times, keys))  # at equal times sources sort last: they are not earlier
    last = np.maximum.accumulate(np.where(is_source[order], np.arange(len(order)), -1))
    found = np.full(len(keys), -1)
    inside = last >= 0
    same = np.zeros(len(keys), bool)
    same[inside] = keys[order[last[inside]]] == keys[order[inside]]
    found[order[same]] = order[last[same]]
    return np.asarray(found[len(source_key) :], np.int64)
