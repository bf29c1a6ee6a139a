"""How many stages does a pipeline need? An experiment without a GPU.

    python examples/sim_pipeline.py

A warp-specialized kernel: one warp loads tiles into a ring of buffers, three warps compute on them. The
kernel is a Python function that kscope_sim runs once per warp; marks, session and trace
are those of a GPU kernel. Checks the result and writes pipeline.kscope.
"""

from __future__ import annotations

import numpy as np

import kscope
from kscope_sim import Warp, launch

TILES, BLOCKS = 16, 8
ROLES = {"loader": (0,), "worker": (1, 2, 3)}
LOAD_CYCLES, COMPUTE_CYCLES = 900, 800


def pipeline(warp: Warp, stages: int) -> None:
    """Called once per warp. arrive() counts an event; wait() returns when the count is reached."""
    if warp.role == "loader":
        for tile in range(TILES):
            # A buffer is free again when all three workers are done with its tile.
            if tile >= stages:
                with kscope.region("wait for room"):
                    warp.wait(("free", tile - stages), arrivals=3)
            with kscope.region("load", value=tile):
                # Memory is sometimes slow, which is why there are several buffers.
                warp.work(LOAD_CYCLES // 2 + warp.random.randrange(LOAD_CYCLES))
            warp.arrive(("full", tile))
    else:
        for tile in range(TILES):
            with kscope.region("wait for tile"):
                warp.wait(("full", tile))
            with kscope.region("compute", value=tile):
                warp.work(COMPUTE_CYCLES)
            warp.arrive(("free", tile))


def cycles(trace: kscope.Trace, region: str) -> int:
    """Cycles that all warps together spent in a region."""
    return int(trace.filter(region=region).dur_cycles.sum())


def main() -> None:
    waiting = {}
    for stages in (1, 2, 4):
        with kscope.profile("pipeline.kscope") as prof:
            launch(pipeline, grid=BLOCKS, block=128, args=(stages,), sms=4, roles=ROLES)
        trace = prof.trace
        # 3 workers: two records per tile. The loader: one per tile, and one more when it waits for room.
        assert len(trace) == BLOCKS * (3 * 2 * TILES + 2 * TILES - stages), len(trace)
        # Nothing was dropped, and a span of work lasts as long as the work and one reading of the clock.
        assert np.all(trace.filter(region="compute").dur_cycles == COMPUTE_CYCLES + 7)
        waiting[stages] = cycles(trace, "wait for tile") / (cycles(trace, "wait for tile") + cycles(trace, "compute"))
        print(f"{stages} stages: the workers wait {waiting[stages]:.0%} of their time")
    assert waiting[1] > waiting[2] > waiting[4]
    print(f"\n{trace.summary()}")


if __name__ == "__main__":
    main()
