"""The layout of a structure in memory as plain data: read without numpy, or by numpy as a dtype."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_CODES = {"<u4": "I", "<u8": "Q"}


class Fields:
    """Little-endian fields without gaps. numpy accepts this object as a dtype, through its attribute `dtype`.

    Args:
        fields: (name, type) or (name, type, (count,)) of each field in order; a type is "<u4", "<u8", or "S16" for
            text of 16 bytes.

    Attributes:
        names: the names of the fields.
        itemsize: the size of a structure, bytes.
    """

    def __init__(self, fields: Sequence[tuple[str, str] | tuple[str, str, tuple[int]]]) -> None:
        self._fields = list(fields)
        self._dtype: np.dtype[np.void] | None = None
        self._format, self._offsets = "<", dict[str, int]()
        for field in self._fields:
            self._offsets[field[0]] = struct.calcsize(self._format)
            self._format += _code(field[1], field[2][0] if len(field) > 2 else 1)
        self.names = tuple(self._offsets)
        self.itemsize = struct.calcsize(self._format)

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The layout as a numpy dtype. Imports numpy."""
        if self._dtype is None:
            import numpy as np

            self._dtype = np.dtype(self._fields)
        return self._dtype

    def offset(self, name: str) -> int:
        """The offset of a field, bytes."""
        return self._offsets[name]

    def read(self, data: bytes | memoryview, at: int = 0) -> dict[str, Any]:
        """One structure in a buffer, by field; text without the zeros at its end. No field may have a count.

        Args:
            data: the buffer.
            at: offset of the structure, bytes.
        """
        values = struct.unpack_from(self._format, data, at)
        return {
            name: one.rstrip(b"\0") if isinstance(one, bytes) else one
            for name, one in zip(self.names, values, strict=True)
        }


def _code(kind: str, count: int) -> str:
    return f"{kind[1:]}s" if kind.startswith("S") else f"{count}{_CODES[kind]}"
