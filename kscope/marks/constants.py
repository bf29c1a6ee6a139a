"""Constants as operands: a number known at compile time becomes a value type and its bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .grammar import Mark
from .names import ValueType
from .refusals import value_refused
from .wide_values import is_wide


def constant(mark: Mark, value: object) -> tuple[ValueType, int] | None:
    """Type and bits of a constant value, by the same rules in every kernel language.

    A Python int is an i32, a u32 from 2^31 on, an i64 or a u64 where it needs more bits; a numpy integer keeps its
    signedness where it fits. Floats of any width are rounded to f32.

    Args:
        mark: the mark that carries the value, named in the error.
        value: the user's value.

    Returns:
        The type and its bits as an unsigned number; None if `value` is not a Python or numpy number.

    Raises:
        UsageError: a bool, or an integer that needs more than 64 bits.
    """
    if isinstance(value, (bool, np.bool_)):
        raise value_refused(mark, f"the bool {bool(value)}", f"value={int(value)}")
    if isinstance(value, (float, np.floating)):
        with np.errstate(over="ignore"):  # beyond float32 is infinity
            return "f32", int(np.float32(value).view(np.uint32))
    if not isinstance(value, (int, np.integer)):
        return None
    number = int(value)
    if not -(1 << 63) <= number < 1 << 64:
        raise value_refused(mark, f"{number}, which needs more than 64 bits", "value & 0xFFFFFFFFFFFFFFFF")
    if not -(1 << 31) <= number < 1 << 32:
        unsigned = isinstance(value, np.unsignedinteger) or number >= 1 << 63
        return "u64" if unsigned else "i64", number & 0xFFFFFFFFFFFFFFFF
    unsigned = isinstance(value, np.unsignedinteger) or number >= 1 << 31
    return "u32" if unsigned else "i32", number & 0xFFFFFFFF


def widened(mark: Mark, kind: ValueType) -> Mark:
    """The mark with a type of 64 bits, if its value is a constant of 32 bits which that type holds; else itself."""
    if mark.type in (None, kind) or is_wide(mark.type) or not (mark.operand or "").startswith("0x"):
        return mark
    word = np.uint32(int(mark.operand or "0", 16))
    if kind == "f64" and mark.type == "f32":
        bits = int(np.float64(word.view(np.float32)).view(np.uint64))
    elif kind != "f64" and mark.type != "f32":
        number = int(word.view(np.int32)) if mark.type == "i32" else int(word)
        if number < 0 and kind == "u64":
            return mark
        bits = number & 0xFFFFFFFFFFFFFFFF
    else:
        return mark
    return replace(mark, type=kind, operand=f"0x{bits:016X}")


def with_constant(mark: Mark, value: object) -> Mark | None:
    """The mark with a constant value as its operand, such as ``0x0000002A``; None if `value` is not a constant. One of
    64 bits has 16 digits.

    Raises:
        UsageError: as constant().
    """
    typed = constant(mark, value)
    return (
        None
        if typed is None
        else replace(mark, type=typed[0], operand=f"0x{typed[1]:0{16 if is_wide(typed[0]) else 8}X}")
    )
