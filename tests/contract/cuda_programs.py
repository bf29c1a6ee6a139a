"""The contract's kernels in CUDA C++: one source for every way to compile it.

Each kernel is ``extern "C" __global__ void NAME(int* out, int n)`` and writes to the first 64 ints of `out`, which
are zero before the first launch.
"""

from __future__ import annotations

import re

SOURCE = r"""
#include <kscope.cuh>

__device__ void item(int* out) {
    KSCOPE_REGION("item");
    out[0] = 1;
}

extern "C" __global__ void straight(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION("first");
        out[0] = 1;
    }
    {
        KSCOPE_REGION("second");
        out[1] = 2;
    }
}

extern "C" __global__ void nested(int* out, int n) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("outer");
    {
        KSCOPE_REGION("middle");
        out[0] = 1;
        KSCOPE_REGION("inner");
        out[1] = 2;
    }
    KSCOPE_REGION("inner");
    out[2] = 3;
}

extern "C" __global__ void loop(int* out, int n) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("loop");
    for (int k = 0; k < n; ++k) {
        KSCOPE_REGION_V("step", k);
        out[0] = k;
    }
}

extern "C" __global__ void early_exit(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION("before");
        out[0] = 1;
    }
    if ((int)blockIdx.x >= n) return;
    KSCOPE_REGION("after");
    out[1] = 2;
}

extern "C" __global__ void helper(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION("caller");
        item(out);
    }
    item(out);
}

extern "C" __global__ void itself(int* out, int n) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("item");
    item(out);
    out[1] = 2;
}

extern "C" __global__ void names(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION("two words");
        out[0] = 1;
    }
    {
        KSCOPE_REGION("it's \"quoted\" \\ twice");
        out[1] = 2;
    }
    {
        KSCOPE_REGION("100% {braces} $1 @p; // /* %r1");
        out[2] = 3;
    }
    {
        KSCOPE_REGION("größe 尺寸 🔬");
        out[3] = 4;
    }
    {
        KSCOPE_REGION("long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_name");
        out[4] = 5;
    }
}

extern "C" __global__ void explicit_(int* out, int n) {
    KSCOPE_KERNEL();
    KSCOPE_ENTER("turn");
    for (int k = 0; k < n; ++k) {
        KSCOPE_ENTER_V("pair", k);
        out[0] = k;
        KSCOPE_EXIT("pair");
    }
    KSCOPE_EXIT("turn");
}

extern "C" __global__ void produce(int* out, int n) {
    KSCOPE_KERNEL();
    for (int k = 0; k < n; ++k) {
        KSCOPE_REGION("write");
        out[0] = k;
    }
}

extern "C" __global__ void consume(int* out, int n) {
    KSCOPE_KERNEL();
    KSCOPE_REGION_V("read", n);
    out[0] = n;
}

extern "C" __global__ void coordinates(int* out, int n) {
    KSCOPE_KERNEL();
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    KSCOPE_REGION_V("block", block);
    out[0] = block;
}

extern "C" __global__ void partial(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION("all");
        out[0] = 1;
    }
    if ((int)threadIdx.x >= n) return;
    KSCOPE_REGION("rest");
    out[1] = 2;
}

extern "C" __global__ void strategies(int* out, int n) {
    KSCOPE_KERNEL(kscope::Elected, kscope::Lane0Warp0, kscope::TargetWarp<0, 2>, kscope::AllThreads);
    KSCOPE_REGION("session");
    {
        KSCOPE_REGION("block", kscope::Lane0Warp0);
        out[0] = 1;
    }
    {
        KSCOPE_REGION("warp", kscope::Elected);
        out[1] = 2;
    }
    {
        KSCOPE_REGION("named", kscope::TargetWarp<0, 2>);
        out[2] = 3;
    }
    {
        KSCOPE_REGION("lanes", kscope::AllThreads);
        out[3] = 4;
    }
}

extern "C" __global__ void divergent(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION("all");
        out[0] = 1;
    }
    if ((int)threadIdx.x % 32 >= n) {
        KSCOPE_REGION_V("half", n);
        out[1] = 2;
    }
    KSCOPE_REGION("rest");
    out[2] = 3;
}

extern "C" __global__ void values(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION_V("i32", -7);
        out[0] = 1;
    }
    {
        KSCOPE_REGION_V("u32", 4000000000u);
        out[1] = 2;
    }
    {
        KSCOPE_REGION_V("f32", 1.5f);
        out[2] = 3;
    }
    {
        KSCOPE_REGION_V("run time", (int)blockIdx.x - 1);
        KSCOPE_INSTANT("here");
        KSCOPE_INSTANT_V("here too", (int)blockIdx.x);
    }
    KSCOPE_COUNTER("depth", 3);
    KSCOPE_COUNTER("depth", -1);
    KSCOPE_COUNTER("rate", 0.25f);
}

extern "C" __global__ void wide(int* out, int n) {
    KSCOPE_KERNEL();
    const long long big = static_cast<long long>(n) << 33;
    {
        KSCOPE_REGION_V("i64", big - 1);
        out[0] = n;
    }
    {
        KSCOPE_REGION_V("small", static_cast<long long>(blockIdx.x) - 1);
        out[1] = n;
    }
    {
        KSCOPE_REGION_V("u64", (1ull << 63) + 1);
        out[2] = n;
    }
    KSCOPE_COUNTER("bytes", big);
    KSCOPE_COUNTER("bytes", 3ll);
    KSCOPE_INSTANT_V("constant", -(1ll << 40));
    KSCOPE_BEGIN("key", big);
    KSCOPE_END("key", big);
}

extern "C" __global__ void constants(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION_V("int", -7);
        out[0] = n;
    }
    {
        KSCOPE_REGION_V("float", 1.5f);
        out[1] = n;
    }
    {
        KSCOPE_REGION_V("int8", (signed char)-8);
        out[2] = n;
    }
    {
        KSCOPE_REGION_V("int16", (short)-16);
        out[3] = n;
    }
    {
        KSCOPE_REGION_V("int32", -32);
        out[4] = n;
    }
    {
        KSCOPE_REGION_V("int64", (int)-64);
        out[5] = n;
    }
    {
        KSCOPE_REGION_V("uint8", (unsigned char)8);
        out[6] = n;
    }
    {
        KSCOPE_REGION_V("uint16", (unsigned short)16);
        out[7] = n;
    }
    {
        KSCOPE_REGION_V("uint32", 4000000000u);
        out[8] = n;
    }
    {
        KSCOPE_REGION_V("uint64", 64u);
        out[9] = n;
    }
    {
        KSCOPE_REGION_V("float16", 0.5f);
        out[10] = n;
    }
    {
        KSCOPE_REGION_V("float32", 0.25f);
        out[11] = n;
    }
    {
        KSCOPE_REGION_V("float64", 0.125f);
        out[12] = n;
    }
}

extern "C" __global__ void points(int* out, int n) {
    KSCOPE_KERNEL(kscope::Elected, kscope::Lane0Warp0, kscope::TargetWarp<1>);
    for (int k = 0; k < n; ++k) {
        KSCOPE_INSTANT_V("each", k);
        KSCOPE_INSTANT("once", kscope::Lane0Warp0);
        KSCOPE_COUNTER("left", n - k, kscope::TargetWarp<1>);
        out[0] = k;
    }
}

extern "C" __global__ void chosen(int* out, int n) {
    KSCOPE_KERNEL();
    for (int k = 0; k < n; ++k) {
        {
            KSCOPE_REGION_V_IF("even", k, k % 2 == 0);
            out[0] = k;
        }
        KSCOPE_INSTANT_V_IF("late", k, k >= 3);
        KSCOPE_COUNTER_IF("left", n - k, n - k != 2);
    }
    {
        KSCOPE_REGION_IF("never", false);
        out[1] = 1;
    }
    KSCOPE_REGION_IF("always", true);
    out[2] = 2;
}

extern "C" __global__ void tracks(int* out, int n) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("load" KSCOPE_TRACK("a"));
    KSCOPE_INSTANT("done" KSCOPE_TRACK("a"));
    KSCOPE_ROLE("worker");
    KSCOPE_BEGIN("flight", n);
    {
        KSCOPE_REGION("load" KSCOPE_TRACK("b c"));
        out[0] = 1;
    }
    {
        KSCOPE_REGION("load");
        out[1] = 2;
    }
    KSCOPE_END("flight", n);
}

extern "C" __global__ void words(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION_V("warp", kscope::warp_id());
        KSCOPE_INSTANT_V("lane", kscope::lane_id());
        out[0] = 1;
    }
    KSCOPE_INSTANT_V("block", kscope::block_id());
    KSCOPE_COUNTER("sm", kscope::smid());
}

extern "C" __global__ void pinned(int* out, int n) {
    KSCOPE_KERNEL();
    int product;
    {
        KSCOPE_REGION("product");
        product = n * 3;
        KSCOPE_PIN(product);
    }
    out[0] = product;
}

extern "C" __global__ void roles(int* out, int n) {
    KSCOPE_KERNEL();
    // Warps 0 to 3 wait for what warps 4 to 7 load: every producer's lane 0 arrives once in each round.
    int* full = out + 8 + 8 * blockIdx.x;
    bool producer = threadIdx.x >= 128;
    for (int k = 0; k < n; ++k) {
        if (producer) {
            {
                KSCOPE_REGION_V("load", k);
                out[1] = k;
            }
            if (threadIdx.x % 32 == 0) atomicAdd(&full[k], 1);
        } else {
            {
                KSCOPE_REGION("wait");
                while (*(volatile int*)&full[k] < 4) {
                }
            }
            KSCOPE_REGION_V("mma", k);
            out[0] = k;
        }
    }
}

extern "C" __global__ void unmarked(int* out, int n) {
    out[0] = n;
}
"""

LOWERED = r"""
extern "C" __global__ void first(int* out, int n) {
    KSCOPE_KERNEL();
    {
        KSCOPE_REGION("all");
        out[0] = 1;
    }
    if ((int)threadIdx.x % 32 >= n) {
        KSCOPE_REGION_V("half", n, kscope::ElectedAnyLane);
        out[1] = 2;
    }
    KSCOPE_REGION("rest");
    out[2] = 3;
}
"""
"""Programs that the header alone cannot record."""

REFUSED = {
    "forgotten": """
extern "C" __global__ void forgotten(int* out, int n) {
    KSCOPE_KERNEL();
    if (n) KSCOPE_REGION("load");  // refused
    out[0] = n;
}
""",
    "boolean": """
extern "C" __global__ void boolean(int* out, int n) {
    KSCOPE_KERNEL();
    KSCOPE_REGION_V("bool", true);  // refused
    out[0] = n;
}
""",
}
"""Kernels that every frontend refuses. The other mistakes in Python have no counterpart in a macro."""

FUNCTIONS = {name.rstrip("_"): name for name in re.findall(r"__global__ void (\w+)\(", SOURCE + LOWERED)}
"""Kernels by the contract's names; `explicit` is a word of C++."""


def source_of(kernel: str) -> str:
    """A translation unit with one kernel, by the contract's name, and what it calls."""
    if kernel in REFUSED:
        return SOURCE.partition('extern "C"')[0] + REFUSED[kernel]
    head, *bodies = re.split(r"(?=^extern \"C\")", SOURCE + LOWERED, flags=re.M)
    expected = re.compile(rf"__global__ void {FUNCTIONS[kernel]}\(")
    return head + next(body for body in bodies if expected.search(body))
