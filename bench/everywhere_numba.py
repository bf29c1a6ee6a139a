"""The problems of on_everywhere.py in Numba: three kernels, and two of the examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numba_gemm
import numba_softmax
import numpy as np
from numba import cuda, float32, int32, void
from numba_softmax import fold
from problems import (
    COLUMNS,
    EACH,
    EPSILON,
    KEYS,
    QUERIES,
    ROWS,
    SCALE,
    SIZE,
    TASKS,
    THREADS,
    WIDTH,
    Problem,
    grid,
)

import kscope
import kscope_numba

kscope_numba.teach()  # kernels also run plain, and kscope may be uninstalled, in PYTHONPATH only
EPS, FACTOR = np.float32(EPSILON), np.float32(SCALE)
PER_TILE = KEYS * WIDTH


@cuda.jit
def layernorm(x, weight, bias, y):
    shared = cuda.shared.array(THREADS, float32)
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    with kscope.region("mean"):
        total = float32(0)
        for i in range(thread, x.shape[1], THREADS):
            total += x[row, i]
        shared[thread] = total
        mean = fold(shared, False) / float32(COLUMNS)
    with kscope.region("variance"):
        square = float32(0)
        for i in range(thread, x.shape[1], THREADS):
            part = x[row, i] - mean
            square += part * part
        shared[thread] = square
        scale = float32(1) / math.sqrt(fold(shared, False) / float32(COLUMNS) + EPS)
    with kscope.region("write"):
        for i in range(thread, x.shape[1], THREADS):
            y[row, i] = (x[row, i] - mean) * scale * weight[i] + bias[i]


@cuda.jit(device=True)
def fetched(turn, shared):
    """The next task, for every thread of the block."""
    if cuda.threadIdx.x == 0:
        shared[0] = cuda.atomic.add(turn, 0, 1)
    cuda.syncthreads()
    task = shared[0]
    cuda.syncthreads()
    return task


@cuda.jit
def tasks(x, turn, out):
    shared = cuda.shared.array(1, int32)
    thread = cuda.threadIdx.x
    task = fetched(turn, shared)
    while task < TASKS:
        with kscope.region("task", value=int32(task)):
            total = float32(0)
            for step in range(EACH):
                with kscope.region("step"):
                    total += x[task, step, thread]
            out[task, thread] = total
        with kscope.region("fetch"):
            task = fetched(turn, shared)


@cuda.jit
def attention(q, k, v, out):
    keys = cuda.shared.array((KEYS, WIDTH), float32)
    values = cuda.shared.array((KEYS, WIDTH), float32)
    query = cuda.local.array(WIDTH, float32)
    total = cuda.local.array(WIDTH, float32)
    weights = cuda.local.array(KEYS, float32)
    head, thread = cuda.blockIdx.y, cuda.threadIdx.x
    row = cuda.blockIdx.x * QUERIES + thread
    for d in range(WIDTH):
        query[d] = q[head, row, d] * FACTOR
        total[d] = 0
    largest, norm = float32(-1e30), float32(0)
    for n in range(0, k.shape[1], KEYS):
        with kscope.region("load", value=int32(n)):
            for i in range(thread, PER_TILE, QUERIES):
                keys[i // WIDTH, i % WIDTH] = k[head, n + i // WIDTH, i % WIDTH]
                values[i // WIDTH, i % WIDTH] = v[head, n + i // WIDTH, i % WIDTH]
            cuda.syncthreads()
        with kscope.region("scores"):
            for j in range(KEYS):
                score = float32(0)
                for d in range(WIDTH):
                    score += query[d] * keys[j, d]
                weights[j] = score
        with kscope.region("softmax"):
            larger = largest
            for j in range(KEYS):
                larger = max(larger, weights[j])
            correction = cuda.libdevice.exp2f(largest - larger)
            norm *= correction
            for j in range(KEYS):
                weights[j] = cuda.libdevice.exp2f(weights[j] - larger)
                norm += weights[j]
            for d in range(WIDTH):
                total[d] *= correction
            largest = larger
        with kscope.region("weigh"):
            for j in range(KEYS):
                for d in range(WIDTH):
                    total[d] += weights[j] * values[j, d]
            cuda.syncthreads()
    with kscope.region("store"):
        for d in range(WIDTH):
            out[head, row, d] = total[d] / norm


def launch(kernel: str, given: Problem) -> Callable[[], object]:
    """A function that launches the kernel."""
    arrays = [cuda.as_cuda_array(tensor) for tensor in (*given.inputs, given.out)]
    if kernel == "softmax":
        return lambda: numba_softmax.softmax[ROWS, numba_softmax.THREADS](*arrays)
    if kernel == "matmul":
        tiles, block = (SIZE // numba_gemm.TILE,) * 2, (numba_gemm.ACROSS,) * 2
        return lambda: numba_gemm.gemm[tiles, block](*arrays)
    it = SIGNATURES[kernel][0][grid(kernel), QUERIES if kernel == "attention" else THREADS]
    return lambda: it(*arrays)


_VECTOR, _MATRIX, _CUBE = float32[::1], float32[:, ::1], float32[:, :, ::1]
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (numba_softmax.softmax, (_MATRIX,) * 2),
    "matmul": (numba_gemm.gemm, (_MATRIX,) * 3),
    "layernorm": (layernorm, (_MATRIX, _VECTOR, _VECTOR, _MATRIX)),
    "tasks": (tasks, (_CUBE, int32[::1], _MATRIX)),
    "attention": (attention, (_CUBE,) * 4),
}
"""Argument types of each kernel."""


def compiled(kernel: str, arch: int = 90) -> Any:
    """Numba's code library of one kernel, prepared without a GPU."""
    from contract import numba_offline

    from kscope.instrument import registry
    from kscope.instrument.recording import Recording

    registry.frontend("numba").enable(Recording())
    it, types = SIGNATURES[kernel]
    return numba_offline.built(it, void(*types), divmod(arch, 10))


def built(arch: int) -> Iterator[tuple[str, bytes]]:
    """Each kernel's name and cubin, compiled with inactive marks, without a GPU."""
    for kernel in SIGNATURES:
        yield kernel, compiled(kernel, arch).get_cubin(cc=divmod(arch, 10)).code
