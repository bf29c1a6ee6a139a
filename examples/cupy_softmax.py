"""A softmax in CUDA C++ through CuPy, seen from inside: three passes over a row, and what each costs. The same kernel
as *_softmax.py in other languages, with the same regions.

    python examples/cupy_softmax.py

On a GPU: computes the softmax of 4096 rows, checks it against numpy, writes softmax.kscope, and
prints one line per region. Without one: compiles the kernel for sm_90.
"""

from __future__ import annotations

import cupy
import numpy as np
from shared import show

import kscope

ROWS, COLUMNS, THREADS = 4096, 8192, 256

SOURCE = r"""
#include <kscope.cuh>

// The same operation over all threads of a block; every thread gets the result.
template <class Operation> __device__ float across(float value, float* shared, Operation combine) {
    for (int lane = 16; lane; lane /= 2) value = combine(value, __shfl_xor_sync(~0u, value, lane));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[threadIdx.x % (blockDim.x / 32)];
    for (int lane = blockDim.x / 64; lane; lane /= 2) value = combine(value, __shfl_xor_sync(~0u, value, lane));
    __syncthreads();
    return value;
}

extern "C" __global__ void softmax(const float* in, float* out, int columns) {
    KSCOPE_KERNEL();
    __shared__ float shared[32];
    in += (long long)blockIdx.x * columns;
    out += (long long)blockIdx.x * columns;
    float highest = -3.4e38f, total = 0;
    {
        KSCOPE_REGION("maximum");
        for (int i = threadIdx.x; i < columns; i += blockDim.x) highest = fmaxf(highest, in[i]);
        highest = across(highest, shared, [](float a, float b) { return fmaxf(a, b); });
    }
    {
        KSCOPE_REGION("sum");
        for (int i = threadIdx.x; i < columns; i += blockDim.x) total += __expf(in[i] - highest);
        total = across(total, shared, [](float a, float b) { return a + b; });
    }
    KSCOPE_REGION("write");
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = __expf(in[i] - highest) / total;
}
"""

OPTIONS = ("-I" + kscope.cuda_include(),)

softmax = cupy.RawKernel(SOURCE, "softmax", options=OPTIONS)


def compile_only(arch: int = 90) -> bytes:
    """Without a GPU: compile the kernel, with its regions, for a given target. Returns the cubin."""
    import cupy_gemm

    return cupy_gemm.compile_only(arch, "softmax", SOURCE, OPTIONS)


def run() -> int:
    """Launch once and check the result; returns the number of records."""
    values = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    x = cupy.asarray(values)
    out = cupy.empty_like(x)
    softmax((ROWS,), (THREADS,), (x, out, np.int32(COLUMNS)))
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.get(), powers / powers.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-7)
    return ROWS * THREADS // 32 * 3  # every warp of every block records three regions


def main() -> None:
    if not cupy.is_available():
        compile_only()
        return
    with kscope.profile("softmax.kscope") as prof:
        expected = run()
    show(prof.trace, expected, "softmax")


if __name__ == "__main__":
    main()
