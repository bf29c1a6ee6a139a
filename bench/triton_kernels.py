"""The kernels of on_triton.py, with kscope's regions; proton_twins.py makes those with Proton's scopes.

The matmul and the attention with regions are those of the examples, inlined. TAG changes nothing but the cache key:
one compilation for each way of recording.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton_attention import attention as attention_of_the_examples
from triton_matmul import matmul as matmul_of_the_examples

import kscope


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TAG: tl.constexpr):
    matmul_of_the_examples(a, b, c, M, N, K, BM, BN, BK)


@triton.jit
def persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TAG: tl.constexpr):
    across = N // BN
    for tile in range(tl.program_id(0), (M // BM) * across, tl.num_programs(0)):
        with kscope.region("tile", value=tile):
            rows = (tile // across) * BM + tl.arange(0, BM)
            columns = (tile % across) * BN + tl.arange(0, BN)
            inner = tl.arange(0, BK)
            total = tl.zeros((BM, BN), tl.float32)
            for k in range(0, K, BK):
                with kscope.region("load"):
                    x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
                    y = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
                with kscope.region("dot"):
                    total = tl.dot(x, y, total)
            with kscope.region("epilogue"):
                tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@triton.jit
def attention(q, k, v, o, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TAG: tl.constexpr):
    attention_of_the_examples(q, k, v, o, S, scale, D, BM, BN, False)


@triton.jit
def layernorm(x, weight, bias, y, N, eps, BLOCK: tl.constexpr, TAG: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    with kscope.region("mean"):
        for start in range(0, N, BLOCK):
            total += tl.load(x + row * N + start + at).to(tl.float32)
        mean = tl.sum(total, 0) / N
    square = tl.zeros((BLOCK,), tl.float32)
    with kscope.region("variance"):
        for start in range(0, N, BLOCK):
            part = tl.load(x + row * N + start + at).to(tl.float32) - mean
            square += part * part
        scale = 1 / tl.sqrt(tl.sum(square, 0) / N + eps)
    for start in range(0, N, BLOCK):
        with kscope.region("write"):
            part = (tl.load(x + row * N + start + at).to(tl.float32) - mean) * scale
            tl.store(y + row * N + start + at, part * tl.load(weight + start + at) + tl.load(bias + start + at))


@triton.jit
def softmax(x, y, N, BLOCK: tl.constexpr, TAG: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    with kscope.region("load"):
        values = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))
    with kscope.region("reduce"):
        powers = tl.exp(values - tl.max(values, 0))
        total = tl.sum(powers, 0)
    with kscope.region("store"):
        tl.store(y + row * N + at, powers / total, mask=at < N)


@triton.jit
def splitk(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TAG: tl.constexpr):
    """c += a @ b: each block along the grid's third axis sums a part of K."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    part = K // tl.num_programs(2)
    inner = tl.program_id(2) * part + tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, part, BK):
        with kscope.region("load"):
            x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
            y = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        with kscope.region("dot"):
            total = tl.dot(x, y, total)
    with kscope.region("reduce"):
        tl.atomic_add(c + rows[:, None] * N + columns[None, :], total, sem="relaxed")


@triton.jit
def backward(
    q, k, v, do, dk, dv, maxima, deltas, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TAG: tl.constexpr,
):  # fmt: skip
    """dk and dv of BN keys of a head. maxima: log2 of each query's sum of powers; deltas: row sums of o * do."""
    head = tl.program_id(1) * S
    columns = head + tl.program_id(0) * BN + tl.arange(0, BN)
    depth = tl.arange(0, D)
    tile = columns[:, None] * D + depth[None, :]
    keys = tl.load(k + tile)
    values = tl.load(v + tile)
    key_sum = tl.zeros((BN, D), tl.float32)
    value_sum = tl.zeros((BN, D), tl.float32)
    for m in range(0, S, BM):
        rows = head + m + tl.arange(0, BM)
        at = rows[:, None] * D + depth[None, :]
        with kscope.region("load"):
            query = tl.load(q + at)
            gradient = tl.load(do + at)
            maximum = tl.load(maxima + rows)
            delta = tl.load(deltas + rows)
        with kscope.region("scores"):
            powers = tl.exp2(tl.dot(keys, tl.trans(query)) * scale - maximum[None, :])
        with kscope.region("dv"):
            value_sum = tl.dot(powers.to(tl.float16), gradient, value_sum)
        with kscope.region("ds"):
            slope = powers * (tl.dot(values, tl.trans(gradient)) - delta[None, :])
        with kscope.region("dk"):
            key_sum = tl.dot(slope.to(tl.float16), query, key_sum)
    with kscope.region("store"):
        tl.store(dv + tile, value_sum.to(tl.float16))
        tl.store(dk + tile, (key_sum * (scale * 0.6931471805599453)).to(tl.float16))


@triton.jit
def grouped(
    x, w, y, experts, firsts, ends, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TAG: tl.constexpr,
):  # fmt: skip
    """Each tile's tokens times the weights of the tile's expert; tokens are sorted by expert."""
    with kscope.region("lookup"):
        expert = tl.load(experts + tl.program_id(0))
        rows = tl.load(firsts + tl.program_id(0)) + tl.arange(0, BM)
        inside = (rows < tl.load(ends + expert))[:, None]
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        with kscope.region("load"):
            tokens = tl.load(x + rows[:, None] * K + (k + inner)[None, :], mask=inside, other=0.0)
            weights = tl.load(w + expert * K * N + (k + inner)[:, None] * N + columns[None, :])
        with kscope.region("dot"):
            total = tl.dot(tokens, weights, total)
    with kscope.region("store"):
        tl.store(y + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def tasks(x, y, next_task, count, each, BLOCK: tl.constexpr, TAG: tl.constexpr):
    task = tl.atomic_add(next_task, 1)
    while task < count:
        with kscope.region("task", value=task):
            total = tl.zeros((BLOCK,), tl.float32)
            for step in range(each):
                with kscope.region("step"):
                    total += tl.load(x + (task * each + step) * BLOCK + tl.arange(0, BLOCK))
            tl.store(y + task * BLOCK + tl.arange(0, BLOCK), total)
        with kscope.region("fetch"):
            task = tl.atomic_add(next_task, 1)


@triton.jit
def now():
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def fmas(x, COUNT: tl.constexpr):
    for _ in tl.static_range(COUNT):
        x = tl.inline_asm_elementwise(
            "fma.rn.f32 $0, $1, 0fBA83126F, $1;", "=f,f", [x], dtype=tl.float32, is_pure=False, pack=1
        )
    return x


@triton.jit
def loop(out, cycles, iterations, COUNT: tl.constexpr, THREADS: tl.constexpr, TAG: tl.constexpr):
    at = tl.arange(0, THREADS)
    x = at.to(tl.float32)
    begin = now()
    for _ in range(iterations):
        with kscope.region("work"):
            x = fmas(x, COUNT)
    tl.store(cycles + tl.program_id(0), now() - begin)
    tl.store(out + tl.program_id(0) * THREADS + at, x)
