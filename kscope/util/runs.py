"""Runs of equal neighbors in columns, groups of equal values, and the extent of groups in time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import native

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def fresh(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """(n,) True where a row differs from the previous one, and for the first row."""
    found = np.ones(len(columns[0]), bool)
    np.not_equal(columns[0][1:], columns[0][:-1], out=found[1:])
    for column in columns[1:]:
        found[1:] |= column[1:] != column[:-1]
    return found


def heads(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Indices of the first row of each run of equal rows."""
    return np.flatnonzero(fresh(*columns))


def ranges(first: Int64, count: Int64) -> Int64:
    """The numbers of many ranges in turn: count[i] of them from first[i] on."""
    before = np.cumsum(count) - count
    return np.asarray(np.arange(int(count.sum())) + np.repeat(first - before, count))


def group_equal(values: npt.NDArray[np.integer]) -> tuple[Int64, Int64, Int64]:
    """Groups of equal values (n,), in order of value, from 0.

    Returns:
        The index of each group's first member, its size, and the group of each value (n,).
    """
    if len(values) and (values == values[0]).all():
        return np.zeros(1, np.int64), np.array([len(values)]), np.zeros(len(values), np.int64)
    if not native.available():
        _, first, group, size = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
        return first, size, group.astype(np.int64)
    group, first = np.empty((2, len(values)), np.int64)
    found = native.call("groups", values.astype(np.uint64), len(values), group, first)
    first = first[:found]
    order = np.argsort(values[first])
    rank = np.empty(found, np.int64)
    rank[order] = np.arange(found)
    if (order[1:] > order[:-1]).all():
        return first.copy(), np.bincount(group, minlength=found), group
    group = rank[group]
    return first[order], np.bincount(group, minlength=found), group


def extents(group: npt.NDArray[np.integer], groups: int, start: Float, end: Float) -> tuple[Float, Float]:
    """(first start, last end) of each group (groups,); (inf, -inf) of an empty one."""
    first, last = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last
