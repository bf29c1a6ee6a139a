"""flash-linear-attention: chunked and recurrent attention of fla.ops, and fla.modules; forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch.nn import functional

from . import Entries, Work, both, rand, tensors

ENTRIES = Entries()
BATCH, LENGTH, HEADS, SIZE = 2, 2048, 4, 64


def of(module: str, name: str) -> Any:
    return getattr(import_module(f"fla.{module}"), name)


def qkv(length: int = LENGTH) -> list[torch.Tensor]:
    """Queries, normalized keys, values."""
    q, k, v = (rand(BATCH, length, HEADS, SIZE) for _ in range(3))
    return [
        q.requires_grad_(),
        functional.normalize(k.float(), dim=-1).to(k.dtype).requires_grad_(),
        v.requires_grad_(),
    ]


def gate(*last: int, length: int = LENGTH, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Logarithms of decays."""
    return functional.logsigmoid(rand(BATCH, length, HEADS, *last, dtype=torch.float32)).to(dtype).requires_grad_()


def share(length: int = LENGTH) -> torch.Tensor:
    """Between zero and one."""
    return rand(BATCH, length, HEADS).sigmoid().requires_grad_()


def _attention(module: str, name: str, *more: Any, length: int = LENGTH, back: bool = True, **named: Any) -> None:
    """An entry for a function of queries, keys, values and more. back: also its backward pass."""

    def make() -> Work:
        torch.manual_seed(0)
        run = of(f"ops.{module}", name)
        inputs = [*qkv(length), *(one() for one in more)]
        if not back:
            values = [one.detach() for one in inputs]
            return lambda: tensors(run(*values, **named))
        return both(lambda *given: run(*given, **named), inputs)

    ENTRIES[name] = make


# fla refuses the backward passes of gated kernels with Triton 3.6 on Hopper, whose results would be wrong
_attention("linear_attn", "chunk_linear_attn")
_attention("simple_gla", "chunk_simple_gla", gate, back=False)
_attention("gla", "chunk_gla", lambda: gate(SIZE))
_attention("gla", "fused_recurrent_gla", lambda: gate(SIZE, length=256), length=256)
_attention("retention", "chunk_retention", back=False)
_attention("delta_rule", "chunk_delta_rule", share)
_attention("gated_delta_rule", "chunk_gated_delta_rule", gate, share, back=False)
_attention("kda", "chunk_kda", lambda: gate(SIZE), share)
_attention("lightning_attn", "chunk_lightning_attn", back=False, layer_idx=1, num_layers=12)
_attention("attn", "parallel_attn")
_attention("forgetting_attn", "parallel_forgetting_attn", gate)
_attention("based", "parallel_based")
_attention("simple_gla", "parallel_simple_gla", gate)
_attention("delta_rule", "fused_recurrent_delta_rule", lambda: share(256), length=256)
_attention("retention", "fused_recurrent_retention", length=256)
_attention(
    "mesa_net",
    "chunk_mesa_net",
    gate,
    share,
    lambda: rand(HEADS, SIZE, dtype=torch.float32).sigmoid_().requires_grad_(),
)


@ENTRIES.add
def chunk_rwkv6() -> Work:
    r, k, v = qkv()
    inputs = r, k, v, gate(SIZE), rand(HEADS, SIZE, grad=True)
    return both(of("ops.rwkv6", "chunk_rwkv6"), inputs)


@ENTRIES.add
def chunk_rwkv7() -> Work:
    r, k, v = qkv()
    a = functional.normalize(rand(BATCH, LENGTH, HEADS, SIZE).float(), dim=-1).to(k.dtype)
    inputs = (
        r,
        (gate(SIZE).detach() * 0.6).to(k.dtype).requires_grad_(),
        k,
        v,
        a.requires_grad_(),
        (-0.5 * a.detach()).requires_grad_(),
    )
    return both(of("ops.rwkv7", "chunk_rwkv7"), inputs)


@ENTRIES.add
def fused_recurrent_gated_delta_rule() -> Work:
    run = of("ops.gated_delta_rule", "fused_recurrent_gated_delta_rule")
    q, k, v = (one.detach() for one in qkv(256))
    g, beta = gate(length=256).detach(), share(256).detach()
    return lambda: [one for one in run(q, k, v, g=g, beta=beta) if one is not None]


@ENTRIES.add
def fused_recurrent_hgrn() -> Work:
    inputs = rand(BATCH, 512, 1024, grad=True), functional.logsigmoid(rand(BATCH, 512, 1024)).requires_grad_()
    return both(of("ops.hgrn", "fused_recurrent_hgrn"), inputs)


@ENTRIES.add
def chunk_hgrn() -> Work:
    inputs = rand(BATCH, 512, 1024, grad=True), functional.logsigmoid(rand(BATCH, 512, 1024)).requires_grad_()
    return both(of("ops.hgrn.chunk", "chunk_hgrn"), inputs)


@ENTRIES.add
def cumsum() -> Work:
    x = rand(BATCH, LENGTH, HEADS, SIZE, dtype=torch.float32)
    run, whole = of("ops.utils", "chunk_local_cumsum"), of("ops.utils", "chunk_global_cumsum")
    return lambda: [run(x, 64), run(x[..., 0].contiguous(), 64, reverse=True), whole(x)]


@ENTRIES.add
def short_convolution() -> Work:
    run = of("modules.convolution", "causal_conv1d")
    inputs = rand(BATCH, LENGTH, 1024, grad=True), rand(1024, 4, grad=True), rand(1024, grad=True)
    return both(lambda x, w, b: run(x, w, b, activation="silu")[0], inputs)


def _norm(name: str, run: Any, gated: bool) -> None:
    def make() -> Work:
        torch.manual_seed(0)
        inputs = [rand(4096, 2048, grad=True), *([rand(4096, 2048, grad=True)] if gated else [])]
        return both(run(), [*inputs, rand(2048, grad=True), rand(2048, grad=True)])

    ENTRIES[name] = make


_norm("layer_norm", lambda: of("modules.layernorm", "layer_norm"), False)
_norm("rms_norm", lambda: of("modules.layernorm", "rms_norm"), False)
_norm("layer_norm_gated", lambda: of("modules.fused_norm_gate", "layer_norm_gated"), True)
_norm("rms_norm_gated", lambda: of("modules.fused_norm_gate", "rms_norm_gated"), True)


@ENTRIES.add
def layernorm_gated() -> Work:
    run = of("modules.layernorm_gated", "layernorm_fn")
    return both(
        run, [rand(4096, 2048, grad=True), rand(2048, grad=True), rand(2048, grad=True), rand(4096, 2048, grad=True)]
    )


@ENTRIES.add
def rotary() -> Work:
    run = of("modules.rotary", "rotary_embedding")
    angles = torch.outer(torch.arange(2048.0), 1e4 ** -torch.linspace(0, 1, 32))
    near = rand(1)
    cos, sin = (one.to(near) for one in (angles.cos(), angles.sin()))
    return both(lambda x: run(x, cos, sin), [rand(BATCH, LENGTH, 16, 64, grad=True)])


@ENTRIES.add
def l2norm() -> Work:
    return both(of("modules.l2norm", "l2norm"), [rand(BATCH, LENGTH, HEADS, 128, grad=True)])


@ENTRIES.add
def token_shift() -> Work:
    return both(of("modules.token_shift", "token_shift"), [rand(BATCH, LENGTH, 1024, grad=True)])


@ENTRIES.add
def swiglu() -> Work:
    return both(of("modules.activations", "swiglu"), [rand(4096, 4096, grad=True), rand(4096, 4096, grad=True)])


@ENTRIES.add
def cross_entropy() -> Work:
    run, target = of("modules.fused_cross_entropy", "cross_entropy_loss"), torch.arange(2048) % 32_000
    x = rand(2048, 32_000, grad=True)
    target = target.to(x.device)
    return both(lambda x: run(x, target, 0.1)[0], [x])
