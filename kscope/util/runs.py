"""Order of rows, runs of equal neighbors in columns, groups of equal values, and the extent of groups in time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import cast

import numpy as np
import numpy.typing as npt

from .. import native
from .arrays import Column, Float, Int64

_TABLE, _FLAGS = 4, 64
"""Entries of a table of numbers, and of one of flags, per value up to which it is faster than a sort or hashes."""


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


def order_by(*columns: npt.NDArray[np.integer]) -> Int64:
    """(n,) the rows in order of the first column, of equal values in order of the second one, and so on.

    Rows that are equal in all columns keep their order. Columns that fit one 64-bit number, with the row's own index
    below, are sorted as such a number, which is several times faster.
    """
    count = len(columns[0])
    spans = [_range(column) for column in columns] if count else []
    low = (count - 1).bit_length()
    if not count or low + sum((width - 1).bit_length() for _, width in spans) > 64:
        return np.asarray(np.lexsort(columns[::-1]), np.int64)
    key = np.zeros(count, np.uint64)
    for column, (least, width) in zip(columns, spans, strict=True):
        key <<= np.uint64((width - 1).bit_length())
        key |= _after(column, least).astype(np.uint64, copy=False)
    key <<= np.uint64(low)
    key |= np.arange(count, dtype=np.uint64)
    if not (key[1:] > key[:-1]).all():  # often the rows are in order
        key.sort()
    key &= np.uint64((1 << low) - 1)
    return key.view(np.int64)


def starts(is_first: npt.NDArray[np.bool_]) -> Int64:
    """(n,) index of the first row of each row's run. is_first: the result of fresh()."""
    return np.maximum.accumulate(np.where(is_first, np.arange(len(is_first)), 0))


def ordinals(*columns: npt.NDArray[np.generic]) -> Int64:
    """(n,) number of each row in its run of equal rows, from 0."""
    return np.asarray(np.arange(len(columns[0])) - starts(fresh(*columns)))


def added(begin: Float | Int64, end: Float | Int64) -> Float:
    """(n,) length that each interval, in order of begin, adds to the union of earlier ones."""
    reach = np.maximum.accumulate(end)
    before = np.concatenate([begin[:1], reach[:-1]])
    return np.asarray(np.maximum(reach - np.maximum(begin, before), 0), np.float64)


def ranges(first: Int64, count: Int64) -> Int64:
    """The numbers of many ranges in turn: count[i] of them from first[i] on."""
    before = np.cumsum(count) - count
    return np.asarray(np.arange(int(count.sum())) + np.repeat(first - before, count))


def group_equal(values: npt.NDArray[np.integer]) -> tuple[Int64, Int64, Int64]:
    """Groups of equal values (n,), in order of value, from 0.

    Returns:
        The index of each group's first member, its size, and the group of each value (n,).
    """
    if not len(values):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    least, width = _range(values)
    if width == 1:
        return np.zeros(1, np.int64), np.array([len(values)]), np.broadcast_to(np.int64(0), len(values))
    if width <= _TABLE * len(values):
        return _counted(_after(values, least).astype(np.int64, copy=False), width)
    if not native.available():
        _, first, group, size = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
        return first, size, group.astype(np.int64)
    group, first = np.empty((2, len(values)), np.int64)
    found = native.call("groups", values.astype(np.uint64), len(values), group, first)
    first = first[:found]
    order = np.argsort(values[first])
    rank = inverse(order)
    if (order[1:] > order[:-1]).all():
        return first.copy(), np.bincount(group, minlength=found), group
    group = rank[group]
    return first[order], np.bincount(group, minlength=found), group


def _range(values: npt.NDArray[np.integer]) -> tuple[int, int]:
    """The least value, and how many numbers there are from it to the largest one."""
    values = values if values.strides[0] else values[:1]  # one for all
    least = int(values.min())
    return least, int(values.max()) - least + 1


def _after(values: npt.NDArray[np.integer], least: int) -> npt.NDArray[np.integer]:
    """The distance of each value from the least one, as unsigned numbers: signed ones may not hold it."""
    if not least:
        return values
    return np.asarray((values - values.dtype.type(least)).view(f"u{values.itemsize}"))


def _counted(group: Int64, width: int) -> tuple[Int64, Int64, Int64]:
    """group_equal() of numbers from 0 to width - 1, by a table of all these."""
    size, first = np.bincount(group, minlength=width), np.empty(width, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # the last assignment wins
    there = np.flatnonzero(size)
    if len(there) < width:
        first, size, group = first[there], size[there], numbered(there, width)[group]
    return first, size, group


def summed(group: Int64, weights: Int64 | Float | npt.NDArray[np.bool_], groups: int) -> Float:
    """(groups,) the sum of each group's weights (n,)."""
    return np.bincount(group, weights, groups).astype(np.float64, copy=False)


def sum_by(key: Int64, weights: Float) -> tuple[Int64, Float]:
    """The different keys, ascending, and the sum of the weights (n,) of each. key: (n,) numbers from 0."""
    width = int(key.max(initial=0)) + 1
    if width <= _TABLE * len(key):
        flags = np.zeros(width, bool)
        flags[key] = True
        there = np.flatnonzero(flags)
        return there, summed(key, weights, width)[there]
    first, _, group = group_equal(key)
    return key[first], summed(group, weights, len(first))


def count_distinct(values: npt.NDArray[np.integer]) -> int:
    """Number of different values."""
    if not len(values):
        return 0
    least, width = _range(values)
    if width > _FLAGS * len(values):
        return len(heads(np.sort(values)))
    there = np.zeros(width, bool)
    there[_after(values, least)] = True
    return int(np.count_nonzero(there))


def distinct_by(group: npt.NDArray[np.integer], values: npt.NDArray[np.integer], groups: int) -> Int64:
    """(groups,) number of different values (n,) in each group. group: (n,) numbers below `groups`."""
    if not len(values):
        return np.zeros(groups, np.int64)
    least, width = _range(values)
    if groups * width <= _FLAGS * len(values):
        there = np.zeros((groups, width), bool)
        there[group, _after(values, least)] = True
        return np.asarray(np.count_nonzero(there, axis=1), np.int64)
    order = order_by(group, values)
    group = group[order]
    return np.bincount(group[heads(group, values[order])], minlength=groups)


def extents(group: npt.NDArray[np.integer], groups: int, start: Float, end: Float) -> tuple[Float, Float]:
    """(first start, last end) of each group (groups,); (inf, -inf) of an empty one."""
    return least_of(group, start, groups, np.inf), most_of(group, end, groups, -np.inf)


def least_of(group: npt.NDArray[np.integer], values: Column, groups: int, empty: float) -> Column:
    """(groups,) the least value (n,) of each group, and at most `empty`."""
    found = np.full(groups, empty, values.dtype)
    np.minimum.at(found, group, values)
    return cast("Column", found)


def most_of(group: npt.NDArray[np.integer], values: Column, groups: int, empty: float) -> Column:
    """(groups,) the largest value (n,) of each group, and at least `empty`."""
    found = np.full(groups, empty, values.dtype)
    np.maximum.at(found, group, values)
    return cast("Column", found)


def inverse(order: Int64) -> Int64:
    """(n,) the place of each number in an order."""
    return numbered(order, len(order))


def numbered(at: npt.NDArray[np.integer], count: int, other: int = 0) -> Int64:
    """(count,) the place of each number in `at`; `other` for those that are not there."""
    found = np.full(count, other)
    found[at] = np.arange(len(at))
    return found


def lowest_free(intervals: Iterable[tuple[float, float]]) -> list[int]:
    """The lowest number, from 0, that is free from each interval's begin to its end. They are in order of begin."""
    found, free, taken = list[int](), list[int](), list[tuple[float, int]]()
    for begin, end in intervals:
        while taken and taken[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(taken)[1])
        number = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (end, number))
        found.append(number)
    return found
