"""Nesting: which spans of a track contain each other, and which cross without nesting. Pure functions over columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..util.arrays import Bools, Int64
from ..util.parallel import CHUNK, each
from ..util.runs import inverse, lowest_free

MOST_LEVELS = 64
"""The largest depth; only damaged data nests deeper."""
_MOST_LAYERS = 8
_MOST_KEY = 1 << 61


def nest(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.uint8], Bools]:
    """Depth and crossings of spans (n,), on all cores.

    Records of a track are in order of end. So a span is inside every later one that started at the same time or before,
    and

        roots     spans without a later span of that track that began before them: one backward running minimum
        level 1   the roots of the rest, and so on

    An empty span contains nothing, and is inside [a, b) if a <= t < b.

    Args:
        start, end: ticks; `end` does not decrease within a track.
        track: does not decrease.

    Returns:
        Depth from 0, and True if a span overlaps the previous one at its depth (of several in a row, every second).
    """
    depth, crossing = np.zeros(len(start), np.uint8), np.zeros(len(start), bool)

    def work(part: slice) -> None:
        depth[part], crossing[part] = _nest(start[part], end[part], _counts(track[part]))

    each(work, track_aligned(track))
    return depth, crossing


def crosses_any(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> bool:
    """True if any spans of a track cross, on all cores. Arguments as for nest()."""
    found: list[slice] = []

    def work(part: slice) -> None:
        if not found and _cross(start[part], end[part], _counts(track[part])):
            found.append(part)

    each(work, track_aligned(track))
    return bool(found)


def separated(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> Int64:
    """Starts (n,) such that no spans cross: of two that do, the later begins where the earlier ends, and is empty
    if both end together. Arguments as for nest(); no span is empty.
    """
    if not len(start) or not crosses_any(start, end, track):
        return start
    depth, begin = nest(start, end, track)[0], np.array(start)
    for level in range(int(depth.max()) + 1):
        # Spans between a span and the one before it on its level or above are inside it.
        # So of all spans that began before it, that one ends last.
        at = np.flatnonzero(depth <= level)
        before, here = at[:-1], at[1:]
        follows = np.flatnonzero((depth[here] == level) & (track[here] == track[before]))
        begin[here[follows]] = np.maximum(start[here[follows]], end[before[follows]])
    return begin


def parents(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> Int64:
    """The index (n,) of the innermost span of its track that contains each span, -1 for none. One thread: callers pass
    slices that end where a track does. Arguments as for nest().
    """
    parent = np.full(len(start), -1, np.int64)
    key = _key(start, end, track)
    if key is None:
        _nest(start, end, _counts(track), parent)
        return parent
    index: Int64 | None = None
    for roots, rest in _levels(key):
        held = np.diff(roots, prepend=-1) - 1  # spans after a root that are not roots are inside the next root
        if index is not None:
            roots, rest = index.take(roots), index.take(rest)
        parent[rest] = np.repeat(roots, held)
        index = rest
    return parent


def children_weight(start: Int64, end: Int64, track: npt.NDArray[np.int32], weight: Int64) -> tuple[Int64, Int64]:
    """Sums of the weights of children by the result of parents(), in half the time.

    Args:
        start, end, track: as for nest().
        weight: (n,) int64.

    Returns:
        The sum of the weights of each span's direct children, and the indices of spans without a parent in order of
        end; an empty span comes after those that end with it.
    """
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
    """Starts, each track's above those of all earlier tracks; None if that does not fit, or some spans are empty."""
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
    """Level by level: (spans inside no other one, the rest), as positions in the rest of the previous
    level.
    """
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
    """Sums of the weights up to each of ascending positions, from the previous one on."""
    return np.diff(np.append(0, np.cumsum(weight)).take(before), prepend=0)


def track_aligned(track: npt.NDArray[np.int32], size: int = CHUNK) -> list[slice]:
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
    """Number of spans of each track."""
    changes = np.flatnonzero(track[1:] != track[:-1]) + 1
    return np.diff(changes, prepend=0, append=len(track))


def layers(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> npt.NDArray[np.unsignedinteger]:
    """A layer (n,) for each span, mostly 0, so that the spans of one track and layer nest."""
    layer: npt.NDArray[np.unsignedinteger] = np.zeros(len(start), np.uint8)
    if not crosses_any(start, end, track):
        return layer
    crossing = nest(start, end, track)[1]
    rest = np.arange(len(start))
    for number in range(1, _MOST_LAYERS + 1):
        moved = [np.zeros(0, np.int64)]
        while crossing.any():
            moved.append(rest[crossing])
            rest = rest[~crossing]
            crossing = nest(start[rest], end[rest], track[rest])[1]
        rest = np.sort(np.concatenate(moved))
        if not len(rest):
            break
        layer[rest] = number
        crossing = nest(start[rest], end[rest], track[rest])[1]
    if len(rest) and crossing.any():
        layer = layer.astype(np.uint32)
        layer[rest] += _side_by_side(start[rest], end[rest], track[rest])
    return layer


def _side_by_side(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    """For each span the first layer, from 0, that is free from its start to its end."""
    order = np.lexsort((end, start, track))
    layer = np.empty(len(order), np.uint32)
    for part in np.split(order, np.flatnonzero(np.diff(track[order])) + 1):
        layer[part] = lowest_free(zip(start[part].tolist(), end[part].tolist(), strict=True))
    return layer


def _cross(start: Int64, end: Int64, counts: Int64) -> bool:
    """Same as crosses_any(), for tracks with `counts` spans each."""
    least = int(start.min())
    width = int(end.max()) - least + 1
    if width * len(counts) >= _MOST_KEY or bool((end <= start).any()):
        return bool(_nest(start, end, counts)[1].any())
    # as in _nest() without empty spans; in half as many bytes if these suffice
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
    """Same as nest(), for tracks with `counts` spans each; fills `parent` if given."""
    zero = end <= start
    rank = np.repeat(np.arange(len(counts)), counts)
    order = None
    if zero.any():
        if (zero[:-1] & ~zero[1:] & (end[1:] == end[:-1]) & (rank[1:] == rank[:-1])).any():
            order = np.lexsort((zero, end, rank))  # an empty span comes after those that end with it
            start, end, zero = start[order], end[order], zero[order]
    else:
        zero = zero[:0]
    # each track above all earlier ones, so that no later one seems to contain its spans
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
            # of three spans that cross in a row, the first and the third may nest without the second
            place = np.arange(1, len(crosses) + 1)
            crosses &= (place - np.maximum.accumulate(np.where(crosses, 0, place))) % 2 == 1
            crossing[roots[1:][crosses]] = True
        rest = np.flatnonzero(~root)
        if not len(rest):
            break
        index = rest if isinstance(index, slice) else index[rest]
        key = key[rest]
        if parent is not None:  # the next root contains the spans before it; a deeper level may find a closer one
            parent[index] = roots[np.cumsum(root)[rest]]
    if order is None:
        return level, crossing
    back = inverse(order)
    if parent is not None:
        parent[:] = np.where(parent < 0, -1, order[parent])[back]
    return level[back], crossing[back]
