"""Columns as text: bytes in planes, deflated, in base64.

The first bytes of all numbers come first, then all second bytes, and so on: the high bytes of small numbers are runs of
zeros, which deflate to nothing.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TYPES = ("u1", "u2", "u4", "u8", "f4", "f8")
"""Types that page/js/unpack.js reads; u8 becomes a double there, exact up to 2^53."""
_LEVEL = 1  # higher ones take twice as long for some percent


@dataclass(frozen=True)
class Packed:
    """spec: [name, type, length] of each column. text: base64 of the deflated planes in order."""

    spec: list[list[str | int]]
    text: str


def pack(columns: Mapping[str, Array]) -> Packed:
    """Pack columns of one of TYPES, each of any length."""
    spec: list[list[str | int]] = []
    planes: list[bytes] = []
    for name, column in columns.items():
        kind = column.dtype.str[1:]
        if kind not in TYPES:
            raise TypeError(f"column {name!r} is {column.dtype}: expected one of {', '.join(TYPES)}")
        spec.append([name, kind, len(column)])
        flat = np.ascontiguousarray(column, column.dtype.newbyteorder("<"))
        planes.append(flat.view(np.uint8).reshape(len(flat), flat.itemsize).T.tobytes())
    return Packed(spec, base64.b64encode(zlib.compress(b"".join(planes), _LEVEL)).decode("ascii"))


def narrow(column: Array) -> Array:
    """Non-negative integers in the smallest unsigned type."""
    most = int(column.max(initial=0))
    for kind in (np.uint8, np.uint16, np.uint32):
        if most <= np.iinfo(kind).max:
            return column.astype(kind)
    return column.astype(np.uint64)


def zigzag(column: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Signed integers as unsigned: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return np.asarray((column << 1) ^ (column >> 63), np.int64)
