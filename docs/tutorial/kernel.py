"""The kernel: one block computes 128 rows of one head; causal, so later rows have more tiles of keys."""

from __future__ import annotations

import triton
import triton.language as tl

import kscope


@triton.jit
def attention(
    q, k, v, out, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HEAVY_FIRST: tl.constexpr
):  # fmt: skip
    block = tl.program_id(1)
    if HEAVY_FIRST:
        block = tl.num_programs(1) - 1 - block
    rows = block * BM + tl.arange(0, BM)
    columns, width = tl.arange(0, BN), tl.arange(0, D)
    head = tl.program_id(0) * S * D
    with kscope.region("load_q"):
        queries = tl.load(q + head + rows[:, None] * D + width[None, :])
    largest = tl.full((BM,), -1e30, tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for n in range(0, (block + 1) * BM, BN):
        with kscope.region("load_k"):
            keys = tl.load(k + head + (n + columns)[None, :] * D + width[:, None])
        with kscope.region("qk"):
            scores = tl.dot(queries, keys) * scale
        with kscope.region("softmax"):
            scores = tl.where(rows[:, None] >= (n + columns)[None, :], scores, -1e30)
            larger = tl.maximum(largest, tl.max(scores, 1))
            weights = tl.exp2(scores - larger[:, None])
            correction = tl.exp2(largest - larger)
            norm = norm * correction + tl.sum(weights, 1)
            total = total * correction[:, None]
            largest = larger
        with kscope.region("pv"):
            values = tl.load(v + head + (n + columns)[:, None] * D + width[None, :])
            total = tl.dot(weights.to(tl.float16), values, total)
    with kscope.region("store"):
        tl.store(out + head + rows[:, None] * D + width[None, :], (total / norm[:, None]).to(tl.float16))
