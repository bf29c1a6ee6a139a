"""CUDA C++ kernels of the CuPy device tests, with a predictable number of records per launch."""

from __future__ import annotations

import cupy

import kscope

RECORDS = 4
"""Records of a warp in `four`."""
INCLUDE = ("-I" + kscope.cuda_include(),)

FOUR = r"""
#include <kscope.cuh>
// Four regions one after the other; out[block] = 4.
extern "C" __global__ void four(int* out) {
    KSCOPE_KERNEL();
    out += blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    { KSCOPE_REGION("one"); *out = 1; }
    { KSCOPE_REGION("two"); *out = 2; }
    { KSCOPE_REGION("three"); *out = 3; }
    KSCOPE_REGION("four");
    *out = 4;
}
"""

# Two records a warp in each of n rounds, and one around them; out[block] = the sum of 1 .. threads * n.
SUMMED = r"""
#include <kscope.cuh>
extern "C" __global__ void summed(const int* in, int* out, int n) {
    KSCOPE_KERNEL();
    __shared__ int shared[256];
    int total = 0;
    KSCOPE_REGION("all");
    for (int k = 0; k < n; ++k) {
        {
            KSCOPE_REGION_V("load", k);
            shared[threadIdx.x] = in[k * blockDim.x + threadIdx.x];
            __syncthreads();
        }
        KSCOPE_REGION("add");
        if (threadIdx.x == 0)
            for (int i = 0; i < blockDim.x; ++i) total += shared[i];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}
"""

# out[thread] = table[thread % 4], a constant that the host writes.
TABLE = r"""
#include <kscope.cuh>
__constant__ int table[4];
extern "C" __global__ void looked_up(int* out) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("look up");
    out[threadIdx.x] = table[threadIdx.x % 4];
}
"""

# out[0] = the last int of n bytes of dynamic shared memory.
SHARED = r"""
#include <kscope.cuh>
extern "C" __global__ void spread(int* out, int n) {
    KSCOPE_KERNEL();
    extern __shared__ int shared[];
    KSCOPE_REGION("spread");
    for (int i = threadIdx.x; i < n / 4; i += blockDim.x) shared[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = shared[n / 4 - 1];
}
"""

TEMPLATE = r"""
#include <kscope.cuh>
template <class T, int N> __global__ void filled(T* out) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("fill");
    out[blockIdx.x * blockDim.x + threadIdx.x] = T(N);
}
"""

four = cupy.RawKernel(FOUR, "four", options=INCLUDE)
summed = cupy.RawKernel(SUMMED, "summed", options=INCLUDE)


def fresh(source: str, name: str) -> cupy.RawKernel:
    """A kernel that was never launched."""
    fresh.count += 1  # type: ignore[attr-defined]  # counts calls
    return cupy.RawKernel(source, name, options=(f"-DFRESH={fresh.count}", *INCLUDE))  # type: ignore[attr-defined]


fresh.count = 0  # type: ignore[attr-defined]


def ints(count: int) -> cupy.ndarray:
    """Zeros for a kernel to write to."""
    return cupy.zeros(count, cupy.int32)


WIDE = r"""
#include <kscope.cuh>

extern "C" __global__ void wide(const float* x, float* out, int turns) {
    float v[COUNT];
    for (int i = 0; i < COUNT; ++i) v[i] = x[i];
    for (int turn = 0; turn < turns; ++turn) {
        KSCOPE_REGION_V("turn", turn);
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) v[i] = v[i] * v[(i + 1) % COUNT] + x[turn];
    }
    float total = 0;
    for (int i = 0; i < COUNT; ++i) total += v[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
"""
"""With COUNT = 52: 58 registers without its region, 70 with it."""
