"""Runs of equal neighbors in columns, and the extent of groups in time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]


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


def extents(group: npt.NDArray[np.integer], groups: int, start: Float, end: Float) -> tuple[Float, Float]:
    """(first start, last end) of each group (groups,); (inf, -inf) of an empty one."""
    first, last = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last
