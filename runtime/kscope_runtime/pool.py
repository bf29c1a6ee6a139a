"""Where kernels record: the control block and the pool of one device.

What lives here: sizes, addresses, and the stripes' words as the host first writes them. What does not:
the words' meaning (kscope/layout.py), moving what was recorded (drain.py).

    pool   | ring of SM 0 | ring of SM 1 | ... | reserve           |
             each 2^k bytes, together about half   the largest 2^k that is left
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kscope import layout
from kscope.errors import UsageError

DEFAULT_BYTES, DEFAULT_SHARE = 1 << 30, 32
LEAST_RING = 4096


@dataclass(frozen=True)
class Rings:
    """Sizes in bytes: `each` of `stripes` rings, and the reserve's; all powers of two."""

    stripes: int
    each: int
    reserve: int

    @property
    def total(self) -> int:
        return self.stripes * self.each + self.reserve

    def words(self, base: int) -> np.ndarray:
        """The control block's stripes, (stripes + 1,) layout.STRIPE, for a cleared pool at that address."""
        table = np.zeros(self.stripes + 1, layout.STRIPE)
        table["base"] = base + np.arange(self.stripes + 1, dtype=np.uint64) * np.uint64(self.each)
        units = np.full(self.stripes + 1, self.each // layout.UNIT)
        units[-1] = self.reserve // layout.UNIT
        table["mask"], table["limit"] = units - 1, units
        return table


def default_bytes(free: int) -> int:
    """The pool's size where the user names none: min(1 GiB, 1/32 of what is free)."""
    return min(DEFAULT_BYTES, free // DEFAULT_SHARE)


def rings(size: int, stripes: int) -> Rings:
    """Cut a pool of at most `size` bytes. Raises UsageError when that is too small for the device."""
    each = 1 << max(0, round_log2(size / 2 / stripes))
    left = size - stripes * each
    if each < LEAST_RING or left < LEAST_RING:
        raise UsageError(
            f"pool={size}: a device of {stripes} SMs needs at least {least(stripes)} bytes, "
            "a ring for each SM and one that all share"
        )
    return Rings(stripes, each, 1 << left.bit_length() - 1)


def least(stripes: int) -> int:
    """The smallest pool that rings() takes for certain."""
    return 2 * LEAST_RING * (stripes + 1)


def round_log2(value: float) -> int:
    """The exponent of the power of two that is nearest in ratio."""
    return int(np.floor(np.log2(max(value, 1.0)) + 0.5))
