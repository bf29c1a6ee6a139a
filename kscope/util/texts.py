"""Text and bytes in columns: all rows have equally many cells, some unused. No loop in Python is over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Texts:
    """One text of n rows.

    Attributes:
        data: (n, width) uint8.
        used: (n, width) bool, the cells that the text consists of.
    """

    data: npt.NDArray[np.uint8]
    used: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.data)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """(n,) bytes of each row."""
        return np.asarray(np.count_nonzero(self.used, axis=1), np.int64)

    def take(self, rows: slice) -> Texts:
        """Some of the rows."""
        return Texts(self.data[rows], self.used[rows])

    def where(self, condition: npt.NDArray[np.bool_]) -> Texts:
        """The text in rows (n,) where a condition holds, and nothing in the others."""
        return Texts(self.data, self.used & condition[:, None])

    def tobytes(self) -> bytes:
        """The rows, one after the other."""
        return self.data[self.used].tobytes()

    def strings(self) -> list[str]:
        """Each row as a string, of UTF-8."""
        whole, ends = self.tobytes(), np.cumsum(self.sizes).tolist()
        if whole.isascii():
            text = whole.decode()
            return [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        return [whole[a:b].decode("utf-8", "replace") for a, b in zip([0, *ends], ends, strict=False)]


def constant(text: bytes, rows: int) -> Texts:
    """The same text in every row."""
    data = np.broadcast_to(np.frombuffer(text, np.uint8), (rows, len(text)))
    return Texts(data, np.broadcast_to(True, data.shape))


def decimals(values: npt.NDArray[np.integer], least: int = 1) -> Texts:
    """Numbers (n,) from 0 as decimals of at least so many digits."""
    width = max(len(str(int(values.max(initial=0)))), least)
    data, used = np.empty((len(values), width), np.uint8), np.empty((len(values), width), bool)
    rest = values.astype(np.uint32 if width < 10 else np.uint64)
    for place in range(width):
        column = width - 1 - place
        used[:, column] = (rest > 0) | (place < least)
        higher = rest // 10
        data[:, column] = rest - higher * 10 + ord("0")
        rest = higher
    return Texts(data, used)


def varints(values: npt.NDArray[np.integer]) -> Texts:
    """Numbers (n,) from 0 as protobuf varints."""
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    data, used = np.empty((len(values), width), np.uint8), np.empty((len(values), width), bool)
    rest = values.astype(np.uint64)
    for column in range(width):
        used[:, column] = (rest > 0) | (column == 0)
        data[:, column] = rest & np.uint64(127)
        rest >>= np.uint64(7)
        data[:, column] |= (rest > 0).astype(np.uint8) << 7
    return Texts(data, used)


def joined(*parts: Texts) -> Texts:
    """Texts of the same rows, one behind the other."""
    return Texts(np.hstack([part.data for part in parts]), np.hstack([part.used for part in parts]))


def take(texts: Sequence[bytes], index: npt.NDArray[np.integer]) -> Texts:
    """One of a few texts in each row, by its index (n,)."""
    table = np.zeros((max(len(texts), 1), max(map(len, texts), default=0)), np.uint8)
    used = np.zeros(table.shape, bool)
    for row, text in enumerate(texts):
        table[row, : len(text)], used[row, : len(text)] = np.frombuffer(text, np.uint8), True
    return Texts(table[index], used[index])
