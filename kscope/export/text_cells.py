"""Makes rows of text column by column: numbers become digits four at a time, from a table. A cell is (m, width) bytes,
padded with insignificant spaces, or with NULs that squeezed() removes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ..util.arrays import Bytes, Int64

Unsigned = npt.NDArray[np.unsignedinteger[Any]]

SPACE, NOTHING = b" ", b"\0"
MOST = 1 << 24
"""Maximum bytes of a table of cells: one long text widens them all."""
_EXACT = 2.0**53
"""Beyond it, JSON readers round integers."""
_GROUP = 10_000
_POINT = np.frombuffer(b"".join(b".%03d" % number for number in range(1000)), "<u4")
"""Three decimals with their point, as one word."""


def whole(values: Int64, fill: bytes) -> Bytes:
    """Integers as right-aligned digits."""
    negative = values < 0
    if not negative.any():
        return _digits(values.view(np.uint64), fill)
    digits = _digits(np.abs(values).view(np.uint64), fill)
    if fill == NOTHING:  # the sign may be separated
        sign = np.where(negative, ord("-"), 0).astype(np.uint8)[:, None]
        return np.concatenate([sign, digits], axis=1)
    out = np.concatenate([np.full((len(values), 1), ord(fill), np.uint8), digits], axis=1)
    first = (out != ord(fill)).argmax(axis=1)
    rows = np.flatnonzero(negative)
    out[rows, first[rows] - 1] = ord("-")
    return out


def thousandths(values: Int64, fill: bytes) -> Bytes:
    """Integers divided by 1000, with three decimals: ns as us."""
    negative = values < 0
    if negative.any():  # the integer part of -0.5 has no sign
        units = np.abs(values) // 1000
        text = whole(np.where(negative, -units - (units == 0), units), fill)
        text[np.flatnonzero(negative & (units == 0)), -1] = ord("0")
        point = _POINT.take(np.abs(values) - units * 1000)
    else:
        size = values.astype(np.uint32) if int(values.max(initial=0)) < 1 << 32 else values.view(np.uint64)
        thousand = size.dtype.type(1000)
        parts = size // thousand
        text = _digits(parts, fill)
        point = _POINT.take((size - parts * thousand).astype(np.intp))
    return np.concatenate([text, point.view(np.uint8).reshape(-1, 4)], axis=1)


def number(value: float) -> bytes:
    """A number as JSON: ints, and floats that are integers up to 2^53, without a fraction; NaN and infinity as null."""
    if isinstance(value, int):
        return str(value).encode()
    return orjson.dumps(int(value) if abs(value) <= _EXACT and value.is_integer() else value)


def table(texts: Sequence[bytes], fill: bytes) -> Bytes:
    """Texts as cells (texts, width), left-aligned."""
    width = max(map(len, texts), default=0)
    return np.frombuffer(b"".join(text.ljust(width, fill) for text in texts), np.uint8).reshape(len(texts), width)


class TextTable:
    """A table of texts, whose cells are taken by index. width: of the longest."""

    def __init__(self, texts: Sequence[bytes], fill: bytes) -> None:
        self._texts, self._fill = texts, fill
        self.width = max(map(len, texts), default=0)
        self._table = table(texts, fill) if self.width * len(texts) <= MOST else None

    def take(self, index: npt.NDArray[np.integer[Any]]) -> Bytes:
        """The cells at the indices."""
        if self._table is not None:
            return self._table.take(index, axis=0)
        distinct, which = np.unique(index, return_inverse=True)
        return table([self._texts[number] for number in distinct.tolist()], self._fill)[which]


def at_once(rows: int, width: int) -> int:
    """Rows per batch: `rows`, or fewer if texts of that width would exceed MOST."""
    return max(1, min(rows, MOST // max(1, width)))


def rows(count: int, *cells: bytes | Bytes) -> Bytes:
    """Rows (count, width) of adjacent cells; bytes are repeated in all rows."""
    widths = [len(cell) if isinstance(cell, bytes) else cell.shape[1] for cell in cells]
    out = np.empty((count, sum(widths)), np.uint8)
    out[...] = np.frombuffer(
        b"".join(cell if isinstance(cell, bytes) else bytes(cell.shape[1]) for cell in cells), np.uint8
    )
    at = 0
    for cell, width in zip(cells, widths, strict=True):
        if not isinstance(cell, bytes):
            _column(out, at, width)[...] = _column(np.ascontiguousarray(cell), 0, width)
        at += width
    return out


def _column(cells: Bytes, at: int, width: int) -> npt.NDArray[np.void]:
    """Adjacent columns as one of wider elements, which copy faster than bytes."""
    if not width or not len(cells):
        return np.zeros(len(cells), "V1")
    wide: npt.NDArray[np.void] = np.ndarray((len(cells),), f"V{width}", cells.data, at, (cells.shape[1],))
    return wide


def squeezed(cells: Bytes) -> Bytes:
    """The bytes of the rows without NOTHING, flat."""
    flat = cells.ravel()
    return np.asarray(flat[flat != 0], np.uint8)


def _digits(values: Unsigned, fill: bytes) -> Bytes:
    """Non-negative integers as digits: as many as the largest has, rounded up to a multiple of four."""
    groups = _groups(fill)
    most = int(values.max(initial=0))
    rest = values.astype(np.uint32, copy=False) if most < 1 << 32 else values
    count = max(1, -(-len(str(most)) // 4))
    out = np.empty((len(values), count), np.uint32)
    size = rest.dtype.type(_GROUP)
    for place in range(count - 1, -1, -1):
        index, higher = rest.astype(np.intp), None
        if place:
            higher = rest // size
            index -= higher.astype(np.intp) * _GROUP
            index += (higher > 0) * np.intp(_GROUP)
        if place < count - 1:
            index[rest == 0] = 2 * _GROUP
        out[:, place] = groups.take(index)
        if higher is not None:
            rest = higher
    return out.view(np.uint8)


@lru_cache
def _groups(fill: bytes) -> npt.NDArray[np.uint32]:
    """Four digits as a word: without leading zeros, with them, and blank."""
    short = b"".join(b"%d" % number if number > 999 else (b"%d" % number).rjust(4, fill) for number in range(_GROUP))
    full = b"".join(b"%04d" % number for number in range(_GROUP))
    return np.frombuffer(short + full + 4 * fill, "<u4")
