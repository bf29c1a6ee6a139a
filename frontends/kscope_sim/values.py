"""Values and predicates of simulated marks: one number for all lanes, or 32, one per lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from kscope.marks.constants import constant
from kscope.marks.grammar import Mark, ValueType
from kscope.marks.refusals import predicate_refused, value_refused

_TYPES: dict[str, ValueType] = {"int32": "i32", "uint32": "u32", "float32": "f32"}
_EXPECTED = "an int, a float, a numpy number, or an array of 32 np.int32, np.uint32 or np.float32, one per lane"


def words(mark: Mark, value: Any) -> tuple[ValueType, list[int]]:
    """The type of a value, and its bits in each of 32 lanes.

    Args:
        mark: the mark with the value.
        value: a number by the rules of constant(), or an array of shape (32,) and dtype int32, uint32 or float32.

    Raises:
        UsageError: anything else.
    """
    if (one := constant(mark, value)) is not None:
        return one[0], [one[1]] * 32
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    if shape not in ((), (32,)) or dtype not in _TYPES:
        raise value_refused(mark, repr(value), _EXPECTED)
    return _TYPES[dtype], np.broadcast_to(np.asarray(value).view(np.uint32), 32).tolist()


def predicate(mark: Mark, when: Any) -> list[bool]:
    """A predicate in each of 32 lanes.

    Args:
        mark: the mark with the predicate.
        when: a bool or an integer, or 32 of them in an array, one per lane; None holds everywhere.

    Raises:
        UsageError: anything else.
    """
    if when is None:
        return [True] * 32
    found = np.asarray(when)
    if found.shape not in ((), (32,)) or found.dtype.kind not in "bui":
        raise predicate_refused(mark, repr(when), "a bool, or 32 of them in an array, one per lane")
    return [bool(one) for one in np.broadcast_to(found, 32).tolist()]
