"""The warps with a slab in a pool as columns: their place, whether they have finished, and their role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

IN, BEHIND, NOWHERE, FINISHED = range(4)
"""A warp is in a region, is after the last region that it left, has stored nothing, or has left the kernel."""
MOST_SEARCHED = 4096
"""Finished warps whose records are searched for roles; there may be millions of them."""
COLUMNS = 16
Column = Sequence[int]
"""(n,) whole numbers."""


@dataclass(frozen=True)
class Warps:
    """Unfinished warps, the finished warps of their launches, and finished warps with a recorded role.

    Rows are in the order of the slabs. A row is one recording lane, mostly lane 0 of a warp.

    Attributes:
        slabs: number of slabs in the pool.
        whole: a number that changes when any of these slabs changes.
        grid: %gridid of its launch; 0 if the launch is unknown, as are then kernel, nctaid_x and nctaid_yz.
        kernel: the kernel's id.
        nctaid_x, nctaid_yz: as in wire.LAUNCH.
        block, warp, lane, sm: its place; block is the linear number.
        state: IN, BEHIND, NOWHERE or FINISHED.
        torn: 1 if its word about the last region that it entered changed in every attempt to read it.
        region: hash of the region that it is in, else of the region of its newest record; 0 without either.
        value: the value of that region, 32 bits.
        has_more: 1 if the value has more bits.
        role: hash of the name of its role, if it has recorded one; else 0.
        entered: number of regions entered that are stored at entry, modulo 2^24.
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
