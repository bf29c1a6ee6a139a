"""Exact order statistics of many groups of durations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ..util.arrays import Float, Int64
from ..util.parallel import each
from ..util.runs import heads
from .order_statistics import Ranked

PERCENTS = (50, 90, 99)
_LARGE = 1 << 18
"""From this many values on, selecting among few of them is faster than among all."""
_MANY = 4096
"""From this many groups on, one sort is faster than a selection in each."""


def quantiles(values: Float, row: Int64, rows: int, offset: Int64, count: Int64) -> Float:
    """Order statistics of every row.

    Args:
        values: (n,) float64.
        row, offset, count: (c,) int64; row[i] has values[offset[i]:][:count[i]].
        rows: number of rows.

    Returns:
        (rows, 5) float64: least, p50, p90, p99, greatest; NaN without values.
    """
    found = np.full((rows, len(PERCENTS) + 2), np.nan)
    if not count.all():
        used = np.flatnonzero(count)
        row, offset, count = row[used], offset[used], count[used]
    if not len(row):
        return found
    end = offset + count
    pieces = np.flatnonzero(np.append(True, (row[1:] != row[:-1]) | (offset[1:] != end[:-1])))
    begin, length = offset[pieces], end[np.append(pieces[1:], len(row)) - 1] - offset[pieces]
    order = np.argsort(row[pieces], kind="stable")
    of_piece, begin, length = row[pieces][order], begin[order], length[order]
    edges = heads(of_piece)
    if len(edges) > _MANY:
        _sorted(values, of_piece, begin, length, found)
        return found
    jobs, large = list[Callable[[], None]](), list[tuple[int, Ranked]]()
    for first, last in zip(edges.tolist(), [*edges[1:].tolist(), len(pieces)], strict=True):
        number, a, size = int(of_piece[first]), begin[first:last], length[first:last]
        if size.sum() < _LARGE:
            jobs.append(partial(_whole, values, a, size, found[number]))
        else:
            large.append((number, Ranked(values, a, size, _ranks(int(size.sum()))[0])))
            jobs += large[-1][1].jobs()
    each(lambda job: job(), jobs)
    for number, ranked in large:
        found[number] = _row(*ranked.result(), ranked.total)
    return found


def _whole(values: Float, begin: Int64, length: Int64, found: Float) -> None:
    """Set the least, the percentiles and the greatest of values that are in pieces."""
    mine = np.concatenate([values[a : a + size] for a, size in zip(begin.tolist(), length.tolist(), strict=True)])
    ranks = np.minimum(_ranks(len(mine))[0][:, None] + np.arange(2), len(mine) - 1)
    least, greatest = mine.min(), mine.max()
    mine.partition(np.unique(ranks))
    found[:] = _row(least, greatest, mine[ranks], len(mine))


def _ranks(size: int) -> tuple[Int64, Float]:
    """(rank of the value below, fraction of the way to the next one) of each percentile."""
    place = np.array(PERCENTS) / 100 * (size - 1)
    below = np.floor(place).astype(np.int64)
    return below, place - below


def _row(least: float, greatest: float, found: Float, size: int) -> Float:
    """least, percentiles, greatest. found: (percentiles, 2) the values below and the next ones."""
    return np.concatenate([[least], _between(found[:, 0], found[:, 1], _ranks(size)[1]), [greatest]])


def _between(low: Float, high: Float, part: Float) -> Float:
    """Linear between two values, from the nearer one, as numpy does it."""
    step = high - low
    return np.where(part >= 0.5, high - step * (1 - part), low + step * part)


def _sorted(values: Float, row: Int64, begin: Int64, length: Int64, found: Float) -> None:
    """The same for many rows: one sort by (row, value)."""
    start = np.cumsum(length) - length
    index = np.arange(int(length.sum())) + np.repeat(begin - start, length)
    of = np.repeat(row, length)
    mine = values[index]
    mine = mine[np.lexsort((mine, of))]
    edges = heads(of)
    size = np.diff(edges, append=len(of))
    columns = [mine[edges]]
    for percent in PERCENTS:
        place = percent / 100 * (size - 1)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, size - 1)
        columns.append(_between(mine[edges + below], mine[edges + above], place - below))
    columns.append(mine[edges + size - 1])
    found[of[edges]] = np.stack(columns, axis=1)
