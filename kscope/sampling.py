"""Which blocks, warps and SMs record: read by the kernel's entry from the control block, no recompile.

What lives here: the choice as a value, and its words in layout.GATE. What does not: strategies, which
are compiled in (strategies.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from . import layout
from .errors import UsageError
from .strategies import MAX_WARPS

_END = 1 << 63


@dataclass(frozen=True)
class Sampling:
    """A choice of blocks (by linear index x + nx * (y + ny * z)), warps of a block, and SMs; None = all.

    A stride looks at the linear index modulo 2^32, counted from the first block.
    """

    blocks: range | None = None
    warps: tuple[int, ...] | None = None
    sms: tuple[int, ...] | None = None

    @staticmethod
    def of(
        blocks: int | range | slice | None = None,
        warps: int | Iterable[int] | None = None,
        sms: int | Iterable[int] | None = None,
    ) -> Sampling:
        """From what a user types: blocks=100 (the first 100), range(0, 1000, 8) or slice(10, None);
        warps and sms one number or several. Raises UsageError."""
        return Sampling(_blocks(blocks), _members("warps", warps, MAX_WARPS), _members("sms", sms, layout.MAX_SMS))

    def gate(self, epoch: int, stripes: int) -> np.ndarray:
        """The gate's 128 bytes as one layout.GATE record."""
        gate = np.zeros((), layout.GATE)
        blocks = self.blocks if self.blocks is not None else range(_END)
        first, step = blocks.start, blocks.step
        gate["epoch"], gate["stripes"] = epoch, stripes
        gate["sampled"] = self.blocks is not None or self.sms is not None
        gate["warp_mask"] = 0xFFFFFFFF if self.warps is None else sum(1 << warp for warp in self.warps)
        gate["block_magic"] = layout.block_magic(step)
        gate["block_first"], gate["block_count"] = first, max(0, blocks.stop - first)
        sms = range(layout.MAX_SMS) if self.sms is None else self.sms
        for sm in sms:
            gate["sm_mask"][sm // 32] |= np.uint32(1 << sm % 32)
        return gate


def _blocks(blocks: int | range | slice | None) -> range | None:
    if blocks is None:
        return None
    if isinstance(blocks, bool) or not isinstance(blocks, (int, range, slice)):
        raise UsageError(f"blocks={blocks!r}: expected a number, range(first, stop, step) or slice")
    if isinstance(blocks, int):
        blocks = range(blocks)
    if isinstance(blocks, slice):
        stop = _END if blocks.stop is None else blocks.stop
        blocks = range(blocks.start or 0, stop, blocks.step or 1)
    if blocks.start < 0 or not 0 < blocks.step < 1 << 32 or not blocks.start < blocks.stop <= _END:
        raise UsageError(
            f"blocks={blocks!r}: expected an ascending range of block indices, 0 to 2^63 - 1, that is not empty"
        )
    return blocks


def _members(what: str, members: int | Iterable[int] | None, end: int) -> tuple[int, ...] | None:
    if members is None:
        return None
    chosen = (members,) if isinstance(members, int) else tuple(members)
    wrong = [m for m in chosen if not isinstance(m, int) or isinstance(m, bool) or not 0 <= m < end]
    if wrong or not chosen:
        raise UsageError(f"{what}={members!r}: expected one or more numbers from 0 to {end - 1}")
    return tuple(sorted(set(chosen)))
