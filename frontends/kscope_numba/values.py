"""What may be the value of a mark: 32 bits, from what Numba has at hand.

    known when the kernel is compiled                     a number that fits
    int8 ... int32, uint8 ... uint32, float32             as it is
    int64, uint64                                         the nearest number that 32 bits hold: Numba's plain integers
                                                          are int64, and a counter of a loop is one
    float64                                               rounded to float32: Numba's plain floats are float64

What lives here: types and their refusal. What does not: the instructions (placing.py).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np

from kscope.errors import UsageError
from kscope.marks.grammar import Mark, ValueType

from .hook_points import module

_types: Any = module("types")


def immediate(mark: Mark, value: Any) -> Mark:
    """A mark whose value is known now: its type is the narrowest that holds it, its spelling the bits.
    Raises UsageError."""
    if isinstance(value, (bool, np.bool_)):
        raise UsageError(refusal(mark, f"the bool {value}", f"value={int(value)}"))
    if isinstance(value, (float, np.floating)):
        bits = struct.unpack("<I", np.float32(value).tobytes())[0]
        return replace(mark, type="f32", operand=f"0x{bits:08X}")
    number = int(value)
    if not -(1 << 31) <= number < 1 << 32:
        raise UsageError(refusal(mark, f"{number}, which needs more than 32 bits", "what matters of it"))
    unsigned = isinstance(value, np.unsignedinteger) or number >= 1 << 31
    return replace(mark, type="u32" if unsigned else "i32", operand=f"0x{number & 0xFFFFFFFF:08X}")


def scalar(mark: Mark, kind: Any) -> ValueType:
    """The type of a value that Numba calls `kind`. Raises UsageError."""
    if isinstance(kind, _types.Boolean) or kind == _types.boolean:
        raise UsageError(refusal(mark, "a bool", "value=np.int32(flag)"))
    if isinstance(kind, _types.Integer):
        return "i32" if kind.signed else "u32"
    if kind in (_types.float32, _types.float64):
        return "f32"
    raise UsageError(refusal(mark, f"a {kind}", "one number, as np.int32(x) or np.float32(x)"))


def refusal(mark: Mark, given: str, cure: str) -> str:
    """Why a value cannot be recorded."""
    return (
        f"value= of kscope {mark.act} {mark.said} is {given}: a record holds 32 bits, "
        f"an int32, uint32 or float32; pass {cure}"
    )
