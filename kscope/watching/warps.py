"""Finds the warps with a slab in a pool."""

from __future__ import annotations

from .. import native
from ..capture import layout
from ..capture.pools.pool_reading import Pool, room, slabs
from .warp_columns import COLUMNS, MOST_SEARCHED, Column, Warps


def warps(pool: Pool, roles: frozenset[int] = frozenset()) -> Warps:
    """The warps in a pool, while it may be written.

    Args:
        pool: the pool file.
        roles: hashes of the names by which warps record their role.
    """
    if not native.available():
        from . import warps_in_numpy

        return warps_in_numpy.warps(pool, roles)
    at, log2 = slabs(pool)
    count, names = len(at), room("I", len(roles))
    for number, role in enumerate(roles):
        names[number] = role
    columns, whole = room("Q", COLUMNS * count), room("Q", 1)
    found = native.call(
        "warps", pool.pool, count, at, log2, pool.book, pool.epoch, names, len(roles), MOST_SEARCHED, native.threads(),
        columns, whole,
    )  # fmt: skip
    each = (columns[first * count : first * count + found].tolist() for first in range(COLUMNS))
    return Warps(count, whole[0], *each)


def drained_blocks(batch: memoryview, grid: int) -> Column:
    """The linear block number of each slab of a launch in a batch of drained slabs. grid: %gridid of the launch."""
    if not native.available():
        from . import warps_in_numpy

        return warps_in_numpy.drained_blocks(batch, grid)
    lines = len(batch) // layout.LINE
    blocks, of = room("q", lines), room("Q", 1)
    of[0] = grid
    found = native.call("drained", batch, lines, layout.HEADER_WORD, of, blocks)
    return blocks[:found].tolist()
