"""Types of columns, as functions and dataclasses annotate them, and the distinct values of one."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Column = TypeVar("Column", bound=npt.NDArray[Any])


def distinct(values: Column) -> Column:
    """The values, each once, ascending. As np.unique(), which loads numpy.ma: as much code as the rest of numpy."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return cast("Column", ordered[first])
