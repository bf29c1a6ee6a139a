"""The problems of on_everywhere.py in CUDA C++, through CuPy: everywhere.cu, and two kernels of the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import cupy
import cupy_gemm
import cupy_softmax
import numpy as np
from problems import (
    BLOCKS_PER_SM,
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

import kscope

SOURCE = Path(__file__).with_name("everywhere.cu").read_text()
DEFINED = (f"-DEPSILON={EPSILON}f", f"-DEACH={EACH}", f"-DKEYS={KEYS}", f"-DWIDTH={WIDTH}")
OPTIONS = (*DEFINED, "-I" + kscope.cuda_include())
layernorm, tasks, attention = (cupy.RawKernel(SOURCE, name, OPTIONS) for name in ("layernorm", "tasks", "attention"))


def launch(kernel: str, given: Problem) -> Callable[[], object]:
    """How the kernel is launched."""
    tensors = [cupy.from_dlpack(tensor) for tensor in (*given.inputs, given.out)]
    if kernel == "softmax":
        columns = np.int32(given.out.shape[1])
        return lambda: cupy_softmax.softmax((ROWS,), (cupy_softmax.THREADS,), (*tensors, columns))
    if kernel == "matmul":
        grid, block = (SIZE // cupy_gemm.TILE,) * 2, (cupy_gemm.TILE // cupy_gemm.EACH,) * 2
        return lambda: cupy_gemm.gemm(grid, block, (*tensors, np.int32(SIZE)))
    if kernel == "layernorm":
        return lambda: layernorm((ROWS,), (THREADS,), (*tensors, np.int32(given.out.shape[1])))
    if kernel == "tasks":
        blocks = BLOCKS_PER_SM * sms()
        return lambda: tasks((blocks,), (THREADS,), (*tensors, np.int32(TASKS)))
    grid = (LENGTH // QUERIES, HEADS)
    return lambda: attention(grid, (QUERIES,), (*tensors, np.int32(LENGTH), np.float32(SCALE)))


def built(arch: int) -> Iterator[tuple[str, bytes]]:
    """Kernels and their cubins, prepared, with no GPU."""
    yield "softmax", cupy_softmax.compile_only(arch)
    yield "matmul", cupy_gemm.compile_only(arch)
    own = cupy_gemm.compile_only(arch, "everywhere", SOURCE, OPTIONS)
    yield from ((name, own) for name in ("layernorm", "tasks", "attention"))
