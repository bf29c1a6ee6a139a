"""Asynchronous copies in a pipeline of four stages, in CUDA C++ through CuPy: does the loop still wait for memory?

    python examples/cupy_pipeline.py

On a GPU (sm_80 or later): sums a polynomial of 35 million numbers, checks the sum, writes
pipeline.kscope, and prints one line per region. Without one: compiles the kernel for sm_90.
"""

from __future__ import annotations

import cupy
import numpy as np

import kscope

THREADS, STAGES, BLOCKS, STEPS = 128, 4, 528, 128
COUNT = BLOCKS * STEPS * THREADS * 4

SOURCE = r"""
#include <kscope.cuh>

// 16 bytes from global to shared memory, by the copy engine of the SM
__device__ void copy(float4* to, const float4* from) {
    unsigned int address = (unsigned int)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(address), "l"(from) : "memory");
}

extern "C" __global__ void pipeline(const float4* in, double* sum, int steps) {
    KSCOPE_KERNEL();
    __shared__ float4 stage[STAGES][THREADS];
    in += (long long)blockIdx.x * steps * THREADS + threadIdx.x;
    double total = 0;
    for (int k = 0; k < STAGES - 1; ++k) {
        copy(&stage[k][threadIdx.x], in + k * THREADS);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int k = 0; k < steps; ++k) {
        {
            KSCOPE_REGION_V("wait", k);
            asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
        }
        {
            KSCOPE_REGION("work");
            float4 x = stage[k % STAGES][threadIdx.x];
            for (int i = 0; i < 4; ++i) {
                float v = i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
                total += ((0.5f * v + 0.25f) * v - 0.125f) * v;
            }
        }
        KSCOPE_REGION("ask");
        int next = k + STAGES - 1;
        if (next < steps) copy(&stage[next % STAGES][threadIdx.x], in + next * THREADS);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    KSCOPE_REGION("add");
    atomicAdd(sum, total);
}
"""
OPTIONS = (f"-DTHREADS={THREADS}", f"-DSTAGES={STAGES}", "-I" + kscope.cuda_include())

pipeline = cupy.RawKernel(SOURCE, "pipeline", options=OPTIONS)


def compile_only(arch: int = 90) -> bytes:
    """Without a GPU: compile the kernel, with its regions, for a given target. Returns the cubin."""
    import cupy_gemm

    return cupy_gemm.compile_only(arch, "pipeline", SOURCE, OPTIONS)


def main() -> None:
    if not cupy.is_available():
        compile_only()
        return
    values = np.random.default_rng(0).random(COUNT, dtype=np.float32)
    x, total = cupy.asarray(values), cupy.zeros(1, np.float64)
    with kscope.profile("pipeline.kscope", records=512) as prof:
        pipeline((BLOCKS,), (THREADS,), (x, total, np.int32(STEPS)))
    polynomial = ((0.5 * values + 0.25) * values - 0.125) * values
    np.testing.assert_allclose(total.get()[0], polynomial.sum(dtype=np.float64), rtol=1e-5)
    # 4 warps of every block record the end, and three regions in each step
    records = BLOCKS * THREADS // 32 * (1 + 3 * STEPS)
    assert len(prof.trace) == records, f"{len(prof.trace)} records, expected {records}"
    print(prof.trace.summary())
    print("pipeline.kscope: kscope export pipeline.kscope -o pipeline.pftrace, then open it in ui.perfetto.dev")


if __name__ == "__main__":
    main()
