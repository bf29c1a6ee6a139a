"""The problems of on_everywhere.py in CUDA C++, through CuPy: everywhere.cu, and two kernels of the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import cupy
import cupy_gemm
import cupy_softmax
import numpy as np
import problems

import kscope

SOURCE = Path(__file__).with_name("everywhere.cu").read_text()
DEFINED = (
    f"-DEPSILON={problems.EPSILON}f",
    f"-DEACH={problems.EACH}",
    f"-DKEYS={problems.KEYS}",
    f"-DWIDTH={problems.WIDTH}",
)
OPTIONS = (*DEFINED, "-I" + kscope.cuda_include())
layernorm, tasks, attention = (cupy.RawKernel(SOURCE, name, OPTIONS) for name in ("layernorm", "tasks", "attention"))


def launch(kernel: str, given: problems.Problem) -> Callable[[], object]:
    """A function that launches the kernel."""
    tensors = [cupy.from_dlpack(tensor) for tensor in (*given.inputs, given.out)]
    if kernel == "softmax":
        columns = np.int32(given.out.shape[1])
        return lambda: cupy_softmax.softmax((problems.ROWS,), (cupy_softmax.THREADS,), (*tensors, columns))
    if kernel == "matmul":
        grid, block = (problems.SIZE // cupy_gemm.TILE,) * 2, (cupy_gemm.TILE // cupy_gemm.EACH,) * 2
        return lambda: cupy_gemm.gemm(grid, block, (*tensors, np.int32(problems.SIZE)))
    if kernel == "layernorm":
        return lambda: layernorm((problems.ROWS,), (problems.THREADS,), (*tensors, np.int32(given.out.shape[1])))
    if kernel == "tasks":
        return lambda: tasks(problems.grid(kernel), (problems.THREADS,), (*tensors, np.int32(problems.TASKS)))
    arguments = (*tensors, np.int32(problems.LENGTH), np.float32(problems.SCALE))
    return lambda: attention(problems.grid(kernel), (problems.QUERIES,), arguments)


def built(arch: int) -> Iterator[tuple[str, bytes]]:
    """Each kernel's name and cubin, compiled with inactive marks, without a GPU."""
    yield "softmax", cupy_softmax.compile_only(arch)
    yield "matmul", cupy_gemm.compile_only(arch)
    own = cupy_gemm.compile_only(arch, "everywhere", SOURCE, OPTIONS)
    yield from ((name, own) for name in ("layernorm", "tasks", "attention"))
