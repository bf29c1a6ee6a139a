"""flash-linear-attention: chunked and recurrent attention of fla.ops, and fla.modules; forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch.nn import functional

from . import Entries, Work, angles, both, grad, rand

ENTRIES = Entries()
BATCH, LENGTH, HEADS, SIZE = 2, 2048, 4, 64


def of(module: str, name: str) -> Any:
    return getattr(import_module(f"fla.{module}"), name)


def add(module: str, name: str, *inputs: Callable[[], Any]) -> None:
    """An entry for a function of a module."""
    ENTRIES.both(name, lambda: of(module, name), inputs)


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

    ENTRIES.both(name, lambda: of(f"ops.{module}", name), [lambda: qkv(length), *more], back=back, **named)


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


def _logarithms() -> torch.Tensor:
    return functional.logsigmoid(rand(BATCH, 512, 1024)).requires_grad_()


add("ops.hgrn", "fused_recurrent_hgrn", grad(BATCH, 512, 1024), _logarithms)
add("ops.hgrn.chunk", "chunk_hgrn", grad(BATCH, 512, 1024), _logarithms)


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


MATRIX, VECTOR = grad(4096, 2048), grad(2048)
add("modules.layernorm", "layer_norm", MATRIX, VECTOR, VECTOR)
add("modules.layernorm", "rms_norm", MATRIX, VECTOR, VECTOR)
add("modules.fused_norm_gate", "layer_norm_gated", MATRIX, MATRIX, VECTOR, VECTOR)
add("modules.fused_norm_gate", "rms_norm_gated", MATRIX, MATRIX, VECTOR, VECTOR)
LAYERNORM = [MATRIX, VECTOR, VECTOR, MATRIX]
ENTRIES.both("layernorm_gated", lambda: of("modules.layernorm_gated", "layernorm_fn"), LAYERNORM)
add("modules.l2norm", "l2norm", grad(BATCH, LENGTH, HEADS, 128))
add("modules.token_shift", "token_shift", grad(BATCH, LENGTH, 1024))
add("modules.activations", "swiglu", grad(4096, 4096), grad(4096, 4096))


@ENTRIES.add
def rotary() -> Work:
    run, (cos, sin) = of("modules.rotary", "rotary_embedding"), angles(32)
    return both(lambda x: run(x, cos, sin), [rand(BATCH, LENGTH, 16, 64, grad=True)])


@ENTRIES.add
def cross_entropy() -> Work:
    run, x = of("modules.fused_cross_entropy", "cross_entropy_loss"), rand(2048, 32_000, grad=True)
    target = (torch.arange(2048) % 32_000).to(x.device)
    return both(lambda x: run(x, target, 0.1)[0], [x])
