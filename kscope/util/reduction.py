"""Sums and extremes of columns by a code: part by part, in parallel, then over the parts. The parts are the same on
every machine, and so are the sums of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import native
from .arrays import Bools, Float, Int64
from .parallel import chunks, map_ahead
from .runs import group_equal, summed

Column = Int64 | Float | Bools
_STARTS = 0.0, np.inf, -np.inf
"""Sum, least and largest value of nothing."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows: the code of each, and columns to be reduced.

    Attributes:
        code: (n,).
        sums: columns (n,) to be summed up.
        least, most: columns (n,) whose least and largest value is computed.
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
    """The groups of `count` rows. rows: returns those of a slice."""
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
    parts, groups = (rows.sums, rows.least, rows.most), len(first)
    sums, least, most = (np.full((len(part), groups), start) for part, start in zip(parts, _STARTS, strict=True))
    if native.available():
        columns = [np.ascontiguousarray(column, np.float64) for part in parts for column in part]
        addresses, found = np.array([one.ctypes.data for one in columns], np.uintp), np.concatenate([sums, least, most])
        native.call("reduce", len(of), of, groups, *map(len, parts), addresses, found)
        sums, least, most = np.split(found, np.cumsum([len(part) for part in parts[:2]]))
    else:
        for to, column in zip(sums, rows.sums, strict=True):
            to[:] = summed(of, column, groups)
        with np.errstate(invalid="ignore"):  # NaN: a time that is not known
            for to, column in zip(least, rows.least, strict=True):
                np.minimum.at(to, of, column)
            for to, column in zip(most, rows.most, strict=True):
                np.maximum.at(to, of, column)
    return Reduced(rows.code[first], of, list(sums), list(least), list(most))
