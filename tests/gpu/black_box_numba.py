"""The kernel of black_box_program.py in Numba, which has no trap: that fault is an invalid address as well."""

from __future__ import annotations

import numpy as np
from numba import cuda

import kscope
from kscope_numba import teach

teach()  # these tests run without installing kscope


@cuda.jit
def pipeline(flags, done, out, mode):
    warp, lane = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
    if cuda.blockIdx.x == 0:
        if warp == 0:
            for i in range(32):
                if i > 0:
                    with kscope.region("wait_empty", value=i):
                        if lane == 0:
                            while cuda.atomic.add(done, i - 1, 0) < 4 * (cuda.gridDim.x - 1):
                                pass
                        cuda.syncwarp()
                with kscope.region("load", value=i):
                    if lane == 0 and not (mode == 2 and i == 28):
                        cuda.atomic.exch(flags, i, 1)
                    cuda.syncwarp()
    else:
        culprit = cuda.blockIdx.x == 22 and warp == 1
        for i in range(32):
            with kscope.region("wait_full", value=i):
                if lane == 0:
                    while cuda.atomic.add(flags, i, 0) == 0:
                        pass
                cuda.syncwarp()
            with kscope.region("multiply", value=i):
                out[cuda.blockIdx.x * 128 + cuda.threadIdx.x] += i
            if culprit and i == 22 and mode >= 3:
                with kscope.region("poke", value=i, open=True):
                    if out[mode * (1 << 38) + lane] == 4711:
                        out[0] = 1
            if lane == 0 and not (culprit and i == 28 and mode == 1):
                cuda.atomic.add(done, i, 1)


def launch(mode, blocks, slots):
    flags, done, out = (cuda.to_device(np.zeros(size, np.int32)) for size in (slots, slots, blocks * 128))
    pipeline[blocks, 128](flags, done, out, mode)
