"""The kernel's schedule in the simulator, for machines without a GPU: the grid, the order of the blocks, 132 SMs.

A region takes as long as in a capture of such a kernel on an H200 (tests/golden/attention.kscope): CYCLES has the
tenth and the ninetieth percentile of its first warp.
"""

from __future__ import annotations

from attention import HEADS, LAUNCHES, LENGTH, TILE

import kscope
from kscope_sim import Warp, launch

CYCLES = {
    "load_q": (3471, 3864),
    "load_k": (176, 794),
    "qk": (597, 949),
    "softmax": (838, 961),
    "pv": (98, 215),
    "store": (1024, 1396),
}
BLOCKS = LENGTH // TILE["BM"]


def region(warp: Warp, name: str) -> None:
    with kscope.region(name):
        warp.work(warp.random.randint(*CYCLES[name]))


def attention(warp: Warp, heavy_first: bool) -> None:
    block = warp.block[1]
    if heavy_first:
        block = BLOCKS - 1 - block
    region(warp, "load_q")
    for _ in range((block + 1) * TILE["BM"] // TILE["BN"]):
        for name in ("load_k", "qk", "softmax", "pv"):
            region(warp, name)
    region(warp, "store")


def simulate(heavy_first: bool) -> None:
    """One warp of each block is simulated, because one records."""
    for seed in range(LAUNCHES):
        launch(attention, grid=(HEADS, BLOCKS), block=32, args=(heavy_first,), sms=132, seed=seed)
