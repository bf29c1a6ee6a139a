"""The problems of on_everywhere.py in Triton: attention is here, the rest in triton_kernels.py and the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import triton
import triton.language as tl
import triton_gemm
import triton_softmax
from problems import (
    BLOCKS_PER_SM,
    COLUMNS,
    EACH,
    EPSILON,
    HEADS,
    KEYS,
    LENGTH,
    QUERIES,
    ROWS,
    SCALE,
    SIZE,
    TASKS,
    THREADS,
    WIDTH,
    Problem,
    sms,
)
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton_kernels import layernorm, tasks

import kscope

WARPS = THREADS // 32


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


ATTENTION = {"WIDTH": WIDTH, "QUERIES": QUERIES, "KEYS": KEYS}
OPTIONS = {"num_warps": WARPS, "num_stages": 1}


def launch(kernel: str, given: Problem) -> Callable[[], object]:
    """How the kernel is launched."""
    tensors = (*given.inputs, given.out)
    if kernel == "softmax":
        return lambda: triton_softmax.softmax[(ROWS,)](*tensors, COLUMNS, triton_softmax.BLOCK, num_warps=WARPS)
    if kernel == "matmul":
        tile, depth = triton_gemm.TILE, triton_gemm.DEPTH
        return lambda: triton_gemm.gemm[(SIZE // tile,) * 2](*tensors, SIZE, tile, depth, **OPTIONS)
    if kernel == "layernorm":
        return lambda: layernorm[(ROWS,)](*tensors, COLUMNS, EPSILON, BLOCK=1024, TAG=0, num_warps=WARPS)
    if kernel == "tasks":
        x, turn = given.inputs
        grid = (BLOCKS_PER_SM * sms(),)
        return lambda: tasks[grid](x, given.out, turn, TASKS, EACH, BLOCK=THREADS, TAG=0, num_warps=WARPS)
    return lambda: attention[(LENGTH // QUERIES, HEADS)](*tensors, LENGTH, SCALE, **ATTENTION, **OPTIONS)


SIGNATURES: dict[str, tuple[Any, dict[str, str], dict[str, int]]] = {
    "layernorm": (
        layernorm,
        {**dict.fromkeys(("x", "weight", "bias", "y"), "*fp32"), "N": "i32", "eps": "fp32"},
        {"BLOCK": 1024, "TAG": 0},
    ),
    "tasks": (
        tasks,
        {**dict.fromkeys("xy", "*fp32"), "next_task": "*i32", "count": "i32", "each": "i32"},
        {"BLOCK": THREADS, "TAG": 0},
    ),
    "attention": (
        attention,
        {**dict.fromkeys(("q", "k", "v", "out"), "*fp32"), "length": "i32", "factor": "fp32"},
        ATTENTION,
    ),
}
"""Of the kernels that no example compiles: parameters and constants."""


def compiled(kernel: str, arch: int = 90) -> Any:
    """One of SIGNATURES, prepared, with no GPU."""
    it, types, constants = SIGNATURES[kernel]
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types.values()) if kind != "fp32"}
    kscope.enable()
    source = ASTSource(it, {**types, **dict.fromkeys(constants, "constexpr")}, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=OPTIONS)
    kscope.disable()
    return made


def built(arch: int) -> Iterator[tuple[str, bytes]]:
    """Kernels and their cubins, prepared, with no GPU."""
    yield "softmax", triton_softmax.compile_only(arch).asm["cubin"]
    yield "matmul", triton_gemm.compile_only(arch).asm["cubin"]
    for kernel in SIGNATURES:
        yield kernel, compiled(kernel, arch).asm["cubin"]
