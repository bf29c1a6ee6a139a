"""Liger-Kernel: the autograd functions of liger_kernel.ops, forward and backward."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import torch

from . import HALF, Entries, Work, both, ints, rand

ENTRIES = Entries()
ROWS, HIDDEN, VOCABULARY = 4096, 4096, 32_000


def op(module: str, name: str) -> Any:
    """An autograd function's apply()."""
    return getattr(import_module(f"liger_kernel.ops.{module}"), name).apply


def weight(size: int = HIDDEN) -> torch.Tensor:
    """The weights of a norm."""
    return (rand(size, dtype=torch.float32, scale=0.1) + 1).to(HALF).requires_grad_()


@ENTRIES.add
def rms_norm() -> Work:
    run = op("rms_norm", "LigerRMSNormFunction")
    inputs = rand(ROWS, HIDDEN, grad=True), weight()
    return both(lambda x, w: run(x, w, 1e-6, 0.0, "llama", False), inputs)


@ENTRIES.add
def rms_norm_blocks() -> Work:
    run = op("rms_norm", "LigerRMSNormFunction")
    inputs = rand(64 * 1024, 128, grad=True), weight(128)
    return both(lambda x, w: run(x, w, 1e-6, 1.0, "gemma", False), inputs)


@ENTRIES.add
def layer_norm() -> Work:
    run = op("layer_norm", "LigerLayerNormFunction")
    inputs = rand(ROWS, HIDDEN, grad=True), weight(), rand(HIDDEN, scale=0.1, grad=True)
    return both(lambda x, w, b: run(x, w, b, 1e-5), inputs)


@ENTRIES.add
def fused_add_rms_norm() -> Work:
    run = op("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")
    inputs = rand(ROWS, HIDDEN, grad=True), rand(ROWS, HIDDEN, grad=True), weight()
    return both(lambda x, r, w: run(x, r, w, 1e-6, 0.0, "llama", False), inputs)


@ENTRIES.add
def poly_norm() -> Work:
    run = op("poly_norm", "LigerPolyNormFunction")
    inputs = rand(ROWS, HIDDEN, grad=True), rand(3, grad=True), rand(grad=True)
    return both(lambda x, w, b: run(x, w, b, 1e-6, False), inputs)


@ENTRIES.add
def group_norm() -> Work:
    run = op("group_norm", "LigerGroupNormFunction")
    inputs = rand(16, 128, 32 * 32, grad=True), weight(128), rand(128, grad=True)
    return both(lambda x, w, b: run(x, w, b, 128, 16, 1e-5), inputs)


@ENTRIES.add
def swiglu() -> Work:
    inputs = rand(ROWS, 11008, grad=True), rand(ROWS, 11008, grad=True)
    return both(op("swiglu", "LigerSiLUMulFunction"), inputs, fresh=True)


@ENTRIES.add
def geglu() -> Work:
    inputs = rand(ROWS, 11008, grad=True), rand(ROWS, 11008, grad=True)
    return both(op("geglu", "LigerGELUMulFunction"), inputs, fresh=True)


@ENTRIES.add
def relu_squared() -> Work:
    return both(op("relu_squared", "LigerReLUSquaredFunction"), [rand(ROWS, HIDDEN, grad=True)])


@ENTRIES.add
def rope() -> Work:
    run = op("rope", "LigerRopeFunction")
    angles = torch.outer(torch.arange(2048.0), 1e4 ** -torch.linspace(0, 1, 64)).repeat(1, 2)
    near = rand(1)
    cos, sin = (one.to(HALF).to(near.device)[None] for one in (angles.cos(), angles.sin()))
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


@ENTRIES.add
def kl_div() -> Work:
    run = op("kl_div", "LigerKLDivLossFunction")
    inputs = rand(1024, VOCABULARY).log_softmax(-1).requires_grad_(), rand(1024, VOCABULARY).softmax(-1)
    return both(lambda x, y: run(x, y, "batchmean"), inputs)


@ENTRIES.add
def jsd() -> Work:
    run = op("jsd", "LigerJSDFunction")
    inputs = rand(1024, 4096).log_softmax(-1).requires_grad_(), rand(1024, 4096).log_softmax(-1)
    return both(lambda x, y: run(x, y, None, 0.3), inputs)


@ENTRIES.add
def tvd() -> Work:
    run = op("tvd", "LigerTVDLossFunction")
    inputs = rand(1024, VOCABULARY).softmax(-1).requires_grad_(), rand(1024, VOCABULARY).softmax(-1)
    return both(run, inputs)


@ENTRIES.add
def softmax() -> Work:
    return both(op("softmax", "LigerSoftmaxFunction"), [rand(ROWS, HIDDEN, grad=True)])


@ENTRIES.add
def sparsemax() -> Work:
    run = op("sparsemax", "LigerSparsemaxFunction")
    return both(lambda x: run(x, -1), [rand(ROWS, 1024, dtype=torch.float32, grad=True)])


@ENTRIES.add
def dyt() -> Work:
    inputs = rand(ROWS, HIDDEN, grad=True), rand(1, dtype=torch.float32, grad=True), weight(), rand(HIDDEN, grad=True)
    return both(op("dyt", "LigerDyTFunction"), inputs)


@ENTRIES.add
def multi_token_attention() -> Work:
    run = op("multi_token_attention", "LigerMultiTokenAttentionFunction")
    inputs = rand(2, 4, 256, 256, grad=True), rand(4, 4, 3, 3, scale=0.1, grad=True)
    return both(lambda x, w: run(x, w, None, 1, 1), inputs)


@ENTRIES.add
def attention_residual() -> Work:
    inputs = rand(8, 2, 1024, 1024, grad=True), rand(1024, scale=0.02, grad=True), weight(1024)
    run = op("attn_res", "LigerAttnResFunction")
    return both(lambda v, q, w: run(v, q, w, 1e-6), inputs)


@ENTRIES.add
def neighborhood_attention() -> Work:
    run = op("fused_neighborhood_attention", "LigerFusedNeighborhoodAttentionFunction")
    inputs = [rand(2, 4, 256, 64, grad=True) for _ in "qkv"]
    return both(lambda q, k, v: run(q, k, v, 7, 1, 1 / math.sqrt(64)), inputs)


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
