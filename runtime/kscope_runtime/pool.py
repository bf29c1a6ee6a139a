"""The pool: sizes, addresses, and the stripes' initial words.

    pool   | ring of SM 0 | ring of SM 1 | ... | reserve           |
             each 2^k bytes, together about half   the largest 2^k that is left

No ring crosses a multiple of wire.SEGMENT_BYTES: if there is one within the pool, all rings move by up to a ring's
size, and the reserve takes the larger part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kscope.capture import wire
from kscope.errors import UsageError

DEFAULT_BYTES, DEFAULT_SHARE = 1 << 30, 32
LEAST_RING = 2048


@dataclass(frozen=True)
class Rings:
    """Sizes in bytes; all but the total are powers of two.

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
        edge = _edge_after(pool)
        # a multiple of wire.SEGMENT_BYTES lies between two rings
        first = pool + (edge - pool) % self.each if edge < pool + self.total else pool
        at = first + self.stripes * self.each
        reserve, size = _largest(at, pool + self.total)
        table = np.zeros(self.stripes + 1, wire.STRIPE)
        table["base"] = [*range(first, at, self.each), reserve]
        units = np.full(self.stripes + 1, self.each // wire.UNIT)
        units[-1] = min(size, self.reserve) // wire.UNIT
        table["mask"], table["limit"] = units - 1, units
        return table


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
    while each > LEAST_RING and size - stripes * each < 2 * each:  # with one or two SMs
        each //= 2
    left = size - stripes * each
    if each < LEAST_RING or left < 2 * LEAST_RING:
        raise UsageError(
            f"pool={size}: a device of {stripes} SMs needs at least {least(stripes)} bytes, "
            "a ring for each SM and one that all share"
        )
    reserve = min(1 << left.bit_length() - 1, wire.SEGMENT_BYTES)
    # room to move all rings away from a multiple of wire.SEGMENT_BYTES
    return Rings(stripes, each, reserve, min(size, stripes * each + reserve + each))


def least(stripes: int) -> int:
    """A pool size that rings() always accepts."""
    return 2 * LEAST_RING * (stripes + 1)


def round_log2(value: float) -> int:
    """The exponent of the power of two that is nearest in ratio."""
    return int(np.floor(np.log2(max(value, 1.0)) + 0.5))
