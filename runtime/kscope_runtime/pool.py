"""The pool: sizes, addresses, and the stripes' initial words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kscope.capture import wire
from kscope.errors import UsageError

DEFAULT_BYTES, DEFAULT_SHARE = 1 << 30, 32
LEAST_RING = 2048
_PAGE, _LARGE = 4096, 1 << 18
"""Bytes between two rings, and the least size of rings that have such a gap."""


@dataclass(frozen=True)
class Rings:
    """Sizes in bytes; all but the total are powers of two.

        pool   | ring of SM 0 | page | ring of SM 1 | page | ... | reserve           |
                 each 2^k bytes, together about half           the largest 2^k that is left

    docs/design/pool.md has the reason for the pages. No ring crosses a multiple of wire.SEGMENT_BYTES: one that would
    begins there instead, and the reserve takes the larger part.

    Attributes:
        stripes: number of rings.
        each: of a ring.
        reserve: of the reserve.
        total: of the pool.
    """

    stripes: int
    each: int
    reserve: int
    total: int

    def words(self, pool: int) -> np.ndarray:
        """The control block's stripes, (stripes + 1,) wire.STRIPE, for a cleared pool at that address."""
        table, at = np.zeros(self.stripes + 1, wire.STRIPE), pool
        for stripe in range(self.stripes):
            edge = _edge_after(at)
            first = at if at + self.each <= edge else edge
            table["base"][stripe], at = first, first + _apart(self.each)
        table["base"][-1], size = _largest(at, pool + self.total)
        units = np.full(self.stripes + 1, self.each // wire.UNIT)
        units[-1] = min(size, self.reserve) // wire.UNIT
        table["mask"], table["limit"] = units - 1, units
        return table


def _apart(ring: int) -> int:
    """Bytes from one ring to the next."""
    return ring + _PAGE if _LARGE <= ring < wire.SEGMENT_BYTES else ring


def _edge_after(address: int) -> int:
    """The next multiple of wire.SEGMENT_BYTES."""
    return (address // wire.SEGMENT_BYTES + 1) * wire.SEGMENT_BYTES


def _largest(start: int, stop: int) -> tuple[int, int]:
    """Address and size of the largest power of two of bytes that crosses no multiple of wire.SEGMENT_BYTES."""
    found = start, 0
    while start < stop:
        edge = min(_edge_after(start), stop)
        found = max(found, (start, 1 << (edge - start).bit_length() - 1), key=lambda piece: piece[1])
        start = edge
    return found


def default_bytes(free: int, stripes: int) -> int:
    """The default size: min(1 GiB, 1/32 of the free memory), and at least what the device needs."""
    return max(min(DEFAULT_BYTES, free // DEFAULT_SHARE), least(stripes))


def rings(size: int, stripes: int) -> Rings:
    """Divide a pool of at most `size` bytes. Raises UsageError if that is too small for the device."""
    each = min(1 << max(0, round_log2(size / 2 / stripes)), wire.SEGMENT_BYTES)
    while each > LEAST_RING and size - stripes * _apart(each) < 2 * each:  # with one or two SMs
        each //= 2
    used = stripes * _apart(each)
    left = size - used
    if each < LEAST_RING or left < 2 * LEAST_RING:
        raise UsageError(
            f"pool={size}: a device of {stripes} SMs needs at least {least(stripes)} bytes, "
            "a ring for each SM and one that all share"
        )
    reserve = min(1 << left.bit_length() - 1, wire.SEGMENT_BYTES)
    # room for the unused part before each multiple of wire.SEGMENT_BYTES
    unused = each * (used // wire.SEGMENT_BYTES + 1)
    return Rings(stripes, each, reserve, min(size, used + reserve + unused))


def least(stripes: int) -> int:
    """A pool size that rings() always accepts."""
    return 2 * LEAST_RING * (stripes + 1)


def round_log2(value: float) -> int:
    """The exponent of the power of two that is nearest in ratio."""
    return int(np.floor(np.log2(max(value, 1.0)) + 0.5))
