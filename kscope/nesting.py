"""How spans of one lane contain each other: depth, and spans that cross without nesting.

Within a lane records stand in order of end. So a span is inside of every later one that started at
the same time or before, and

    roots     spans without a later span of that lane that began before them: one backward running minimum
    level 1   the roots of what is left, and so on

A span of no length contains nothing, and is inside of [a, b) where a <= t < b. What lives here: these
two questions, for whole columns. What does not: how a viewer draws the answers (export/).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST_LEVELS = 64
"""Deeper spans are given this depth: no kernel nests so, damaged data may."""
_CHUNK = 1 << 15
_LANES = 8


def nest(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.uint8], Bools]:
    """(depth, crossing) of spans (n,): depth from 0; crossing where a span overlaps the one before it at
    its depth. `track` does not decrease, and `end` does not within a track. All cores."""
    depth, crossing = np.zeros(len(start), np.uint8), np.zeros(len(start), bool)
    bounds = _bounds(track)

    def work(a: int, b: int) -> None:
        depth[a:b], crossing[a:b] = _nest(start[a:b], end[a:b], track[a:b])

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        for _ in pool.map(work, bounds[:-1], bounds[1:]):
            pass
    return depth, crossing


def lanes(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """A lane (n,) for each span, 0 for nearly all, so that the spans of one track and lane nest."""
    lane = np.zeros(len(start), np.uint8)
    rest = np.arange(len(start))
    for number in range(1, _LANES + 1):
        moved = []
        while len(rest):
            crossing = nest(start[rest], end[rest], track[rest])[1]
            if not crossing.any():
                break
            moved.append(rest[crossing])
            rest = rest[~crossing]
        if not moved:
            break
        rest = np.sort(np.concatenate(moved))
        lane[rest] = number
    return lane


def _bounds(track: npt.NDArray[np.int32]) -> list[int]:
    """Cuts of the column at changes of track, about _CHUNK apart."""
    if not len(track):
        return [0]
    cuts = [0]
    changes = np.flatnonzero(np.diff(track)) + 1
    while cuts[-1] + _CHUNK < len(track):
        next_change = int(np.searchsorted(changes, cuts[-1] + _CHUNK))
        if next_change == len(changes):
            break
        cuts.append(int(changes[next_change]))
    return [*cuts, len(track)]


def _nest(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.uint8], Bools]:
    zero = end <= start
    order = None
    if (zero[:-1] & ~zero[1:] & (end[1:] == end[:-1]) & (track[1:] == track[:-1])).any():
        order = np.lexsort((zero, end, track))  # a span of no length after those that end with it
        start, end, track, zero = start[order], end[order], track[order], zero[order]
    key = _lifted(start, end, track) * 2 + zero
    level, crossing = np.full(len(start), MOST_LEVELS, np.uint8), np.zeros(len(start), bool)
    index = np.arange(len(start))
    for depth in range(MOST_LEVELS):
        if not len(index):
            break
        later = np.minimum.accumulate(key[::-1])[::-1]
        root = np.ones(len(index), bool)
        root[:-1] = later[1:] > (key[:-1] & -2)
        roots = index[root]
        level[roots] = depth
        crosses = (start[roots][1:] < end[roots][:-1]) & (track[roots][1:] == track[roots][:-1])
        crossing[roots[1:][crosses]] = True
        index, key = index[~root], key[~root]
    if order is None:
        return level, crossing
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return level[back], crossing[back]


def _lifted(start: Int64, end: Int64, track: npt.NDArray[np.int32]) -> Int64:
    """Starts moved so that every track begins after all tracks before it ended."""
    first = np.flatnonzero(np.diff(track, prepend=-1))
    low = np.minimum.reduceat(start, first)
    width = np.maximum.reduceat(end, first) - low + 1
    lift = np.cumsum(width) - width - low
    return np.asarray(start + np.repeat(lift, np.diff(first, append=len(start))))
