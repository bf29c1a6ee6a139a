"""Pairs separate begins and ends into spans, for whole columns."""

from __future__ import annotations

import numpy as np

from ..util.arrays import Bools, Int64
from ..util.runs import fresh, heads

BEGIN, END = 1, -1


def pair(key: Int64, step: Int64) -> tuple[Int64, Int64, Int64]:
    """Pair the marks (n,), in the order in which each warp made them.

    Within one warp and event an end belongs to the latest open begin, as brackets do. So at one depth begins and ends
    alternate, and neighbors there are pairs.

    Args:
        key: (n,) equal for marks of one warp and event.
        step: (n,) BEGIN or END.

    Returns:
        (begins, their ends, ends without a begin) as indices; -1 for the end of an open begin. Begins ascend.
    """
    order = np.argsort(key, kind="stable")
    key, step = key[order], step[order]
    stray = _stray(key, step)
    kept = np.flatnonzero(~stray)
    strays = np.sort(order[stray])
    order, key, step = order[kept], key[kept], step[kept]
    after = _level(key, step)
    depth = np.where(step == BEGIN, after, after + 1)
    if len(depth) and int(depth.max()) > 1:
        by_depth = np.lexsort((depth, key))  # stable: at one depth still in order of time
        order, key, step = order[by_depth], key[by_depth], step[by_depth]
    begin = np.flatnonzero(step == BEGIN)
    behind = np.minimum(begin + 1, max(0, len(order) - 1))
    met = (begin + 1 < len(order)) & (step[behind] == END) & (key[behind] == key[begin])
    begins, ends = order[begin], np.where(met, order[behind], -1)
    ascending = np.argsort(begins)
    return begins[ascending], ends[ascending], strays


def _level(key: Int64, step: Int64) -> Int64:
    """The running sum of the steps (n,), for each run of a key: how many marks of it are open after each mark."""
    total = np.cumsum(step)
    first = heads(key)
    return np.asarray(total - np.repeat(total[first] - step[first], np.diff(first, append=len(key))))


def _stray(key: Int64, step: Int64) -> Bools:
    """Ends without an open begin: where a key's level reaches a new minimum."""
    after = _level(key, step)
    group = np.cumsum(fresh(key))
    # Each key's levels are pushed below those of the keys before it: one running minimum serves all.
    lowered = (after - step) - group * (len(key) + 2)
    least = np.minimum.accumulate(lowered) + group * (len(key) + 2)
    return np.asarray((step == END) & (after < least))


def unwrapped(low: Int64, warp: Int64) -> tuple[Int64, Bools]:
    """Extend 32-bit times (n,), grouped by warp.

    Each step within a warp takes the shorter way around; the warps' first times are within 2^31 of the first one. Times
    begin in the same 2^32 as `low`'s first, or at 2^32 if some lie before it.

    Returns:
        (times, True for those that go back).
    """
    if not len(low):
        return low, np.zeros(0, bool)
    begins = fresh(warp)
    step = np.diff(low, prepend=low[:1])
    step[begins] = low[begins] - low[0]
    step = (step + (1 << 31)) % (1 << 32) - (1 << 31)
    time = low[0] + _level(warp, step)
    if int(time.min()) < 0:
        time = time + (1 << 32) * (1 + -int(time.min()) // (1 << 32))
    return np.asarray(time), np.asarray((step < 0) & ~begins)
