"""Kernels for tests/gpu/test_triton.py: autotuned, taken apart by torch.compile, warp-specialized, and with helpers."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import kscope
from triton_kscope import region

CONFIGS = [triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=4)]


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with kscope.region("double"):
        tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)


@triton.jit
def half(x):
    with region("half"):
        y = x * 0.5
    return y


@triton.jit
def halved(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with region("load", value=BLOCK):
        y = tl.load(x + at)
    with region("store"):
        tl.store(out + at, half(y))


@triton.jit
def values(out, n, f):
    with kscope.region("signed", value=tl.program_id(0) - 1):
        tl.store(out, n)
    with kscope.region("float", value=f * 0.5):
        tl.store(out + 1, n)
    kscope.counter("count", n)


@gluon.jit
def consumer(out, n):
    for i in range(n):
        with kscope.region("consume", value=i):
            gl.atomic_add(out, 1)


@gluon.jit
def producer(out, n):
    with kscope.region("produce"):
        for i in range(n):
            with kscope.region("item", value=i):
                gl.atomic_add(out + 1, 1)


@gluon.jit
def specialized(out, n):
    gl.warp_specialize([(consumer, (out, n)), (producer, (out, n))], [2], [32])


@triton.jit
def specialized_by_triton(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, (M, K), (K, 1), (BM, BK))
    b_desc = tl.make_tensor_descriptor(b_ptr, (N, K), (K, 1), (BN, BK))
    c_desc = tl.make_tensor_descriptor(c_ptr, (M, N), (N, 1), (BM, BN))
    at_m, at_n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K // BK, warp_specialize=True):
        with kscope.region("load"):
            a = a_desc.load((at_m, k * BK))
            b = b_desc.load((at_n, k * BK))
        with kscope.region("dot"):
            total = tl.dot(a, b.T, total)
    c_desc.store((at_m, at_n), total.to(tl.float16))
