"""Kernels of the device tests, with a predictable number of records per launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import kscope

RECORDS = 4
"""Records of a warp in `four`."""
ROW = 1024
"""Numbers in a row of `summed`."""


@triton.jit
def four(out):
    """Four regions one after the other; out[block] = 4."""
    block = tl.program_id(0).to(tl.int64)
    with kscope.region("one"):
        tl.store(out + block, 1)
    with kscope.region("two"):
        tl.store(out + block, 2)
    with kscope.region("three"):
        tl.store(out + block, 3)
    with kscope.region("four"):
        tl.store(out + block, 4)


@triton.jit
def loop(out, n):
    """n + 1 records a warp: one around a loop, one in each iteration; out[block] = n - 1."""
    block = tl.program_id(0)
    with kscope.region("loop"):
        for k in range(n):
            with kscope.region("step", value=k):
                tl.store(out + block, k)


@triton.jit
def other(out):
    """One record a warp, in a kernel of another name."""
    with kscope.region("other"):
        tl.store(out + tl.program_id(0), 7)


@triton.jit
def doubled(a, out, BLOCK: tl.constexpr):
    """Two records a warp; out[i] = 2 a[i]."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with kscope.region("load"):
        x = tl.load(a + at)
    with kscope.region("store"):
        tl.store(out + at, x * 2)


@triton.jit
def summed(x, out, rows, SIZE: tl.constexpr = 1024):
    """rows + 1 records a warp: one around all, one for each sum of a row through shared memory and barriers;
    out[block] = the sum of its rows."""
    block = tl.program_id(0)
    with kscope.region("rows"):
        total = 0.0
        for row in range(rows):
            with kscope.region("sum", value=row):
                total += tl.sum(tl.load(x + (block * rows + row) * SIZE + tl.arange(0, SIZE)))
        tl.store(out + block, total)


@triton.jit
def outside(out, far):
    """Writes where nothing is: the context breaks."""
    with kscope.region("before"):
        tl.store(out + tl.program_id(0), 1)
    with kscope.region("outside"):
        tl.store(out + tl.program_id(0) + far, 1)


@triton.jit
def trapping(out):
    """Traps: the context breaks."""
    with kscope.region("before"):
        tl.store(out + tl.program_id(0), 1)
    tl.inline_asm_elementwise("trap; mov.b32 $0, $1;", "=r,r", [tl.program_id(0)], tl.int32, False, 1)


@triton.jit
def asserting(out):
    """Fails an assertion: the context breaks."""
    with kscope.region("before"):
        tl.store(out + tl.program_id(0), 1)
    tl.device_assert(tl.load(out) > 5, "on purpose")


@triton.jit
def hang(out, flag):
    """Finish one region, then wait forever for a flag."""
    with kscope.region("before"):
        tl.store(out + tl.program_id(0), 1)
    while tl.load(flag, volatile=True) == 0:
        tl.store(out + tl.program_id(0), 2)


def ints(count: int) -> torch.Tensor:
    """Zeros for a kernel to write to."""
    return torch.zeros(count, device="cuda", dtype=torch.int32)
