"""The 32 bits that go with a record: from Python and numpy numbers to a type and a word.

What lives here: what a value may be, and a predicate. What does not: which records carry one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kscope.errors import UsageError
from kscope.marks.grammar import ValueType, spoken

_TYPES: dict[str, ValueType] = {"int32": "i32", "uint32": "u32", "float32": "f32"}


def words(name: str, value: Any) -> tuple[ValueType, list[int]]:
    """A value's type, and its bits in each of 32 lanes.

    An int is i32, above 2^31 - 1 u32; a float is f32. np.int32, np.uint32 and np.float32 say it
    themselves; an array of shape (32,) of those gives every lane its own. Raises UsageError for anything else.
    """
    if type(value) is int:
        if not -(1 << 31) <= value < 1 << 32:
            raise UsageError(f"value={value} of {spoken(name)} needs more than 32 bits: pass value & 0xFFFFFFFF")
        value = np.int32(value) if value < 1 << 31 else np.uint32(value)
    elif type(value) is float:
        value = np.float32(value)
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    if shape not in ((), (32,)) or dtype not in _TYPES:
        raise UsageError(
            f"value={value!r} of {spoken(name)}: a record holds 32 bits; pass an int, a float, np.int32, np.uint32 "
            "or np.float32, or 32 of those in an array, one per lane"
        )
    bits = np.broadcast_to(np.asarray(value).view(np.uint32), 32)
    return _TYPES[dtype], bits.tolist()


def predicate(name: str, when: Any) -> list[bool]:
    """A predicate in each of 32 lanes: a bool, an integer, or 32 of them in an array; None holds everywhere.
    Raises UsageError for anything else."""
    if when is None:
        return [True] * 32
    found = np.asarray(when)
    if found.shape not in ((), (32,)) or found.dtype.kind not in "bui":
        raise UsageError(f"when={when!r} of {spoken(name)}: expected a bool, or 32 of them in an array, one per lane")
    return [bool(one) for one in np.broadcast_to(found, 32).tolist()]
