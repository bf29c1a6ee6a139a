"""Values of 64 bits: a record holds one half, and a row before it the other one, unless the record implies it.

       the record's word   the word of the row before it      left out where it is 0
i64    low half            high half xor (low >> 31)          the number fits 32 bits
u64    low half            high half                          the number fits 32 bits
f64    high half           low half                           few bits of the mantissa, such as in 1.5 or 1024
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .names import ValueType

CODES: dict[str, int] = {"i32": 0, "u32": 1, "f32": 2, "i64": 3, "u64": 4, "f64": 5}
"""The codes of types in a trace (TraceData.types)."""
LEAST_WIDE = CODES["i64"]
"""The least code of a type of 64 bits."""
_LOW = (1 << 32) - 1
_VIEWS: dict[str, tuple[Any, Any]] = {
    "i32": (np.uint32, np.int32), "u32": (np.uint32, np.uint32), "f32": (np.uint32, np.float32),
    "i64": (np.uint64, np.int64), "u64": (np.uint64, np.uint64), "f64": (np.uint64, np.float64),
}  # fmt: skip
Codes = npt.NDArray[np.uint8]
Bits = npt.NDArray[np.unsignedinteger[Any]]


def is_wide(kind: ValueType | str | None) -> bool:
    """True if values of a type have 64 bits."""
    return kind is not None and kind.endswith("64")


def halves(kind: str, bits: int) -> tuple[int, int]:
    """The record's word of a value of 64 bits, and that of the row before it, 0 where there is none."""
    low, high = bits & _LOW, bits >> 32 & _LOW
    if kind == "f64":
        return high, low
    return low, high ^ (_LOW * (low >> 31) if kind == "i64" else 0)


def join_halves(
    code: npt.NDArray[np.uint8], word: npt.NDArray[np.uint32], more: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint64]:
    """Inverse of halves(): 64 bits of values (n,); of types of 32 bits, their word.

    Args:
        code: (n,) codes of types.
        word: (n,) the records' words.
        more: (n,) those of the rows before them, 0 without one.
    """
    found, other = word.astype(np.uint64), more.astype(np.uint64)
    is_float = code == CODES["f64"]
    sign = np.where(code == CODES["i64"], word >> np.uint32(31), np.uint32(0)) * np.uint32(_LOW)
    high = np.where(code >= LEAST_WIDE, more ^ sign, np.uint32(0)).astype(np.uint64)
    return np.asarray(np.where(is_float, found << np.uint64(32) | other, high << np.uint64(32) | found), np.uint64)


def common(one: ValueType | None, other: ValueType | None) -> ValueType | None:
    """The type of a name whose values have both types: the wider one of the same sort; None if there is none."""
    if one is None or other is None or one[0] != other[0]:
        return None
    return one if is_wide(one) else other


def floats(bits: Bits, codes: Codes) -> npt.NDArray[np.float64]:
    """(n,) values, NaN where there is none; integers of more than 53 bits are rounded."""
    value = np.full(len(bits), np.nan)
    for kind, (word, view) in _VIEWS.items():
        match = codes == CODES[kind]
        if match.any():
            with np.errstate(invalid="ignore"):  # a signaling NaN becomes a quiet one
                value[match] = bits[match].astype(word).view(view)
    return value
