"""Constants as operands: a number known at compile time becomes a value type and 32 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .grammar import Mark, ValueType
from .refusals import value_refused


def constant(mark: Mark, value: object) -> tuple[ValueType, int] | None:
    """Type and bits of a constant value, by the same rules in every kernel language.

    A Python int is an i32, or a u32 from 2^31 on; a numpy integer keeps its signedness where it fits. Floats of
    any width are rounded to f32.

    Args:
        mark: the mark that carries the value, named in the error.
        value: what the user passed.

    Returns:
        The type and its 32 bits as an unsigned number; None if `value` is not a Python or numpy number.

    Raises:
        UsageError: a bool, or an integer that needs more than 32 bits.
    """
    if isinstance(value, (bool, np.bool_)):
        raise value_refused(mark, f"the bool {bool(value)}", f"value={int(value)}")
    if isinstance(value, (float, np.floating)):
        with np.errstate(over="ignore"):  # beyond float32 is infinity
            return "f32", int(np.float32(value).view(np.uint32))
    if not isinstance(value, (int, np.integer)):
        return None
    number = int(value)
    if not -(1 << 31) <= number < 1 << 32:
        raise value_refused(mark, f"{number}, which needs more than 32 bits", "value & 0xFFFFFFFF")
    unsigned = isinstance(value, np.unsignedinteger) or number >= 1 << 31
    return "u32" if unsigned else "i32", number & 0xFFFFFFFF


def with_constant(mark: Mark, value: object) -> Mark | None:
    """The mark with a constant value as its operand, such as ``0x0000002A``; None if `value` is not a constant.

    Raises:
        UsageError: as constant().
    """
    typed = constant(mark, value)
    return None if typed is None else replace(mark, type=typed[0], operand=f"0x{typed[1]:08X}")
