"""Fused attention forward in Triton: five regions in the loop.

    python examples/triton_attention.py [--causal]

On a GPU: checks the result against torch, writes attention.kscope, prints one line per region. Without
one: compiles the kernel for sm_90.
"""

from __future__ import annotations

import sys

import triton
import triton.language as tl
from shared import triton_on_gpu
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kscope

HEADS, LENGTH, WIDTH = 32, 2048, 128
TILE = {"D": WIDTH, "BM": 128, "BN": 64}
OPTIONS = {"num_warps": 8, "num_stages": 2}


@triton.jit
def attention(
    q, k, v, out, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, lse=None
):
    """lse: receives the logarithm (base 2) of each row's sum, for triton_attention_backward.py."""
    block = tl.program_id(0)
    rows = block * BM + tl.arange(0, BM)
    columns, width = tl.arange(0, BN), tl.arange(0, D)
    head = tl.program_id(1) * S * D
    with kscope.region("load_q"):
        queries = tl.load(q + head + rows[:, None] * D + width[None, :])
    largest = tl.full((BM,), -1e30, tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    end = (block + 1) * BM if CAUSAL else S
    for n in range(0, end, BN):
        with kscope.region("load_k"):
            keys = tl.load(k + head + (n + columns)[None, :] * D + width[:, None])
        with kscope.region("qk"):
            scores = tl.dot(queries, keys) * scale
        with kscope.region("softmax"):
            if CAUSAL:
                scores = tl.where(rows[:, None] >= (n + columns)[None, :], scores, -1e30)
            larger = tl.maximum(largest, tl.max(scores, 1))
            weights = tl.exp2(scores - larger[:, None])
            correction = tl.exp2(largest - larger)
            norm = norm * correction + tl.sum(weights, 1)
            total = total * correction[:, None]
            largest = larger
        with kscope.region("load_v"):
            values = tl.load(v + head + (n + columns)[:, None] * D + width[None, :])
        with kscope.region("pv"):
            total = tl.dot(weights.to(tl.float16), values, total)
    with kscope.region("store"):
        tl.store(out + head + rows[:, None] * D + width[None, :], (total / norm[:, None]).to(tl.float16))
        if lse is not None:
            tl.store(lse + tl.program_id(1) * S + rows, largest + tl.log2(norm))


def compile_only(causal: bool) -> None:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    types = dict.fromkeys(("q", "k", "v", "out"), "*fp16") | {"S": "i32", "scale": "fp32"}
    types |= dict.fromkeys([*TILE, "CAUSAL", "lse"], "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(5)}
    kscope.enable()
    source = ASTSource(attention, types, {**TILE, "CAUSAL": causal, "lse": None}, aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=OPTIONS)
    kscope.disable()
    print(f"no GPU here: {kernel.name} compiled for sm_90 with its regions, {len(kernel.asm['cubin'])} bytes")


def main() -> None:
    causal = "--causal" in sys.argv[1:]
    if not triton_on_gpu():
        compile_only(causal)
        return
    import torch

    torch.manual_seed(0)
    q, k, v = (torch.randn(HEADS, LENGTH, WIDTH, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    grid = (LENGTH // TILE["BM"], HEADS)
    scale = WIDTH**-0.5
    with kscope.profile("attention.kscope") as prof:
        # the kernel uses exp2: the scale includes the base of the logarithm
        attention[grid](q, k, v, out, LENGTH, scale * 1.4426950408889634, **TILE, CAUSAL=causal, **OPTIONS)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2)
    tiles = LENGTH // TILE["BN"]
    steps = sum(2 * (block + 1) if causal else tiles for block in range(grid[0])) * HEADS  # loop iterations, all blocks
    records = 8 * (5 * steps + 2 * grid[0] * HEADS)  # 8 warps; load_q and store once per block
    assert len(prof.trace) == records, f"{len(prof.trace)} records, expected {records}"
    print(prof.trace.summary())
    print("attention.kscope: kscope export attention.kscope -o attention.pftrace, then open it in ui.perfetto.dev")


if __name__ == "__main__":
    main()
