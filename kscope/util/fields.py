"""The fields of a structure in memory as plain data: numpy takes them as a dtype, and they are read without it, too."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_CODES = {"<u4": "I", "<u8": "Q"}


class Fields:
    """Little-endian fields without gaps. Where numpy expects a dtype, it takes this object and uses its `dtype`.

    Args:
        fields: (name, type) or (name, type, (count,)) of each field in order; a type is "<u4", "<u8", or "S16" for
            text of 16 bytes.

    Attributes:
        names: of the fields.
        itemsize: bytes of a structure.
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
        """The structure as numpy describes it. Imports numpy."""
        if self._dtype is None:
            import numpy as np

            self._dtype = np.dtype(self._fields)
        return self._dtype

    def offset(self, name: str) -> int:
        """Bytes before a field."""
        return self._offsets[name]

    def read(self, data: bytes | memoryview, at: int = 0) -> dict[str, Any]:
        """The fields, none of which has a count, of one structure in a buffer; text without the zeros at its end.

        Args:
            data: the buffer.
            at: bytes before the structure.
        """
        values = struct.unpack_from(self._format, data, at)
        return {
            name: one.rstrip(b"\0") if isinstance(one, bytes) else one
            for name, one in zip(self.names, values, strict=True)
        }


def _code(kind: str, count: int) -> str:
    return f"{kind[1:]}s" if kind.startswith("S") else f"{count}{_CODES[kind]}"
