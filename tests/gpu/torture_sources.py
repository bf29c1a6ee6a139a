"""CUDA C++ kernels with unusual exits, with a predictable number of records and stores per launch."""

from __future__ import annotations

import kscope

INCLUDE = ("-I" + kscope.cuda_include(),)

# Blocks, warps and lanes leave one after the other: `first` is recorded by all warps but the second of the blocks that
# are no multiple of three, `second` by those of every third block; out[0] counts the threads in both.
EARLY = r"""
#include <kscope.cuh>
extern "C" __global__ void early(int* out) {
    KSCOPE_KERNEL();
    if (blockIdx.x % 3 == 0) return;
    if (threadIdx.x / 32 == 1) return;
    { KSCOPE_REGION("first"); atomicAdd(out, 1); }
    if (threadIdx.x % 32 >= 16) return;
    if (blockIdx.x % 3 == 1) return;
    KSCOPE_REGION("second");
    atomicAdd(out, 1);
}
"""

# The kernel's own watchdog: after `ns` nanoseconds without a signal it traps, which breaks the context.
TRAPPED = r"""
#include <kscope.cuh>
extern "C" __global__ void trapped(volatile int* sign, long long ns) {
    KSCOPE_KERNEL();
    { KSCOPE_REGION("before"); sign[1 + blockIdx.x] = 1; }
    long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin) :: "memory");
    while (sign[0] == 0) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) :: "memory");
        if (now - begin >= ns) __trap();
    }
}
"""

# One record a warp; out[block] = 7.
SMALL = r"""
#include <kscope.cuh>
extern "C" __global__ void small(int* out) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("small");
    out[blockIdx.x] = 7;
}
"""


def kernel(source: str, name: str):  # type: ignore[no-untyped-def]  # a cupy.RawKernel, which this file does not import
    """A RawKernel of the source."""
    import cupy

    return cupy.RawKernel(source, name, options=INCLUDE)
