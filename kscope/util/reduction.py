"""Sums and extremes of columns by a code: part by part, in parallel, then over the parts.

The parts are the same on every machine, and so are the sums of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .arrays import Bools, Float, Int64
from .parallel import chunks, map_ahead
from .runs import group_equal, summed

Column = Int64 | Float | Bools


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows: the code of each, and columns to be reduced.

    Attributes:
        code: (n,).
        sums: columns (n,) to be summed up.
        least, most: columns (n,) of which the least and the largest value is sought.
    """

    code: Int64
    sums: Sequence[Column] = ()
    least: Sequence[Float] = ()
    most: Sequence[Float] = ()


@dataclass(frozen=True, eq=False)
class Reduced:
    """Groups (g,) of rows (n,) with the same code.

    Attributes:
        code: of each group, ascending.
        of: (n,) the group of each row.
        sums, least, most: (g,) of each column.
    """

    code: Int64
    of: Int64
    sums: list[Float]
    least: list[Float]
    most: list[Float]


def reduced(count: int, rows: Callable[[slice], Rows]) -> Reduced:
    """The groups of `count` rows. rows: makes those of a slice."""
    of = np.empty(count, np.int64)

    def work(part: slice) -> Reduced:
        found = _of(rows(part))
        of[part] = found.of
        return found

    parts = chunks(count)
    each = list(map_ahead(work, parts)) or [_of(rows(slice(0, 0)))]

    def joined(name: str) -> list[Float]:
        return [np.concatenate(column) for column in zip(*(getattr(one, name) for one in each), strict=True)]

    codes = np.concatenate([one.code for one in each])
    whole, at = _of(Rows(codes, joined("sums"), joined("least"), joined("most"))), 0
    for part, one in zip(parts, each, strict=False):
        of[part] = whole.of[at : at + len(one.code)][of[part]]
        at += len(one.code)
    return Reduced(whole.code, of, whole.sums, whole.least, whole.most)


def _of(rows: Rows) -> Reduced:
    first, _, of = group_equal(rows.code)
    groups = len(first)
    least, most = [np.full(groups, np.inf) for _ in rows.least], [np.full(groups, -np.inf) for _ in rows.most]
    for found, column in zip(least, rows.least, strict=True):
        np.minimum.at(found, of, column)
    for found, column in zip(most, rows.most, strict=True):
        np.maximum.at(found, of, column)
    return Reduced(rows.code[first], of, [summed(of, column, groups) for column in rows.sums], least, most)
