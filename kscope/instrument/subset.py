"""The blocks, warps and SMs that record: read by the kernel's entry from the control block, without recompiling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from ..capture import wire
from ..capture.blocks import END, BlockSelection, selections, whole_number
from ..errors import UsageError
from ..marks.strategies import MAX_WARPS


@dataclass(frozen=True)
class Subset:
    """The blocks, warps and SMs that record; None for all.

    Attributes:
        block: linear numbers x + nx * (y + ny * z). A stride counts modulo 2^32 from the first block.
        warp: warps of a block.
        sm: SMs.
    """

    block: range | None = None
    warp: tuple[int, ...] | None = None
    sm: tuple[int, ...] | None = None

    @staticmethod
    def of(
        block: BlockSelection | None = None,
        warp: SupportsIndex | Iterable[SupportsIndex] | None = None,
        sm: SupportsIndex | Iterable[SupportsIndex] | None = None,
    ) -> Subset:
        """Parse a user's arguments.

        Args:
            block: linear numbers: 40, "0:100", range(0, 1000, 8), slice(10, None), or a list that forms a range.
            warp: one number or several.
            sm: one number or several.

        Raises:
            UsageError: anything else.
        """
        return Subset(_blocks(block), _members("warp", warp, MAX_WARPS), _members("sm", sm, wire.MAX_SMS))

    def gate(self, epoch: int, stripes: int) -> np.ndarray:
        """The gate's 128 bytes as one wire.GATE record."""
        gate = np.zeros((), wire.GATE)
        blocks = self.block if self.block is not None else range(END)
        first, step = blocks.start, blocks.step
        gate["epoch"], gate["stripes"] = epoch, stripes
        gate["sampled"] = any(one is not None for one in (self.block, self.warp, self.sm))
        gate["warp_mask"] = 0xFFFFFFFF if self.warp is None else sum(1 << warp for warp in self.warp)
        gate["block_magic"] = wire.block_magic(step)
        gate["block_first"], gate["block_count"] = first, max(0, blocks.stop - first)
        of_sms = np.full(wire.MAX_SMS, self.sm is None)
        of_sms[list(self.sm or ())] = True
        gate["sm_mask"] = np.packbits(of_sms, bitorder="little").view("<u4")
        return gate


def _blocks(typed: BlockSelection | None) -> range | None:
    """One range of linear numbers: what the gate can test. Raises UsageError."""
    if typed is None:
        return None
    found = selections(typed)
    if any(len(one.axes) > 1 for one in found):
        text = "a recording selects blocks by linear number, because its kernels have different grids"
        more = "such as '#40' or 0:100; select coordinates when you read it: trace.filter(block=...), --block"
        raise UsageError(f"block {' '.join(map(str, found))}: {text}, {more}")
    joined = _joined([one.axes[0] for one in found])
    if joined is None or joined.step >> 32:
        raise UsageError(f"block {' '.join(map(str, found))}: expected blocks at one distance, such as 0:1000:10")
    return joined


def _joined(ranges: list[range]) -> range | None:
    """The range of all numbers; None if they are no arithmetic progression."""
    if len(ranges) == 1 or any(one.stop - one.start > 1 << 20 for one in ranges):
        return ranges[0] if len(ranges) == 1 else None
    numbers = np.unique(np.concatenate([np.array(one) for one in ranges]))
    steps = np.unique(np.diff(numbers))
    step = int(steps[0]) if len(steps) else 1
    return range(int(numbers[0]), int(numbers[-1]) + 1, step) if len(steps) <= 1 else None


def _members(what: str, members: SupportsIndex | Iterable[SupportsIndex] | None, end: int) -> tuple[int, ...] | None:
    if members is None:
        return None
    try:
        found = {whole_number(one) for one in (members if isinstance(members, Iterable) else (members,))}
    except TypeError:
        found = set()
    if not found or not 0 <= min(found) <= max(found) < end:
        raise UsageError(f"{what}={members!r}: expected one or more numbers from 0 to {end - 1}")
    return tuple(sorted(found))
