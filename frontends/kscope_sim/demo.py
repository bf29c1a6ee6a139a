"""The kernel of `kscope demo` without a GPU: a warp-specialized matmul with one slow block.

One warp fills a ring of three tiles, which three warps multiply, in two waves of blocks: block 5 misses the cache, so
its consumers wait for tiles, its SM begins the second wave late, and the launch lasts as long as it does.
"""

from __future__ import annotations

import kscope

from .launch import launch
from .warp import Warp

TITLE = "a simulated matmul, warp-specialized: 16 blocks of 4 warps in two waves over 8 SMs; block 5 is slow"
BLOCKS, SMS, TILES, STAGES = 16, 8, 12, 3
PRODUCER, CONSUMERS = (0,), (1, 2, 3)
SLOW_BLOCK = 5


def obstacle() -> str:
    """Return "": the simulator runs everywhere."""
    return ""


def run() -> None:
    """Launch the kernel."""
    launch(matmul, grid=BLOCKS, block=128, sms=SMS, roles={"producer": PRODUCER, "consumer": CONSUMERS})


def matmul(warp: Warp) -> None:
    """One tile of the product per block."""
    if warp.role == "producer":
        _load_tiles(warp)
    else:
        _multiply_tiles(warp)


def _load_tiles(warp: Warp) -> None:
    misses = 3 if warp.block[0] == SLOW_BLOCK else 1
    for tile in range(TILES):
        if tile >= STAGES:
            with kscope.region("wait for room"):
                warp.wait(("free", tile - STAGES), arrivals=len(CONSUMERS))
        with kscope.region("load", value=tile):
            warp.work(misses * (700 + warp.random.randrange(120)))
        warp.arrive(("full", tile))


def _multiply_tiles(warp: Warp) -> None:
    with kscope.region("mainloop"):
        for tile in range(TILES):
            with kscope.region("wait for tile"):
                warp.wait(("full", tile))
            with kscope.region("mma", value=tile):
                warp.work(900 + warp.random.randrange(60))
            warp.arrive(("free", tile))
    with kscope.region("epilogue"):
        warp.work(1500 + 40 * warp.index)
