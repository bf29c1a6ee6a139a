"""How spans of one lane contain each other: depth, and spans that cross without nesting.

Within a lane records stand in order of end. So a span is inside of every later one that started at
the same time or before, and

    roots     spans without a later span of that lane that began before them: one backward running minimum
    level 1   the roots of what is left, and so on

A span of no length contains nothing, and is inside of [a, b) where a <= t < b. What lives here: these
questions, for whole columns. What does not: how a viewer draws the answers (export/).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..util.parallel import CHUNK, each

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST_LEVELS = 64
"""Deeper spans are given this depth: no kernel nests so, damaged data may."""
_LANES = 8
_MOST_KEY = 1 << 61


def nest(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.uint8], Bools]:
    """(depth, crossing) of spans (n,): depth from 0; crossing where a span overlaps the one before it at
    its depth (of several in a row, every second). `track` does not decrease, nor does `end` within a
    track. All cores."""
    depth, crossing = np.zeros(len(start), np.uint8), np.zeros(len(start), bool)

    def work(part: slice) -> None:
        depth[part], crossing[part] = _nest(start[part], end[part], _counts(track[part]))

    each(work, lane_aligned(track))
    return depth, crossing


def cross(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> bool:
    """Whether any spans of a track cross: nest() without depths. Order as there; all cores."""
    found: list[slice] = []

    def work(part: slice) -> None:
        if not found and _cross(start[part], end[part], _counts(track[part])):
            found.append(part)

    each(work, lane_aligned(track))
    return bool(found)


def apart(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> Int64:
    """Starts (n,) with which no spans cross: of two that do, the later begins where the earlier ends, and has no length
    where both end together. Order as in nest(); all spans have a length."""
    if not len(start) or not cross(start, end, track):
        return start
    depth, begin = nest(start, end, track)[0], np.array(start)
    for level in range(int(depth.max()) + 1):
        # What stands between a span and the one before it on its level or above is inside of it. So of all spans that
        # began before it, that one is the last to end.
        at = np.flatnonzero(depth <= level)
        before, here = at[:-1], at[1:]
        follows = np.flatnonzero((depth[here] == level) & (track[here] == track[before]))
        begin[here[follows]] = np.maximum(start[here[follows]], end[before[follows]])
    return begin


def parents(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> Int64:
    """For each span (n,) the index of the innermost span of its track that holds it, -1 without one. Order as in
    nest(). One thread: callers work on slices that end where a track does."""
    parent = np.full(len(start), -1, np.int64)
    key = _key(start, end, track)
    if key is None:
        _nest(start, end, _counts(track), parent)
        return parent
    index: Int64 | None = None
    for roots, rest in _levels(key):
        held = np.diff(roots, prepend=-1) - 1  # what follows a root and is none is held by the next root
        if index is not None:
            roots, rest = index.take(roots), index.take(rest)
        parent[rest] = np.repeat(roots, held)
        index = rest
    return parent


def inside(start: Int64, end: Int64, track: npt.NDArray[np.int32], weight: Int64) -> tuple[Int64, Int64]:
    """(sum of the weights of the spans whose parent each span (n,) is, spans without a parent in order of end): what
    parents() would give, in half the time. A span of no length stands behind those that end with it."""
    held = np.zeros(len(start), np.int64)
    key = _key(start, end, track)
    if key is None:
        parent = parents(start, end, track)
        inner, outer = np.flatnonzero(parent >= 0), np.flatnonzero(parent < 0)
        np.add.at(held, parent[inner], weight[inner])
        return held, outer[np.lexsort((end[outer] <= start[outer], end[outer], track[outer]))]
    levels = _levels(key)
    above, index = next(levels)
    outermost, before, weight = above, above - np.arange(len(above)), weight.take(index)
    for roots, rest in levels:
        mine = weight.copy()
        mine[rest] = 0
        held[above] = _between(mine, before)
        above, index = index.take(roots), index.take(rest)
        before, weight = roots - np.arange(len(roots)), weight.take(rest)
    if len(weight):  # deeper than MOST_LEVELS
        held[above] = _between(weight, before)
    return held, outermost


def _key(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> Int64 | None:
    """Starts, every track's lifted above those of all tracks before it; None where that does not fit, or spans of no
    length are among them."""
    if not len(start):
        return start
    counts, least = _counts(track), int(start.min())
    width = int(end.max()) - least + 1
    if width * len(counts) >= _MOST_KEY or bool((end <= start).any()):
        return None
    key = start - least
    key += np.repeat(np.arange(0, len(counts) * width, width), counts)
    return key


def _levels(key: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Level by level: (spans that no other one holds, the rest), as positions in the rest of the level before."""
    for _ in range(MOST_LEVELS):
        later = np.minimum.accumulate(key[::-1])[::-1]
        inner = np.zeros(len(key), bool)
        np.less_equal(later[1:], key[:-1], out=inner[:-1])
        rest = np.flatnonzero(inner)
        yield np.flatnonzero(~inner), rest
        if not len(rest):
            break
        key = key.take(rest)


def _between(weight: Int64, before: Int64) -> Int64:
    """Sums of the weights up to each of ascending positions, from the one before it on."""
    return np.diff(np.append(0, np.cumsum(weight)).take(before), prepend=0)


def lane_aligned(track: npt.NDArray[np.int32], size: int = CHUNK) -> list[slice]:
    """Slices of the column, about `size` long, that end where a track does."""
    changes = np.flatnonzero(track[1:] != track[:-1]) + 1
    cuts = [0]
    while cuts[-1] + size < len(track):
        following = int(np.searchsorted(changes, cuts[-1] + size))
        if following == len(changes):
            break
        cuts.append(int(changes[following]))
    return [slice(a, b) for a, b in zip(cuts, [*cuts[1:], len(track)], strict=True) if a < b]


def _counts(track: npt.NDArray[np.int32]) -> Int64:
    """Spans of each track, which stand one after another."""
    changes = np.flatnonzero(track[1:] != track[:-1]) + 1
    return np.diff(changes, prepend=0, append=len(track))


def lanes(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> npt.NDArray[np.unsignedinteger]:
    """A lane (n,) for each span, 0 for nearly all, so that the spans of one track and lane nest."""
    lane: npt.NDArray[np.unsignedinteger] = np.zeros(len(start), np.uint8)
    if not cross(start, end, track):
        return lane
    crossing = nest(start, end, track)[1]
    rest = np.arange(len(start))
    for number in range(1, _LANES + 1):
        moved = [np.zeros(0, np.int64)]
        while crossing.any():
            moved.append(rest[crossing])
            rest = rest[~crossing]
            crossing = nest(start[rest], end[rest], track[rest])[1]
        rest = np.sort(np.concatenate(moved))
        if not len(rest):
            break
        lane[rest] = number
        crossing = nest(start[rest], end[rest], track[rest])[1]
    if len(rest) and crossing.any():
        lane = lane.astype(np.uint32)
        lane[rest] += _side_by_side(start[rest], end[rest], track[rest])
    return lane


def _side_by_side(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    """For each span the first lane, from 0, that is free from its start to its end: nothing nests."""
    order = np.lexsort((end, start, track))
    found, on = [], None
    free: list[int] = []
    taken: list[tuple[int, int]] = []
    for begin, last, here in zip(start[order].tolist(), end[order].tolist(), track[order].tolist(), strict=True):
        if here != on:
            free, taken, on = [], [], here
        while taken and taken[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(taken)[1])
        number = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (last, number))
        found.append(number)
    lane = np.empty(len(order), np.uint32)
    lane[order] = found
    return lane


def _cross(start: Int64, end: Int64, counts: Int64) -> bool:
    """As cross(), of tracks that stand one after another with `counts` spans each."""
    least = int(start.min())
    width = int(end.max()) - least + 1
    if width * len(counts) >= _MOST_KEY or bool((end <= start).any()):
        return bool(_nest(start, end, counts)[1].any())
    # As in _nest(), where spans have lengths; in half as many bytes where these are enough.
    lift = np.repeat(np.arange(len(counts)) * width - least, counts)
    kind = np.int32 if width * len(counts) < 1 << 31 else np.int64
    begin, stop = (start + lift).astype(kind), (end + lift).astype(kind)
    for _ in range(MOST_LEVELS):
        later = np.minimum.accumulate(begin[::-1])[::-1]
        held = np.zeros(len(begin), bool)
        np.less_equal(later[1:], begin[:-1], out=held[:-1])
        roots, rest = np.flatnonzero(~held), np.flatnonzero(held)
        if (begin[roots[1:]] < stop[roots[:-1]]).any():
            return True
        if not len(rest):
            break
        begin, stop = begin[rest], stop[rest]
    return False


def _nest(start: Int64, end: Int64, counts: Int64, parent: Int64 | None = None) -> tuple[npt.NDArray[np.uint8], Bools]:
    """As nest(), of tracks that stand one after another with `counts` spans each; fills `parent` where given."""
    zero = end <= start
    rank = np.repeat(np.arange(len(counts)), counts)
    order = None
    if zero.any():
        if (zero[:-1] & ~zero[1:] & (end[1:] == end[:-1]) & (rank[1:] == rank[:-1])).any():
            order = np.lexsort((zero, end, rank))  # a span of no length after those that end with it
            start, end, zero = start[order], end[order], zero[order]
    else:
        zero = zero[:0]
    # Every track is lifted above all tracks before it, so that no later one seems to hold its spans.
    width = 2 * (int(end.max()) - int(start.min()) + 1)
    if width * len(counts) < _MOST_KEY:
        key = rank * width + 2 * start
    else:  # only the order of starts matters
        order_of_starts = np.unique(start, return_inverse=True)[1].astype(np.int64)
        key = (rank * len(start) + order_of_starts) * 2
    if len(zero):
        key += zero
    level, crossing = np.full(len(start), MOST_LEVELS, np.uint8), np.zeros(len(start), bool)
    index: Int64 | slice = slice(None)
    for depth in range(MOST_LEVELS):
        later = np.minimum.accumulate(key[::-1])[::-1]
        root = np.ones(len(key), bool)
        np.greater(later[1:], key[:-1] & -2 if len(zero) else key[:-1], out=root[:-1])
        roots = np.flatnonzero(root) if isinstance(index, slice) else index[root]
        level[roots] = depth
        crosses = start[roots[1:]] < end[roots[:-1]]
        if crosses.any():
            crosses &= rank[roots[1:]] == rank[roots[:-1]]
            # Of three spans that cross in a row, the first and the third may nest once the second is gone.
            place = np.arange(1, len(crosses) + 1)
            crosses &= (place - np.maximum.accumulate(np.where(crosses, 0, place))) % 2 == 1
            crossing[roots[1:][crosses]] = True
        rest = np.flatnonzero(~root)
        if not len(rest):
            break
        index = rest if isinstance(index, slice) else index[rest]
        key = key[rest]
        if parent is not None:  # the next root holds what it follows; a deeper level may name a closer one
            parent[index] = roots[np.cumsum(root)[rest]]
    if order is None:
        return level, crossing
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    if parent is not None:
        parent[:] = np.where(parent < 0, -1, order[parent])[back]
    return level[back], crossing[back]
