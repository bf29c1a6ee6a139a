"""Where each warp whose slab is in a pool is, whether it has finished, and its role: as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

IN, BEHIND, NOWHERE, FINISHED = range(4)
"""A warp is in a region; behind the last one that it left; nothing is stored of it; or it has left the kernel."""
MOST_SEARCHED = 4096
"""Finished warps whose records are searched for roles; there may be millions of them."""
COLUMNS = 16
Column = Sequence[int]
"""(n,) whole numbers."""


@dataclass(frozen=True)
class Warps:
    """Warps that have not finished, the finished ones of the same launches, and those that name their role: columns in
    the order of their slabs. Each is a recording lane, mostly lane 0 of a warp.

    Attributes:
        slabs: how many slabs the pool has.
        whole: a number that changes when one of them does.
        grid: %gridid of its launch; 0 if the launch is unknown, as the next three are.
        kernel: the kernel's id.
        nctaid_x, nctaid_yz: as in wire.LAUNCH.
        block, warp, lane, sm: its place; block is the linear number.
        state: IN, BEHIND, NOWHERE or FINISHED.
        torn: 1 if its word about the region that it entered last changed whenever it was read.
        region: hash of the region that it is in, or of that of its newest record; 0 without one.
        value: of that region, 32 bits.
        has_more: 1 if the value has more bits.
        role: hash of the name of its role, if it has recorded one; else 0.
        entered: regions entered, as far as they are stored at once, modulo 2^24.
        version: a number that changes when it enters, leaves or records something.
    """

    slabs: int
    whole: int
    grid: Column
    kernel: Column
    nctaid_x: Column
    nctaid_yz: Column
    block: Column
    warp: Column
    lane: Column
    sm: Column
    state: Column
    torn: Column
    region: Column
    value: Column
    has_more: Column
    role: Column
    entered: Column
    version: Column
