"""Liger-Kernel: the autograd functions of liger_kernel.ops, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from . import HALF, Entries, Work, angles, both, grad, ints, rand

ENTRIES = Entries()
ROWS, HIDDEN, VOCABULARY = 4096, 4096, 32_000


def op(module: str, name: str) -> Any:
    """An autograd function's apply()."""
    return getattr(import_module(f"liger_kernel.ops.{module}"), name).apply


def weight(size: int = HIDDEN) -> torch.Tensor:
    """The weights of a norm."""
    return (rand(size, dtype=torch.float32, scale=0.1) + 1).to(HALF).requires_grad_()


def add(
    name: str, function: str, inputs: Sequence[Callable[[], Any]], *more: Any, module: str = "", fresh: bool = False
) -> None:
    """An entry: an autograd function of a module, which is called as the entry if not given, and its arguments."""
    ENTRIES.both(name, lambda: op(module or name, function), inputs, *more, fresh=fresh)


MATRIX = grad(ROWS, HIDDEN)
add("rms_norm", "LigerRMSNormFunction", [MATRIX, weight], 1e-6, 0.0, "llama", False)
BLOCKS = [grad(64 * 1024, 128), lambda: weight(128)]
add("rms_norm_blocks", "LigerRMSNormFunction", BLOCKS, 1e-6, 1.0, "gemma", False, module="rms_norm")
add("layer_norm", "LigerLayerNormFunction", [MATRIX, weight, grad(HIDDEN, scale=0.1)], 1e-5)
add("fused_add_rms_norm", "LigerFusedAddRMSNormFunction", [MATRIX, MATRIX, weight], 1e-6, 0.0, "llama", False)
add("poly_norm", "LigerPolyNormFunction", [MATRIX, grad(3), grad()], 1e-6, False)
GROUPS = [grad(16, 128, 32 * 32), lambda: weight(128), grad(128)]
add("group_norm", "LigerGroupNormFunction", GROUPS, 128, 16, 1e-5)
add("swiglu", "LigerSiLUMulFunction", [grad(ROWS, 11008)] * 2, fresh=True)
add("geglu", "LigerGELUMulFunction", [grad(ROWS, 11008)] * 2, fresh=True)
add("relu_squared", "LigerReLUSquaredFunction", [MATRIX])


@ENTRIES.add
def rope() -> Work:
    run = op("rope", "LigerRopeFunction")
    cos, sin = (one.repeat(1, 2)[None] for one in angles(64))
    inputs = rand(2, 32, 2048, 128, grad=True), rand(2, 8, 2048, 128, grad=True)
    return both(lambda q, k: run(q, k, cos, sin), inputs, fresh=True)


@ENTRIES.add
def cross_entropy() -> Work:
    run, target = op("cross_entropy", "LigerCrossEntropyFunction"), ints(VOCABULARY, ROWS)
    return both(lambda x: run(x, target, None, -100, 1e-4, 0.1, "mean", 30.0)[0],
                [rand(ROWS, VOCABULARY, grad=True)], fresh=True)  # fmt: skip


@ENTRIES.add
def fused_linear_cross_entropy() -> Work:
    run, target = op("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction"), ints(VOCABULARY, 1024)
    inputs = rand(1024, 1024, grad=True), rand(VOCABULARY, 1024, scale=0.02, grad=True)
    return both(lambda x, w: run(x, w, target)[0], inputs)


def logarithms(columns: int) -> list[Callable[[], torch.Tensor]]:
    """Two distributions, as logarithms; the first has a gradient."""
    return [
        lambda: rand(1024, columns).log_softmax(-1).requires_grad_(),
        lambda: rand(1024, columns).log_softmax(-1),
    ]


def probabilities() -> torch.Tensor:
    return rand(1024, VOCABULARY).softmax(-1)


add("kl_div", "LigerKLDivLossFunction", [logarithms(VOCABULARY)[0], probabilities], "batchmean")
add("jsd", "LigerJSDFunction", logarithms(4096), None, 0.3)
add("tvd", "LigerTVDLossFunction", [lambda: probabilities().requires_grad_(), probabilities])
add("softmax", "LigerSoftmaxFunction", [MATRIX])
add("sparsemax", "LigerSparsemaxFunction", [grad(ROWS, 1024, dtype=torch.float32)], -1)
add("dyt", "LigerDyTFunction", [MATRIX, grad(1, dtype=torch.float32), weight, grad(HIDDEN)])
TOKENS = [grad(2, 4, 256, 256), grad(4, 4, 3, 3, scale=0.1)]
add("multi_token_attention", "LigerMultiTokenAttentionFunction", TOKENS, None, 1, 1)
RESIDUAL = [grad(8, 2, 1024, 1024), grad(1024, scale=0.02), lambda: weight(1024)]
add("attention_residual", "LigerAttnResFunction", RESIDUAL, 1e-6, module="attn_res")
NEIGHBORS = [grad(2, 4, 256, 64)] * 3, 7, 1, 1 / math.sqrt(64)
add("neighborhood_attention", "LigerFusedNeighborhoodAttentionFunction", *NEIGHBORS,
    module="fused_neighborhood_attention")  # fmt: skip


@ENTRIES.add
def grpo() -> Work:
    run = op("grpo_loss", "GrpoLossFunction")
    tokens, mask = ints(VOCABULARY, 4, 256), ints(2, 4, 256)
    old, advantages = rand(4, 256, dtype=torch.float32).abs_().neg_(), rand(4, dtype=torch.float32)
    return both(
        lambda x: run(x, old, old * 1.1, tokens, advantages, mask, 0.9, 0.04, 0.2, 0.4, False)[0],
        [rand(4, 257, VOCABULARY, grad=True)],
    )


@ENTRIES.add
def fused_moe() -> Work:
    run = op("fused_moe", "LigerFusedMoEFunction")
    inputs = (
        rand(1024, 1024, grad=True),
        rand(8, 2048, 1024, scale=0.03, grad=True),
        rand(8, 1024, 1024, scale=0.03, grad=True),
    )
    chosen, weights = ints(8, 1024, 2).to(torch.int32), rand(1024, 2).softmax(-1)
    return both(lambda x, up, down: run(x, up, down, chosen, weights), inputs)
