"""The problems of on_everywhere.py in CuTe DSL: three kernels, and two of the examples."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import cute_softmax
import cute_tiled_gemm
import cutlass
from cuda.bindings import driver
from cute_softmax import across
from cutlass import Float32, Int32, cute, utils
from cutlass.cute.runtime import make_fake_compact_tensor
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
    TASKS,
    THREADS,
    WIDTH,
    Problem,
    sms,
)

import kscope


@cute.kernel
def layernorm(x: cute.Tensor, weight: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    memory = getattr(cutlass, "memory", utils).SmemAllocator()  # its place up to 4.7 is utils
    shared = memory.allocate_tensor(Float32, cute.make_layout(THREADS // 32), byte_alignment=16)
    with kscope.region("mean"):
        mean = Float32(0)
        for i in cutlass.range(thread, COLUMNS, THREADS):
            mean += x[row, i]
        mean = across(mean, shared, operator.add) / COLUMNS
    with kscope.region("variance"):
        scale = Float32(0)
        for i in cutlass.range(thread, COLUMNS, THREADS):
            part = x[row, i] - mean
            scale += part * part
        scale = cute.math.rsqrt(across(scale, shared, operator.add) / COLUMNS + EPSILON)
    with kscope.region("write"):
        for i in cutlass.range(thread, COLUMNS, THREADS):
            y[row, i] = (x[row, i] - mean) * scale * weight[i] + bias[i]


@cute.jit
def fetched(turn: cute.Tensor, shared: cute.Tensor) -> Int32:
    """The next task, for every thread of the block."""
    thread, _, _ = cute.arch.thread_idx()
    if thread == 0:
        shared[0] = cute.arch.atomic_add(turn.iterator, Int32(1))
    cute.arch.sync_threads()
    task = shared[0]
    cute.arch.sync_threads()
    return task


@cute.kernel
def tasks(x: cute.Tensor, turn: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    memory = getattr(cutlass, "memory", utils).SmemAllocator()  # its place up to 4.7 is utils
    shared = memory.allocate_tensor(Int32, cute.make_layout(1), byte_alignment=16)
    task = fetched(turn, shared)
    while task < TASKS:
        with kscope.region("task", value=task):
            total = Float32(0)
            for step in cutlass.range(EACH, unroll=1):
                with kscope.region("step"):
                    total += x[task, step, thread]
            out[task, thread] = total
        with kscope.region("fetch"):
            task = fetched(turn, shared)


@cute.kernel
def attention(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, head, _ = cute.arch.block_idx()
    row = block * QUERIES + thread
    memory = getattr(cutlass, "memory", utils).SmemAllocator()  # its place up to 4.7 is utils
    tile = cute.make_layout((KEYS, WIDTH), stride=(WIDTH, 1))
    keys = memory.allocate_tensor(Float32, tile, byte_alignment=16)
    values = memory.allocate_tensor(Float32, tile, byte_alignment=16)
    query, total = cute.make_rmem_tensor((WIDTH,), Float32), cute.make_rmem_tensor((WIDTH,), Float32)
    weights = cute.make_rmem_tensor((KEYS,), Float32)
    for d in cutlass.range_constexpr(WIDTH):
        query[d] = q[head, row, d] * SCALE
    total.fill(0.0)
    largest, norm = Float32(-1e30), Float32(0)
    for n in cutlass.range(LENGTH // KEYS, unroll=1):
        with kscope.region("load", value=Int32(n * KEYS)):
            for part in cutlass.range_constexpr(KEYS * WIDTH // QUERIES):
                i = thread + part * QUERIES
                keys[i // WIDTH, i % WIDTH] = k[head, n * KEYS + i // WIDTH, i % WIDTH]
                values[i // WIDTH, i % WIDTH] = v[head, n * KEYS + i // WIDTH, i % WIDTH]
            cute.arch.sync_threads()
        with kscope.region("scores"):
            for j in cutlass.range_constexpr(KEYS):
                score = Float32(0)
                for d in cutlass.range_constexpr(WIDTH):
                    score += query[d] * keys[j, d]
                weights[j] = score
        with kscope.region("softmax"):
            larger = largest
            for j in cutlass.range_constexpr(KEYS):
                larger = cute.arch.fmax(larger, weights[j])
            correction = cute.math.exp2(largest - larger, fastmath=True)
            norm = norm * correction
            for j in cutlass.range_constexpr(KEYS):
                weights[j] = cute.math.exp2(weights[j] - larger, fastmath=True)
                norm = norm + weights[j]
            for d in cutlass.range_constexpr(WIDTH):
                total[d] = total[d] * correction
            largest = larger
        with kscope.region("weigh"):
            for j in cutlass.range_constexpr(KEYS):
                for d in cutlass.range_constexpr(WIDTH):
                    total[d] = total[d] + weights[j] * values[j, d]
            cute.arch.sync_threads()
    with kscope.region("store"):
        for d in cutlass.range_constexpr(WIDTH):
            out[head, row, d] = total[d] / norm


@cute.jit
def run_layernorm(x: cute.Tensor, weight: cute.Tensor, bias: cute.Tensor, y: cute.Tensor, stream: driver.CUstream):
    layernorm(x, weight, bias, y).launch(grid=[ROWS, 1, 1], block=[THREADS, 1, 1], stream=stream)


@cute.jit
def run_tasks(x: cute.Tensor, turn: cute.Tensor, out: cute.Tensor, blocks: cutlass.Constexpr, stream: driver.CUstream):
    tasks(x, turn, out).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)


@cute.jit
def run_attention(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor, stream: driver.CUstream):
    attention(q, k, v, out).launch(grid=[LENGTH // QUERIES, HEADS, 1], block=[QUERIES, 1, 1], stream=stream)


def launch(kernel: str, given: Problem) -> Callable[[], object]:
    """A function that launches the kernel."""
    import torch
    from cutlass.cute.runtime import from_dlpack

    tensors = [from_dlpack(tensor, assumed_align=16) for tensor in (*given.inputs, given.out)]
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    if kernel == "tasks":
        blocks = BLOCKS_PER_SM * sms()
        return lambda: run_tasks(*tensors, blocks, stream)
    launches = {
        "softmax": cute_softmax.launch, "matmul": cute_tiled_gemm.launch, "layernorm": run_layernorm,
        "attention": run_attention,
    }  # fmt: skip
    return lambda: launches[kernel](*tensors, stream)


def _fake(*shape: int, kind: Any = Float32) -> Any:
    order = tuple(reversed(range(len(shape))))
    return make_fake_compact_tensor(kind, shape, stride_order=order, assumed_align=16)


def compiled(kernel: str, arch: int = 90, options: str = "") -> Any:
    """One kernel, prepared without a GPU. options: CuTe's, such as --keep-ptx."""
    if kernel in ("softmax", "matmul"):
        return (cute_softmax if kernel == "softmax" else cute_tiled_gemm).compile_only(f"{arch}a", options)
    row, vector = _fake(ROWS, COLUMNS), _fake(COLUMNS)
    of_heads = [_fake(HEADS, LENGTH, WIDTH) for _ in range(4)]
    made: dict[str, tuple[Any, list[Any]]] = {
        "layernorm": (run_layernorm, [row, vector, vector, row]),
        "tasks": (run_tasks, [_fake(TASKS, EACH, THREADS), _fake(1, kind=Int32), _fake(TASKS, THREADS), 264]),
        "attention": (run_attention, of_heads),
    }
    it, arguments = made[kernel]
    kscope.enable()
    done = cute.compile(it, *arguments, driver.CUstream(0), options=f"--gpu-arch sm_{arch}a {options}")
    kscope.disable()
    return done


def built(arch: int) -> Iterator[tuple[str, bytes]]:
    """Each kernel's name and cubin, compiled with inactive marks, without a GPU."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for kernel in ("softmax", "matmul", "layernorm", "tasks", "attention"):
            yield kernel, compiled(kernel, arch, f"--keep-cubin --dump-dir {folder}").__cubin__
