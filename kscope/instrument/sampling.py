"""Which blocks, warps and SMs record: read by the kernel's entry from the control block, without recompiling."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from ..capture import layout
from ..errors import UsageError
from ..marks.strategies import MAX_WARPS

_END = 1 << 63


@dataclass(frozen=True)
class Sampling:
    """A choice of blocks, warps and SMs; None for all.

    Attributes:
        blocks: linear indices x + nx * (y + ny * z). A stride counts modulo 2^32 from the first block.
        warps: warps of a block.
        sms: SMs.
    """

    blocks: range | None = None
    warps: tuple[int, ...] | None = None
    sms: tuple[int, ...] | None = None

    @staticmethod
    def of(
        blocks: SupportsIndex | range | slice | None = None,
        warps: SupportsIndex | Iterable[SupportsIndex] | None = None,
        sms: SupportsIndex | Iterable[SupportsIndex] | None = None,
    ) -> Sampling:
        """From what a user passed.

        Args:
            blocks: 100 (the first 100), range(0, 1000, 8) or slice(10, None).
            warps: one number or several.
            sms: one number or several.

        Raises:
            UsageError: anything else.
        """
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


def _blocks(blocks: SupportsIndex | range | slice | None) -> range | None:
    if blocks is None:
        return None
    try:
        if isinstance(blocks, range):
            found = blocks
        elif isinstance(blocks, slice):
            ends = blocks.start or 0, _END if blocks.stop is None else blocks.stop, blocks.step or 1
            found = range(*map(_number, ends))
        else:
            found = range(_number(blocks))
    except TypeError as error:
        raise UsageError(f"blocks={blocks!r}: expected a number, range(first, stop, step) or slice") from error
    if found.start < 0 or not 0 < found.step < 1 << 32 or not found.start < found.stop <= _END:
        raise UsageError(
            f"blocks={blocks!r}: expected an ascending range of block indices, 0 to 2^63 - 1, that is not empty"
        )
    return found


def _members(what: str, members: SupportsIndex | Iterable[SupportsIndex] | None, end: int) -> tuple[int, ...] | None:
    if members is None:
        return None
    try:
        found = {_number(one) for one in (members if isinstance(members, Iterable) else (members,))}
    except TypeError:
        found = set()
    if not found or not 0 <= min(found) <= max(found) < end:
        raise UsageError(f"{what}={members!r}: expected one or more numbers from 0 to {end - 1}")
    return tuple(sorted(found))


def _number(typed: SupportsIndex) -> int:
    """A Python int, also from a numpy integer. Raises TypeError for other types."""
    if isinstance(typed, (bool, np.bool_)):
        raise TypeError
    return operator.index(typed)
