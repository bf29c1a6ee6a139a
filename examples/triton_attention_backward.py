"""Fused attention backward in Triton: two kernels, and the time of each of their products.

    python examples/triton_attention_backward.py [--causal]

One kernel walks down the queries for a block of keys (dk, dv), one walks along the keys for a block of queries (dq);
both recompute the weights from the logarithms that triton_attention.py stores. On a GPU: checks the gradients against
torch, writes backward.kscope, and prints one line per region. Without one: compiles the kernels for sm_90.
"""

from __future__ import annotations

import sys
from typing import Any

import triton
import triton.language as tl
from shared import show, triton_on_gpu
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton_attention import HEADS, LENGTH, OPTIONS, TILE, WIDTH, attention

import kscope

LONG, SHORT = 128, 64
"""Rows of the tile that a block keeps, and of the tiles that it loops over."""
LOG2E = 1.4426950408889634


@triton.jit
def attention_delta(out, do, delta, D: tl.constexpr, BM: tl.constexpr):
    """For each row, the sum of out * do, which the softmax's gradient subtracts."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    with kscope.region("delta"):
        product = tl.load(out + at).to(tl.float32) * tl.load(do + at).to(tl.float32)
        tl.store(delta + rows, tl.sum(product, 1))


@triton.jit
def attention_dkdv(
    q, k, v, do, lse, delta, dk, dv, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """scale is the forward kernel's times ln 2: the logits are scale * q @ k.T, their exponentials have base 2."""
    head = tl.program_id(1) * S
    columns, width, inner = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, D), tl.arange(0, BM)
    at = head * D + columns[:, None] * D + width[None, :]
    with kscope.region("load_kv"):
        keys, values = tl.load(k + at), tl.load(v + at)
    grad_k = tl.zeros((BN, D), tl.float32)
    grad_v = tl.zeros((BN, D), tl.float32)
    first = tl.program_id(0) * BN if CAUSAL else 0
    for m in range(first, S, BM):
        rows = m + inner
        with kscope.region("load_q"):
            queries = tl.load(q + head * D + rows[:, None] * D + width[None, :])
        with kscope.region("qk"):
            scores = tl.dot(keys, tl.trans(queries)) * (scale * 1.4426950408889634)
        with kscope.region("weights"):
            weights = tl.exp2(scores - tl.load(lse + head + rows)[None, :])
            if CAUSAL:
                weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)
        with kscope.region("load_do"):
            grads = tl.load(do + head * D + rows[:, None] * D + width[None, :])
        with kscope.region("dv"):
            grad_v = tl.dot(weights.to(tl.float16), grads, grad_v)
        with kscope.region("dp"):
            slopes = tl.dot(values, tl.trans(grads))
        with kscope.region("dk"):
            slopes = weights * (slopes - tl.load(delta + head + rows)[None, :])
            grad_k = tl.dot(slopes.to(tl.float16), queries, grad_k)
    with kscope.region("store"):
        tl.store(dk + at, (grad_k * scale).to(tl.float16))
        tl.store(dv + at, grad_v.to(tl.float16))


@triton.jit
def attention_dq(
    q, k, v, do, lse, delta, dq, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1) * S
    rows, width, inner = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    at = head * D + rows[:, None] * D + width[None, :]
    with kscope.region("load_q"):
        queries, grads = tl.load(q + at), tl.load(do + at)
        logarithm, less = tl.load(lse + head + rows)[:, None], tl.load(delta + head + rows)[:, None]
    grad_q = tl.zeros((BM, D), tl.float32)
    end = (tl.program_id(0) + 1) * BM if CAUSAL else S
    for n in range(0, end, BN):
        columns = n + inner
        with kscope.region("load_kv"):
            keys = tl.load(k + head * D + columns[:, None] * D + width[None, :])
            values = tl.load(v + head * D + columns[:, None] * D + width[None, :])
        with kscope.region("qk"):
            scores = tl.dot(queries, tl.trans(keys)) * (scale * 1.4426950408889634)
        with kscope.region("weights"):
            weights = tl.exp2(scores - logarithm)
            if CAUSAL:
                weights = tl.where(rows[:, None] >= columns[None, :], weights, 0.0)
        with kscope.region("dp"):
            slopes = tl.dot(grads, tl.trans(values))
        with kscope.region("dq"):
            slopes = weights * (slopes - less)
            grad_q = tl.dot(slopes.to(tl.float16), keys, grad_q)
    with kscope.region("store"):
        tl.store(dq + at, (grad_q * scale).to(tl.float16))


def compile_only(causal: bool = False, arch: int = 90) -> list[Any]:
    """Without a GPU: compile the kernels, with their regions, for a given target."""
    sizes = {
        "attention_delta": {"D": WIDTH, "BM": LONG},
        "attention_dkdv": {"D": WIDTH, "BM": SHORT, "BN": LONG, "CAUSAL": causal},
        "attention_dq": {"D": WIDTH, "BM": LONG, "BN": SHORT, "CAUSAL": causal},
    }
    kinds = {"S": "i32", "scale": "fp32", "lse": "*fp32", "delta": "*fp32"}
    found = []
    kscope.enable()
    for kernel in (attention_delta, attention_dkdv, attention_dq):
        constants = sizes[kernel.__name__]
        types = {name: "constexpr" if name in constants else kinds.get(name, "*fp16") for name in kernel.arg_names}
        aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(types) if types[name][0] in "*i"}
        source = ASTSource(kernel, types, constants, aligned)
        made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=OPTIONS)
        print(f"no GPU here: {made.name} compiled for sm_{arch} with its regions, {len(made.asm['cubin'])} bytes")
        found.append(made)
    kscope.disable()
    return found


def run(causal: bool = False, heads: int = HEADS, length: int = LENGTH, device: str = "cuda") -> int:
    """Launch forward and backward once and check the gradients; returns the number of records."""
    import torch

    numbers = torch.Generator().manual_seed(0)
    q, k, v, do = (torch.randn(heads, length, WIDTH, generator=numbers).half().to(device) for _ in range(4))
    out, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
    lse, delta = (torch.empty(heads, length, device=device) for _ in range(2))
    scale = WIDTH**-0.5
    long_grid, forward_grid = (length // LONG, heads), (length // TILE["BM"], heads)
    attention[forward_grid](q, k, v, out, length, scale * LOG2E, **TILE, CAUSAL=causal, lse=lse, **OPTIONS)
    attention_delta[(heads * length // LONG,)](out, do, delta, WIDTH, LONG, **OPTIONS)
    same = (q, k, v, do, lse, delta)
    attention_dkdv[long_grid](*same, dk, dv, length, scale, WIDTH, SHORT, LONG, causal, **OPTIONS)
    attention_dq[long_grid](*same, dq, length, scale, WIDTH, LONG, SHORT, causal, **OPTIONS)

    exact = [x.float().requires_grad_() for x in (q, k, v)]
    result = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=causal, scale=scale)
    torch.testing.assert_close(out.float(), result, rtol=1e-2, atol=2e-3)
    for name, ours, theirs in zip("qkv", (dq, dk, dv), torch.autograd.grad(result, exact, do.float()), strict=True):
        torch.testing.assert_close(ours.float(), theirs, rtol=1e-2, atol=2e-3, msg=lambda text, d=name: f"d{d}: {text}")

    # 8 warps; over the four kernels, 7 regions once per block, and 5, 7 and 5 per step of their loops
    blocks = length // LONG
    steps = LONG // SHORT * (blocks * (blocks + 1) // 2 if causal else blocks * blocks)
    return 8 * heads * (7 * blocks + (5 + 7 + 5) * steps)


def main() -> None:
    causal = "--causal" in sys.argv[1:]
    if not triton_on_gpu():
        compile_only(causal)
        return
    with kscope.profile("backward.kscope") as prof:
        expected = run(causal)
    show(prof.trace, expected, "backward")


if __name__ == "__main__":
    main()
