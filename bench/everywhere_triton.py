"""The problems of on_everywhere.py in Triton: attention is here, the rest in triton_kernels.py and the examples."""

from __future__ import annotations

from typing import Any

import problems
import triton
import triton.language as tl
import triton_gemm
import triton_softmax
from offline import Language
from triton_kernels import layernorm, tasks

import kscope

WARPS = problems.THREADS // 32


@triton.jit
def attention(q, k, v, out, length, factor, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    columns, width = tl.arange(0, KEYS), tl.arange(0, WIDTH)
    head = tl.program_id(1) * length * WIDTH
    queries = tl.load(q + head + rows[:, None] * WIDTH + width[None, :]) * factor
    largest = tl.full((QUERIES,), -1e30, tl.float32)
    norm = tl.zeros((QUERIES,), tl.float32)
    total = tl.zeros((QUERIES, WIDTH), tl.float32)
    for n in range(0, length, KEYS):
        with kscope.region("load", value=n) as load:
            keys = tl.load(k + head + (n + columns)[None, :] * WIDTH + width[:, None])
            values = tl.load(v + head + (n + columns)[:, None] * WIDTH + width[None, :])
            load.pin(keys)
            load.pin(values)
        with kscope.region("scores"):
            scores = tl.dot(queries, keys, input_precision="ieee")
        with kscope.region("softmax"):
            larger = tl.maximum(largest, tl.max(scores, 1))
            weights = tl.exp2(scores - larger[:, None])
            correction = tl.exp2(largest - larger)
            norm = norm * correction + tl.sum(weights, 1)
            total = total * correction[:, None]
            largest = larger
        with kscope.region("weigh"):
            total = tl.dot(weights, values, total, input_precision="ieee")
    with kscope.region("store"):
        tl.store(out + head + rows[:, None] * WIDTH + width[None, :], total / norm[:, None])


ATTENTION = {"WIDTH": problems.WIDTH, "QUERIES": problems.QUERIES, "KEYS": problems.KEYS}


SIGNATURES: dict[str, tuple[Any, dict[str, str], dict[str, int]]] = {
    "layernorm": (
        layernorm,
        {**dict.fromkeys(("x", "weight", "bias", "y"), "*fp32"), "N": "i32", "eps": "fp32"},
        {"BLOCK": 1024, "TAG": 0},
    ),
    "tasks": (
        tasks,
        {**dict.fromkeys("xy", "*fp32"), "next_task": "*i32", "count": "i32", "each": "i32"},
        {"BLOCK": problems.THREADS, "TAG": 0},
    ),
    "attention": (
        attention,
        {**dict.fromkeys(("q", "k", "v", "out"), "*fp32"), "length": "i32", "factor": "fp32"},
        ATTENTION,
    ),
}
"""Parameters and constants of the kernels that no example compiles."""


LANGUAGE = Language(triton_softmax, triton_gemm, (), SIGNATURES, {"num_warps": WARPS}, {"num_stages": 1})
launch, compiled, built = LANGUAGE.launch, LANGUAGE.compiled, LANGUAGE.built
