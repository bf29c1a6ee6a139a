"""CUDA C++ kernels that measure their own regions' durations and order."""

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

# FMAs that depend on each other, 256 and 1024 of them: each is issued four cycles after the one before it, on every GPU
# from Volta on. The clock after them is read when the last one is issued: nothing there waits for its result.
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

# The global timer around both marks of a region, by every warp: out[0] <= its start <= out[1] and a tick, out[2] <= its
# end <= out[3] and a tick.
NOW = (
    HEAD
    + r"""
extern "C" __global__ void now(long long* out, int pause, int rounds) {
    KSCOPE_KERNEL();
    out += 4LL * rounds * ((blockIdx.x * blockDim.x + threadIdx.x) / 32);
    for (int i = 0; i < rounds; ++i) {
        long long before = timer(), begun, ended;
        {
            KSCOPE_REGION_V("now", i);
            begun = timer();
            for (long long begin = cycles(); cycles() - begin < pause;);
            ended = timer();
        }
        const long long behind = timer();
        if (threadIdx.x % 32 == 0) { *out++ = before; *out++ = begun; *out++ = ended; *out++ = behind; }
    }
}
"""
)

# One warp works, another one each round, and the others wait for it at a barrier: all go on at once.
BARRIER = (
    HEAD
    + r"""
extern "C" __global__ void met(int* out, int rounds) {
    KSCOPE_KERNEL();
    for (int i = 0; i < rounds; ++i) {
        if (threadIdx.x / 32 == i % (blockDim.x / 32))
            for (long long begin = cycles(); cycles() - begin < 2000;);
        { KSCOPE_REGION_V("meet", i); __syncthreads(); }
        KSCOPE_INSTANT_V("after", i);
        out[threadIdx.x] = i;
    }
}
"""
)

# Block 0 calls blocks [first, last) in turn, `rounds` times each, and each answers. A flag goes there and back through
# one of FLAGS lines of memory, so both ways are equally long; both sides write down their clocks. No fence is
# waited for, and pauses that vary keep the two from looking at the flag in step.
FLAGS = 4
PING = (
    HEAD
    + rf"""
#define FLAGS {FLAGS}
"""
    + r"""
__device__ __forceinline__ void send(int* flag, int what) {
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" :: "l"(flag), "r"(what) : "memory");
}
__device__ __forceinline__ void receive(int* flag, int what) {
    int now;
    do asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(flag) : "memory");
    while (now != what);
}
__device__ __forceinline__ void pause(unsigned seed) {
    const int length = 300 + (seed * 2654435761u >> 23);  // 300 to 811 cycles
    for (long long begin = cycles(); cycles() - begin < length;);
}
// out[other][round] = called, received, answered, received again: clocks of block 0, other, other, block 0
extern "C" __global__ void ping(int* flags, long long* out, int first, int last, int rounds) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("all");
    for (int other = first; other < last; ++other) {
        if (threadIdx.x != 0 || (blockIdx.x != 0 && blockIdx.x != other)) continue;
        for (int i = 0; i < rounds; ++i) {
            int* flag = flags + 32 * (FLAGS * other + i % FLAGS);
            long long* clocks = out + 4LL * (rounds * other + i);
            const int call = i / FLAGS * 2 + 1;
            if (blockIdx.x == 0) {
                pause(2 * (rounds * other + i));
                const long long called = cycles();
                send(flag, call);
                receive(flag, call + 1);
                clocks[3] = cycles();
                clocks[0] = called;
            } else {
                receive(flag, call);
                const long long received = cycles();
                pause(2 * (rounds * other + i) + 1);
                const long long answered = cycles();
                send(flag, call + 1);
                clocks[1] = received;
                clocks[2] = answered;
            }
        }
    }
}
"""
)

NAMES = {"spin": SPIN, "asleep": SLEEP, "chains": CHAIN, "now": NOW, "met": BARRIER, "ping": PING}


def kernel(name: str) -> cupy.RawKernel:
    """A fresh one, so that each test compiles it for its own session."""
    return cupy.RawKernel(NAMES[name], name, options=INCLUDE)
