"""Values of records, from their bits: as floats, and exactly where a float64 would round integers of 64 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..marks.wide_values import CODES, Bits, Codes
from ..util.arrays import Float

EXACT_VALUE = "exact_value"
"""One more column of tables, if values are integers of 64 bits, which `value` may round: those that are integers."""
NONE = 255
"""The code of the type of a record without a value."""
_EXACT = 1 << 53
"""Integers up to here are exact in a float64."""
_SIGNED, _UNSIGNED, _WIDE = (CODES["i32"], CODES["i64"]), (CODES["u32"], CODES["u64"]), (CODES["i64"], CODES["u64"])
Rows = slice | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Integers:
    """Values that are integers; each array is (n,), one entry per record.

    Attributes:
        bits: uint64, the value in two's complement of 64 bits.
        known: bool, True if the record has such a value.
        signed: bool, True if the bits are signed.
    """

    bits: npt.NDArray[np.uint64]
    known: npt.NDArray[np.bool_]
    signed: npt.NDArray[np.bool_]

    @staticmethod
    def of(bits: Bits, codes: Codes) -> Integers | None:
        """The values of records; None if none has an integer of 64 bits."""
        if bits.dtype != np.uint64 or not np.isin(codes, _WIDE).any():
            return None
        signed = np.isin(codes, _SIGNED)
        whole, narrow = bits.astype(np.uint64), codes == CODES["i32"]
        whole[narrow] = whole[narrow].astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)
        return Integers(whole, signed | np.isin(codes, _UNSIGNED), signed)

    @property
    def rounded(self) -> npt.NDArray[np.bool_]:
        """(n,) True if a float64 may round the value."""
        moved = np.where(self.signed, self.bits + np.uint64(_EXACT), self.bits)
        return np.asarray(self.known & (moved > np.where(self.signed, np.uint64(2 * _EXACT), np.uint64(_EXACT))))

    def number(self, at: int) -> int:
        """The value of a record."""
        return _number(int(self.bits[at]), bool(self.signed[at]))

    def column(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The values as one column, and a mask of those in it: int64, or where a value needs it, uint64. In a column
        with both negative and such values, the latter are not.
        """
        large = self.known & ~self.signed & (self.bits >> np.uint64(63) != 0)
        negative = self.known & self.signed & (self.bits >> np.uint64(63) != 0)
        if large.any() and not negative.any():
            return self.bits, self.known
        return self.bits.view(np.int64), self.known & ~large


def _number(bits: int, signed: bool) -> int:
    return bits - (1 << 64) if signed and bits >> 63 else bits


def distinct(value: Float, integers: Integers | None, at: Rows) -> tuple[list[float | int], npt.NDArray[np.intp]]:
    """The distinct values of records, exactly, and the index of each record's: floats, and integers where a float64
    would round them.
    """
    found, which = np.unique(value[at], return_inverse=True)
    values: list[float | int] = found.tolist()
    which = which.ravel()
    if integers is None:
        return values, which
    bits, rounded, signed = integers.bits[at], integers.rounded[at], integers.signed[at]
    for sign in (False, True):
        rows = np.flatnonzero(rounded & (signed == sign))
        words, place = np.unique(bits[rows], return_inverse=True)
        which[rows] = len(values) + place.ravel()
        values += [_number(word, sign) for word in words.tolist()]
    return values, which
