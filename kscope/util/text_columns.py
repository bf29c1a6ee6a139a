"""Columns of text and bytes: matrices of characters with the size of each row. No loop in Python is over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import native
from .arrays import U64, Bytes, Int64


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of n texts, without bytes 0.

    Attributes:
        parts: (n, width) uint8 each, of rows without gaps, which make the text; 0 in cells that are not used.
        sizes: (n,) bytes of each row.
    """

    parts: tuple[Bytes, ...]
    sizes: Int64

    def __len__(self) -> int:
        return len(self.sizes)

    def where(self, condition: npt.NDArray[np.bool_]) -> TextColumn:
        """The text in rows (n,) where a condition holds, and nothing in the others."""
        return TextColumn(
            tuple(np.multiply(part, condition[:, None], order="C") for part in self.parts), self.sizes * condition
        )

    def tobytes(self) -> bytes:
        """The rows, one after the other."""
        if not native.available():
            data = np.hstack(self.parts)
            return bytes(data[data != 0].tobytes())
        widths = np.array([part.shape[1] for part in self.parts])
        steps = np.array([part.strides[0] for part in self.parts])
        cells = np.array([part.ctypes.data for part in self.parts], np.uintp)
        out = np.empty(len(self) * int(widths.sum()) + 1, np.uint8)
        return bytes(out[: native.call("text", len(self), len(widths), cells, widths, steps, out)].tobytes())

    def strings(self) -> list[str]:
        """Each row as a string, of UTF-8."""
        whole, ends = self.tobytes(), np.cumsum(self.sizes).tolist()
        if whole.isascii():
            text = whole.decode()
            return [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        return [whole[a:b].decode("utf-8", "replace") for a, b in zip([0, *ends], ends, strict=False)]


def constant(text: bytes, rows: int) -> TextColumn:
    """The same text in every row."""
    data = np.frombuffer(text, np.uint8)
    return TextColumn((np.broadcast_to(data, (rows, len(text))),), np.broadcast_to(np.int64(len(text)), rows))


def decimals(values: npt.NDArray[np.integer], least: int = 1) -> TextColumn:
    """Numbers (n,) from 0 as decimals with at least this many digits."""
    width = max(len(str(int(values.max(initial=0)))), least)
    data, sizes = np.empty((len(values), width), np.uint8), np.zeros(len(values), np.int64)
    if native.available():
        native.call("decimals", _numbers(values), len(values), width, least, data, sizes)
        return TextColumn((data,), sizes)
    rest = values.astype(np.uint32 if width < 10 else np.uint64)
    for place in range(width):
        higher = rest // 10
        digit = (rest - higher * 10).astype(np.uint8) + np.uint8(ord("0"))
        if place >= least:
            digit *= rest > 0
            sizes += rest > 0
        data[:, width - 1 - place] = digit
        rest = higher
    return TextColumn((data,), sizes + min(least, width))


def varints(values: npt.NDArray[np.integer]) -> TextColumn:
    """Numbers (n,) from 1 as protobuf varints."""
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    data, sizes = np.empty((len(values), width), np.uint8), np.ones(len(values), np.int64)
    if native.available():
        native.call("varints", _numbers(values), len(values), width, data, sizes)
        return TextColumn((data,), sizes)
    rest = values.astype(np.uint64)
    for column in range(width):
        data[:, column] = rest & np.uint64(127)
        rest >>= np.uint64(7)
        data[:, column] |= (rest > 0).astype(np.uint8) << 7
        sizes += rest > 0
    return TextColumn((data,), sizes)


def _numbers(values: npt.NDArray[np.integer]) -> U64:
    return np.ascontiguousarray(values.astype(np.uint64, copy=False))


def joined(*parts: TextColumn) -> TextColumn:
    """The rows of several columns, concatenated."""
    return TextColumn(tuple(cells for part in parts for cells in part.parts), summed(parts))


def summed(parts: Sequence[TextColumn]) -> Int64:
    """(n,) bytes of each row of several texts together."""
    found = np.zeros(len(parts[0]), np.int64)
    found += sum(int(part.sizes[0]) for part in parts if len(part) and not part.sizes.strides[0])
    for part in parts:
        if part.sizes.strides[0]:
            found += part.sizes
    return found


def take(texts: Sequence[bytes], index: npt.NDArray[np.integer]) -> TextColumn:
    """One of a few texts in each row, by its index (n,). Bytes 0 become spaces."""
    table = np.zeros((max(len(texts), 1), max(map(len, texts), default=0)), np.uint8)
    for row, text in enumerate(texts):
        table[row, : len(text)] = np.frombuffer(text.replace(b"\0", b" "), np.uint8)
    return TextColumn((table[index],), np.array([*map(len, texts), 0], np.int64)[index])
