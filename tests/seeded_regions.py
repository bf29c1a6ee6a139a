"""CUDA C++ kernels whose regions do not contain their work: the compiler moved it."""

from __future__ import annotations

DRIFTED = r"""
#include <kscope.cuh>
// Products are written in "products", and needed in "rest" alone: the compiler computes them there.
extern "C" __global__ void drifted(const int* chain, float* out, int turns) {
    KSCOPE_KERNEL();
    int p = threadIdx.x;
    for (int i = 0; i < turns; i++) {
        float b = p;
        {
            KSCOPE_REGION("products");
            asm volatile("ld.global.u32 %0, [%1];" : "=r"(p) : "l"(chain + p) : "memory");
            for (int k = 0; k < 64; k++) b = b * 1.0001f + 0.5f;
        }
        {
            KSCOPE_REGION("rest");
            asm volatile("ld.global.u32 %0, [%1];" : "=r"(p) : "l"(chain + p) : "memory");
            if (p & 1) out[blockIdx.x * blockDim.x + threadIdx.x] = b;
        }
    }
}
"""
EMPTIED = r"""
#include <kscope.cuh>
// The products are the same in each iteration: the compiler computes them once, in front of the loop.
extern "C" __global__ void emptied(const int* chain, float* out, int turns) {
    KSCOPE_KERNEL();
    int p = threadIdx.x;
    float a = p;
    for (int i = 0; i < turns; i++) {
        float b = a;
        {
            KSCOPE_REGION("products");
            for (int k = 0; k < 64; k++) b = b * 1.0001f + 0.5f;
        }
        {
            KSCOPE_REGION("load");
            asm volatile("ld.global.u32 %0, [%1];" : "=r"(p) : "l"(chain + p) : "memory");
        }
        out[blockIdx.x * blockDim.x + threadIdx.x] = b + p;
    }
}
"""
