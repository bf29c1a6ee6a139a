"""The problems of on_everywhere.py in Triton: attention is here, the rest in triton_kernels.py and the examples."""

from __future__ import annotations

from collections.abc import Callable
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
OPTIONS = {"num_warps": WARPS, "num_stages": 1}


def launch(kernel: str, given: problems.Problem) -> Callable[[], object]:
    """A function that launches the kernel."""
    tensors = (*given.inputs, given.out)
    if kernel == "softmax":
        return lambda: triton_softmax.softmax[(problems.ROWS,)](
            *tensors, problems.COLUMNS, triton_softmax.BLOCK, num_warps=WARPS
        )
    if kernel == "matmul":
        tile, depth = triton_gemm.TILE, triton_gemm.DEPTH
        return lambda: triton_gemm.gemm[(problems.SIZE // tile,) * 2](*tensors, problems.SIZE, tile, depth, **OPTIONS)
    if kernel == "layernorm":
        return lambda: layernorm[(problems.ROWS,)](
            *tensors, problems.COLUMNS, problems.EPSILON, BLOCK=1024, TAG=0, num_warps=WARPS
        )
    if kernel == "tasks":
        x, turn = given.inputs
        grid = (problems.BLOCKS_PER_SM * problems.sms(),)
        return lambda: tasks[grid](
            x, given.out, turn, problems.TASKS, problems.EACH, BLOCK=problems.THREADS, TAG=0, num_warps=WARPS
        )
    return lambda: attention[(problems.LENGTH // problems.QUERIES, problems.HEADS)](
        *tensors, problems.LENGTH, problems.SCALE, **ATTENTION, **OPTIONS
    )


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


LANGUAGE = Language(triton_softmax, triton_gemm, SIGNATURES, OPTIONS)
compiled, built = LANGUAGE.compiled, LANGUAGE.built
