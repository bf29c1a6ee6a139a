"""The problems of on_everywhere.py in Gluon: three kernels, and two of the examples."""

from __future__ import annotations

from typing import Any

import gluon_gemm
import gluon_softmax
import problems
from gluon_gemm import barrier
from offline import Language
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import kscope

WARPS = problems.THREADS // 32


@gluon.jit
def layernorm(x, weight, bias, y, columns, epsilon, BLOCK: gl.constexpr, WARPS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([BLOCK // (32 * WARPS)], [32], [WARPS], [0])
    at = gl.arange(0, BLOCK, layout=layout)
    x += gl.program_id(0).to(gl.int64) * columns
    y += gl.program_id(0).to(gl.int64) * columns
    with kscope.region("mean"):
        total = gl.zeros((BLOCK,), gl.float32, layout)
        for i in range(0, columns, BLOCK):
            total += gl.load(x + i + at)
        mean = gl.sum(total, 0) / columns
    with kscope.region("variance"):
        square = gl.zeros((BLOCK,), gl.float32, layout)
        for i in range(0, columns, BLOCK):
            part = gl.load(x + i + at) - mean
            square += part * part
        scale = 1 / gl.sqrt(gl.sum(square, 0) / columns + epsilon)
    with kscope.region("write"):
        for i in range(0, columns, BLOCK):
            part = (gl.load(x + i + at) - mean) * scale
            gl.store(y + i + at, part * gl.load(weight + i + at) + gl.load(bias + i + at))


@gluon.jit
def tasks(x, out, turn, count, each, BLOCK: gl.constexpr, WARPS: gl.constexpr):
    at = gl.arange(0, BLOCK, layout=gl.BlockedLayout([BLOCK // (32 * WARPS)], [32], [WARPS], [0]))
    task = gl.atomic_add(turn, 1)
    while task < count:
        with kscope.region("task", value=task):
            total = gl.load(x + task * each * BLOCK + at)
            for step in range(1, each):
                with kscope.region("step"):
                    total += gl.load(x + (task * each + step) * BLOCK + at)
            gl.store(out + task * BLOCK + at, total)
        with kscope.region("fetch"):
            task = gl.atomic_add(turn, 1)


@gluon.jit
def attention(q, k, v, out, length, factor, WIDTH: gl.constexpr, QUERIES: gl.constexpr, KEYS: gl.constexpr):
    # 256 threads: 4 x 2 scores each (128 x 16), 4 x 4 numbers of the result (128 x 32)
    scored: gl.constexpr = gl.BlockedLayout([4, 2], [4, 8], [8, 1], [1, 0])
    result: gl.constexpr = gl.BlockedLayout([4, 4], [4, 8], [8, 1], [1, 0])
    loaded: gl.constexpr = gl.BlockedLayout([1, 2], [2, 16], [8, 1], [1, 0])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    queries = gl.allocate_shared_memory(gl.float32, [QUERIES, WIDTH], plain)
    keys = gl.allocate_shared_memory(gl.float32, [KEYS, WIDTH], plain)
    values = gl.allocate_shared_memory(gl.float32, [KEYS, WIDTH], plain)
    weighed = gl.allocate_shared_memory(gl.float32, [QUERIES, KEYS], plain)
    head = gl.program_id(1) * length * WIDTH
    rows = gl.program_id(0) * QUERIES + gl.arange(0, QUERIES, layout=gl.SliceLayout(1, result))
    width = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, result))
    place = head + rows[:, None] * WIDTH + width[None, :]
    queries.store(gl.load(q + place) * factor)
    tile = gl.arange(0, KEYS, layout=gl.SliceLayout(1, loaded))[:, None] * WIDTH
    tile += gl.arange(0, WIDTH, layout=gl.SliceLayout(0, loaded))[None, :]
    largest = gl.full((QUERIES,), -1e30, gl.float32, gl.SliceLayout(1, scored))
    norm = gl.zeros((QUERIES,), gl.float32, gl.SliceLayout(1, scored))
    total = gl.zeros((QUERIES, WIDTH), gl.float32, result)
    for n in range(0, length, KEYS):
        with kscope.region("load", value=n):
            keys.store(gl.load(k + head + n * WIDTH + tile))
            values.store(gl.load(v + head + n * WIDTH + tile))
            barrier()
        with kscope.region("scores"):
            left = queries.load(gl.DotOperandLayout(0, scored, 0))
            right = keys.permute((1, 0)).load(gl.DotOperandLayout(1, scored, 0))
            scores = gl.dot_fma(left, right, gl.zeros((QUERIES, KEYS), gl.float32, scored))
        with kscope.region("softmax"):
            larger = gl.maximum(largest, gl.max(scores, 1))
            weights = gl.exp2(scores - larger[:, None])
            correction = gl.exp2(largest - larger)
            norm = norm * correction + gl.sum(weights, 1)
            total = total * gl.convert_layout(correction, gl.SliceLayout(1, result))[:, None]
            largest = larger
        with kscope.region("weigh"):
            weighed.store(weights)
            barrier()
            left = weighed.load(gl.DotOperandLayout(0, result, 0))
            total = gl.dot_fma(left, values.load(gl.DotOperandLayout(1, result, 0)), total)
            barrier()
    with kscope.region("store"):
        gl.store(out + place, total / gl.convert_layout(norm, gl.SliceLayout(1, result))[:, None])


BLOCK = {"BLOCK": 1024, "WARPS": WARPS}
TASK = {"BLOCK": problems.THREADS, "WARPS": WARPS}
ATTENTION = {"WIDTH": problems.WIDTH, "QUERIES": problems.QUERIES, "KEYS": problems.KEYS}


SIGNATURES: dict[str, tuple[Any, dict[str, str], dict[str, int]]] = {
    "layernorm": (
        layernorm,
        {**dict.fromkeys(("x", "weight", "bias", "y"), "*fp32"), "columns": "i32", "epsilon": "fp32"},
        BLOCK,
    ),
    "tasks": (tasks, {**dict.fromkeys(("x", "out"), "*fp32"), "turn": "*i32", "count": "i32", "each": "i32"}, TASK),
    "attention": (
        attention,
        {**dict.fromkeys(("q", "k", "v", "out"), "*fp32"), "length": "i32", "factor": "fp32"},
        ATTENTION,
    ),
}
"""Parameters and constants of the kernels that no example compiles."""


LANGUAGE = Language(gluon_softmax, gluon_gemm, (WARPS,), SIGNATURES, {"num_warps": WARPS}, {})
launch, compiled, built = LANGUAGE.launch, LANGUAGE.compiled, LANGUAGE.built
