"""The kernel of `kscope demo` where there is no GPU: a matmul whose first warp loads and whose others compute.

What lives here: that kernel. What does not: recording and showing it (kscope/cli/demo.py).
"""

from __future__ import annotations

import kscope

from .launch import launch
from .warp import Warp

TITLE = "a simulated matmul, warp-specialised: 32 blocks of 4 warps, 8 SMs"
TILES, STAGES, CONSUMERS = 12, 3, (1, 2, 3)


def obstacle() -> str:
    """Why it cannot run here: it always can."""
    return ""


def run() -> None:
    """Launch the kernel."""
    launch(matmul, grid=32, block=128, sms=8, roles={"producer": (0,), "consumer": CONSUMERS})


def matmul(warp: Warp) -> None:
    """One warp fills a ring of three tiles from memory, three warps multiply what is in it."""
    if warp.role == "producer":
        _load_tiles(warp)
        return
    with kscope.region("mainloop"):
        for tile in range(TILES):
            with kscope.region("wait for tile"):
                warp.wait(("full", tile))
            with kscope.region("dot", value=tile):
                warp.work(900 + warp.random.randrange(60))
            warp.arrive(("free", tile))
    with kscope.region("epilogue"):
        warp.work(1500)


def _load_tiles(warp: Warp) -> None:
    for tile in range(TILES):
        if tile >= STAGES:
            with kscope.region("wait for room"):
                warp.wait(("free", tile - STAGES), arrivals=len(CONSUMERS))
        with kscope.region("load", value=tile):
            # every fourth tile misses the cache
            warp.work((2600 if tile % 4 == 0 else 700) + warp.random.randrange(120))
        warp.arrive(("full", tile))
