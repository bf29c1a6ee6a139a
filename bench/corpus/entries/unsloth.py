"""unsloth: the functions of unsloth.kernels. Its package is not imported whole, for that needs transformers."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from . import HALF, Entries, Work, angles, both, ints, rand

ENTRIES = Entries()


def of(module: str) -> Any:
    return import_module(f"unsloth.kernels.{module}")


def norm(size: int, **more: Any) -> Any:
    return SimpleNamespace(weight=rand(size, dtype=torch.float32).to(HALF), **more)


@ENTRIES.add
def rms_layernorm() -> Work:
    run, layer = of("rms_layernorm").fast_rms_layernorm, norm(4096, eps=1e-6)
    return both(lambda x: run(layer, x), [rand(2, 2048, 4096, grad=True)], fresh=True)


@ENTRIES.add
def rms_layernorm_gemma() -> Work:
    run, layer = of("rms_layernorm").fast_rms_layernorm, norm(2048, eps=1e-6)
    return both(lambda x: run(layer, x, True), [rand(2, 2048, 2048, grad=True)], fresh=True)


@ENTRIES.add
def layernorm() -> Work:
    layer = norm(4096, eps=1e-5, bias=rand(4096), elementwise_affine=True)
    return both(lambda x: of("layernorm").fast_layernorm(layer, x), [rand(2, 2048, 4096, grad=True)], fresh=True)


@ENTRIES.add
def rope() -> Work:
    return _rope()


@ENTRIES.add
def rope_indexed() -> Work:
    return _rope(ints(2048, 2, 2048, dtype=torch.int32))


def _rope(*places: torch.Tensor) -> Work:
    cos, sin = (one.repeat(1, 2) for one in angles(64))
    inputs = rand(2, 32, 2048, 128, grad=True), rand(2, 8, 2048, 128, grad=True)
    return both(lambda q, k: of("rope_embedding").fast_rope_embedding(q, k, cos, sin, *places), inputs, fresh=True)


def _gated(name: str, module: str, forward: str, backward: str) -> None:
    def make() -> Work:
        e, g, d = (rand(2, 2048, 11008) for _ in range(3))
        run, back = (getattr(of(module), one) for one in (forward, backward))

        def work() -> list[torch.Tensor]:
            rows = [one.reshape(-1, one.shape[-1]).clone() for one in (d, e, g)]  # written in place
            return [run(e, g), *back(*rows)]

        return work

    ENTRIES[name] = make


_gated("swiglu", "swiglu", "swiglu_fg_kernel", "swiglu_DWf_DW_dfg_kernel")
_gated("geglu_exact", "geglu", "geglu_exact_forward_kernel", "geglu_exact_backward_kernel")
_gated("geglu_approximate", "geglu", "geglu_approx_forward_kernel", "geglu_approx_backward_kernel")


@ENTRIES.add
def cross_entropy() -> Work:
    return _cross_entropy(2, 1024, 32_000, 0)


@ENTRIES.add
def cross_entropy_chunked() -> Work:
    return _cross_entropy(1, 512, 128_256, 30.0)


def _cross_entropy(batch: int, length: int, words: int, cap: float) -> Work:
    labels = ints(words, batch, length)
    run = of("cross_entropy_loss").Fast_CrossEntropyLoss.apply
    inputs = [rand(batch, length, words, grad=True)]
    return both(lambda x: run(x.view(-1, words), labels.view(-1), cap, 0), inputs, fresh=True)


@ENTRIES.add
def fp8_matmul() -> Work:
    kernels = of("fp8")
    a, b, scales = rand(1024, 2048), rand(2048, 2048, scale=0.1).to(torch.float8_e4m3fn), rand(16, 16).float().abs_()

    def work() -> list[torch.Tensor]:
        q, s = kernels.act_quant(a, 128)
        return [q.view(torch.int8), s, kernels.w8a8_block_fp8_matmul_triton(q, b, s, scales, [128, 128])]

    return work


@ENTRIES.add
def fp8_dequantize() -> Work:
    x, s = rand(4096, 4096).to(torch.float8_e4m3fn), rand(32, 32).float()
    return lambda: [of("fp8").weight_dequant(x, s)]
