"""A persistent Triton matmul with TMA, for tests and benchmarks of auto="pipeline"."""

from __future__ import annotations

import triton
import triton.language as tl

TILES = {"BM": 128, "BN": 128, "BK": 64}


@triton.jit
def multiply(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, APART: tl.constexpr):
    across = N // BN
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    product = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    for tile in tl.range(tl.program_id(0), (M // BM) * across, tl.num_programs(0), warp_specialize=APART):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(left.load([row, k]), right.load([column, k]).T, total)
        product.store([row, column], total.to(tl.float16))
