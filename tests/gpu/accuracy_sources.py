"""CUDA C++ kernels with known truths: what their regions last, and what happens first, the kernels themselves know.

What lives here: texts and RawKernels. What does not: expectations (test_accuracy.py).
"""

from __future__ import annotations

import cupy

import kscope

INCLUDE = ("-I" + kscope.cuda_include(),)
HEAD = r"""
#include <kscope.cuh>
__device__ __forceinline__ long long cycles() {
    long long now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now) :: "memory");
    return now;
}
__device__ __forceinline__ long long timer() {
    long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) :: "memory");
    return now;
}
// out[0] <= what a region must say <= out[1]: the kernel's own readings within the region, and around it
#define KNOWN(NAME, READ, BODY) { \
    long long around = READ(), inner; \
    { KSCOPE_REGION(NAME); inner = READ(); BODY; inner = READ() - inner; } \
    around = READ() - around; \
    if (threadIdx.x == 0) { *out++ = inner; *out++ = around; } }
"""

# Regions of `length` cycles, `rounds` of them: own readings of the clock, inside and around.
SPIN = (
    HEAD
    + r"""
extern "C" __global__ void spin(long long* out, int length, int rounds) {
    KSCOPE_KERNEL();
    out += 2LL * rounds * blockIdx.x;
    for (int i = 0; i < rounds; ++i)
        KNOWN("spin", cycles, for (long long begin = cycles(); cycles() - begin < length;));
}
"""
)

# Regions that sleep, and regions that wait for the global timer to go on by `ns`: own readings of that timer.
SLEEP = (
    HEAD
    + r"""
extern "C" __global__ void asleep(long long* out, int ns, int rounds) {
    KSCOPE_KERNEL();
    out += 4LL * rounds * blockIdx.x;
    for (int i = 0; i < rounds; ++i) {
        KNOWN("nanosleep", timer, for (int left = ns; left > 0; left -= 1000) __nanosleep(1000));
        KNOWN("timer", timer, for (long long begin = timer(); timer() - begin < ns;));
    }
}
"""
)

# FMAs that depend on each other, 256 and 1024 of them: four cycles each on every GPU from Volta on.
CHAIN = (
    HEAD
    + r"""
template <int COUNT> __device__ __forceinline__ float chain(float x) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("fma.rn.f32 %0, %0, 0f3F800001, 0f3A83126F;" : "+f"(x));
    return x;
}
extern "C" __global__ void chains(float* out, int rounds) {
    KSCOPE_KERNEL();
    float x = threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < rounds; ++i) {
        { KSCOPE_REGION("256"); x = chain<256>(x); }
        { KSCOPE_REGION("1024"); x = chain<1024>(x); }
    }
    out[threadIdx.x] = x;
}
"""
)

# Warp 0 works, the others wait for it at a barrier: what they do next begins at once.
BARRIER = (
    HEAD
    + r"""
extern "C" __global__ void met(int* out, int rounds) {
    KSCOPE_KERNEL();
    for (int i = 0; i < rounds; ++i) {
        if (threadIdx.x / 32 == i % (blockDim.x / 32))
            for (long long begin = cycles(); cycles() - begin < 2000;);
        __syncthreads();
        KSCOPE_REGION_V("after", i);
        out[threadIdx.x] = i;
    }
}
"""
)

# Block 0 calls every other block in turn, `rounds` times, and each answers: one flag each, 128 bytes apart.
PING = (
    HEAD
    + r"""
__device__ __forceinline__ void tell(int* flag, int what) {
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(flag), "r"(what) : "memory");
}
__device__ __forceinline__ void hear(int* flag, int what) {
    if (threadIdx.x == 0) {  // one lane alone: the flag goes on as soon as it was heard
        int now;
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(flag) : "memory");
        while (now != what);
    }
    __syncwarp();
}
extern "C" __global__ void ping(int* flags, int rounds) {
    KSCOPE_KERNEL();
    const int first = blockIdx.x == 0 ? 1 : blockIdx.x, last = blockIdx.x == 0 ? gridDim.x : blockIdx.x + 1;
    for (int other = first; other < last; ++other)
        for (int i = 0; i < rounds; ++i) {
            const int value = other * rounds + i;
            if (blockIdx.x == 0) {
                KSCOPE_INSTANT_V("call", value);
                tell(flags + 32 * other, 2 * i + 1);
                hear(flags + 32 * other, 2 * i + 2);
                KSCOPE_INSTANT_V("answered", value);
            } else {
                hear(flags + 32 * other, 2 * i + 1);
                KSCOPE_INSTANT_V("heard", value);
                KSCOPE_INSTANT_V("answer", value);
                tell(flags + 32 * other, 2 * i + 2);
            }
        }
}
"""
)

NAMES = {"spin": SPIN, "asleep": SLEEP, "chains": CHAIN, "met": BARRIER, "ping": PING}


def kernel(name: str) -> cupy.RawKernel:
    """A fresh one, so that each test compiles it for its own session."""
    return cupy.RawKernel(NAMES[name], name, options=INCLUDE)
