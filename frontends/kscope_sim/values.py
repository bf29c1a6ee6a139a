"""Values and predicates of simulated marks: one number for all lanes, or 32, one per lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kscope.capture.wire import OPEN_UNKNOWN
from kscope.marks.constants import constant
from kscope.marks.grammar import Mark
from kscope.marks.names import ValueType
from kscope.marks.refusals import predicate_refused, value_refused
from kscope.marks.wide_values import halves, is_wide

_TYPES: dict[str, tuple[ValueType, type]] = {
    "int32": ("i32", np.uint32), "uint32": ("u32", np.uint32), "float32": ("f32", np.uint32),
    "int64": ("i64", np.uint64), "uint64": ("u64", np.uint64), "float64": ("f64", np.uint64),
}  # fmt: skip
_EXPECTED = "an int, a float, a numpy number, or an array of 32 numbers of 32 or 64 bits, one per lane"


@dataclass(frozen=True)
class Halves:
    """The words of a value in a record.

    Attributes:
        word: the record's word.
        more: the word of the row before it; 0 without one.
        open: the word of a region that was entered and not left.
    """

    word: int
    more: int = 0
    open: int = 0

    @staticmethod
    def of(kind: ValueType, bits: int) -> Halves:
        """The words of a value of a type."""
        word, more = halves(kind, bits) if is_wide(kind) else (bits, 0)
        return Halves(word, more, OPEN_UNKNOWN.get(kind, word) if more else word)


def words(mark: Mark, value: Any) -> tuple[ValueType, list[int]]:
    """The type of a value, and its bits in each of 32 lanes.

    Args:
        mark: the mark with the value.
        value: a number by the rules of constant(), a numpy number of 64 bits, which stays one, or an array of shape
            (32,) of numbers of 32 or 64 bits.

    Raises:
        UsageError: anything else.
    """
    is_wide = isinstance(value, np.generic) and value.dtype.name in ("int64", "uint64", "float64")
    if (one := None if is_wide else constant(mark, value)) is not None:
        return one[0], [one[1]] * 32
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    if shape not in ((), (32,)) or dtype not in _TYPES:
        raise value_refused(mark, repr(value), _EXPECTED)
    kind, word = _TYPES[dtype]
    return kind, np.broadcast_to(np.asarray(value).view(word), 32).tolist()


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
