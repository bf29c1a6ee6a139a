"""The kernel of faults_program.py in Numba, which has no trap: that fault is an invalid address in `check`."""

from __future__ import annotations

import numpy as np
from numba import cuda

import kscope
from kscope_numba import teach

teach()  # the bench runs without installing kscope
BLOCKS, SLOTS = 64, 32


@cuda.jit
def pipeline(flags, done, out, mode, block, slot, which):
    warp, lane = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
    row = cuda.blockIdx.x * 32
    here = cuda.blockIdx.x == block
    if warp == 0:
        kscope.role("producer")
        for i in range(32):
            if i > 0:
                with kscope.region("wait_empty", value=i):
                    if lane == 0:
                        while cuda.atomic.add(done, row + i - 1, 0) < 3:
                            pass
                    cuda.syncwarp()
            with kscope.region("load", value=i):
                if lane == 0 and not (here and mode == 2 and i == slot):
                    cuda.atomic.exch(flags, row + i, 1)
                cuda.syncwarp()
    else:
        kscope.role("consumer")
        culprit = here and warp == which
        for i in range(32):
            with kscope.region("wait_full", value=i):
                if lane == 0:
                    while cuda.atomic.add(flags, row + i, 0) == 0:
                        pass
                cuda.syncwarp()
            with kscope.region("multiply", value=i):
                out[cuda.blockIdx.x * 128 + cuda.threadIdx.x] += i
            if culprit and i == slot and mode == 3:
                with kscope.region("check", value=i, open=True):
                    if out[mode * (1 << 38) + lane] == 4711:
                        out[0] = 1
            if culprit and i == slot and mode == 4:
                with kscope.region("poke", value=i, open=True):
                    if out[mode * (1 << 38) + lane] == 4711:
                        out[0] = 1
            if lane == 0 and not (culprit and i == slot and mode == 1):
                cuda.atomic.add(done, row + i, 1)


def launch(mode, block, slot, which):
    sizes = BLOCKS * SLOTS, BLOCKS * SLOTS, BLOCKS * 128
    flags, done, out = (cuda.to_device(np.zeros(size, np.int32)) for size in sizes)
    pipeline[BLOCKS, 128](flags, done, out, mode, block, slot, which)
