"""Ranges of device memory that are copied or cleared together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kscope import native
from kscope.capture import wire

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Ranges:
    """Ranges of bytes; each field is (r,).

    Attributes:
        address: where a range begins, uint64.
        size: its bytes, int64.
    """

    address: npt.NDArray[np.uint64]
    size: npt.NDArray[np.int64]

    @staticmethod
    def of(address: int, size: int) -> Ranges:
        """One range."""
        return Ranges(np.array([address], np.uint64), np.array([size], np.int64))

    def at_most(self, size: int) -> Ranges:
        """The same bytes in ranges of at most `size` bytes."""
        if not len(self.size) or self.size.max() <= size:
            return self
        parts = -(-self.size // size)
        which = np.repeat(np.arange(len(parts)), parts)
        begin = (np.arange(len(which)) - (np.cumsum(parts) - parts)[which]) * size
        return Ranges(self.address[which] + begin.astype(np.uint64), np.minimum(self.size[which] - begin, size))


def in_rings(table: np.ndarray, tail: npt.NDArray[np.uint32], units: npt.NDArray[np.int64]) -> Ranges:
    """The one or two ranges of each ring that hold its units from `tail` on, without empty ones.

    Args:
        table: (p,) wire.STRIPE, of each ring.
        tail: (p,) position of the first unit.
        units: (p,).
    """
    if native.available():
        address, size = np.empty(2 * len(tail), np.uint64), np.empty(2 * len(tail), np.int64)
        count = native.call_briefly("rings", len(tail), table, tail, units, address, size)
        return Ranges(address[:count], size[:count])
    at = (tail & table["mask"]).astype(np.int64)
    straight = np.minimum(units, table["mask"].astype(np.int64) + 1 - at)
    begin = np.stack([at, np.zeros(len(at), np.int64)], axis=1).ravel() * wire.UNIT
    size = np.stack([straight, units - straight], axis=1).ravel() * wire.UNIT
    full = size > 0
    return Ranges(np.repeat(table["base"], 2)[full] + begin[full].astype(np.uint64), size[full])


class Reads(Protocol):
    """Memory that is read range by range."""

    def read(self, into: Bytes, address: int, stream: int) -> None: ...


def read_each(memory: Reads, into: Bytes, ranges: Ranges, stream: int) -> None:
    """Begin to copy the ranges, one after the other in `into`."""
    at = 0
    for address, size in zip(ranges.address.tolist(), ranges.size.tolist(), strict=True):
        memory.read(into[at : at + size], address, stream)
        at += size
