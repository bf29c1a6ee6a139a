"""A tiled matrix product in CuTe DSL: the same kernel as *_gemm.py in other languages, with the same regions.

    python examples/cute_tiled_gemm.py

Common features only: 32-bit floats, tiles of 64 x 64 x 16, a block of 256 threads, no pipeline; cute_gemm.py has a fast
product. On a GPU: checks the product against torch, writes gemm.kscope, and prints one line per region. Without one:
compiles the kernel for sm_90a.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

if not any(Path("/dev").glob("nvidia[0-9]*")):  # CuTe needs the architecture when it is imported
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cutlass
from cuda.bindings import driver
from cutlass import Float32, Int32, cute, utils
from cutlass.cute.runtime import make_fake_compact_tensor
from shared import show, torch_on_gpu

import kscope

SIZE, TILE, DEPTH, EACH = 1024, 64, 16, 4
"""A block computes TILE x TILE numbers, each of its threads EACH x EACH of them."""
ACROSS = TILE // EACH
THREADS = ACROSS * ACROSS


@cute.kernel
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block_x, block_y, _ = cute.arch.block_idx()
    x, y = thread % ACROSS, thread // ACROSS
    memory = getattr(cutlass, "memory", utils).SmemAllocator()  # its place up to 4.7 is utils
    left = memory.allocate_tensor(Float32, cute.make_layout((TILE, DEPTH), stride=(DEPTH + 1, 1)), byte_alignment=16)
    right = memory.allocate_tensor(Float32, cute.make_layout((DEPTH, TILE), stride=(TILE, 1)), byte_alignment=16)
    from_a = cute.local_tile(a, (TILE, DEPTH), (block_y, None))  # (TILE, DEPTH, steps)
    from_b = cute.local_tile(b, (DEPTH, TILE), (None, block_x))  # (DEPTH, TILE, steps)
    into_c = cute.local_tile(c, (TILE, TILE), (block_y, block_x))
    total = cute.make_rmem_tensor((EACH, EACH), Float32)
    total.fill(0.0)
    for step in cutlass.range(SIZE // DEPTH, unroll=1):
        with kscope.region("load", value=Int32(step * DEPTH)):
            for part in cutlass.range_constexpr(TILE * DEPTH // THREADS):
                i = thread + part * THREADS
                left[i // DEPTH, i % DEPTH] = from_a[i // DEPTH, i % DEPTH, step]
                right[i // TILE, i % TILE] = from_b[i // TILE, i % TILE, step]
            cute.arch.sync_threads()
        with kscope.region("multiply"):
            for inner in cutlass.range_constexpr(DEPTH):
                for i in cutlass.range_constexpr(EACH):
                    for j in cutlass.range_constexpr(EACH):
                        total[i, j] += left[y * EACH + i, inner] * right[inner, x * EACH + j]
            cute.arch.sync_threads()
    with kscope.region("store"):
        for i in cutlass.range_constexpr(EACH):
            for j in cutlass.range_constexpr(EACH):
                into_c[y * EACH + i, x * EACH + j] = total[i, j]


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: driver.CUstream):
    gemm(a, b, c).launch(grid=[SIZE // TILE, SIZE // TILE, 1], block=[THREADS, 1, 1], stream=stream)


def compile_only(arch: str = "90a", options: str = "") -> Any:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    fakes = [make_fake_compact_tensor(Float32, (SIZE, SIZE), stride_order=(1, 0), assumed_align=16) for _ in range(3)]
    kscope.enable()
    compiled = cute.compile(launch, *fakes, driver.CUstream(0), options=f"--gpu-arch sm_{arch} {options}")
    kscope.disable()
    print(f"no GPU here: gemm compiled for sm_{arch} with its regions")
    return compiled


def run() -> int:
    """Launch once and check the result; returns the number of records."""
    import torch
    from cutlass.cute.runtime import from_dlpack

    numbers = torch.Generator().manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, generator=numbers) for _ in range(2))
    c = torch.empty(SIZE, SIZE, device="cuda")
    tensors = [from_dlpack(tensor, assumed_align=16) for tensor in (a.cuda(), b.cuda(), c)]
    launch(*tensors, driver.CUstream(torch.cuda.current_stream().cuda_stream))
    torch.testing.assert_close(c.cpu(), a @ b, rtol=1e-3, atol=1e-3)
    # every warp of every block records the store, and two regions in each iteration
    return (SIZE // TILE) ** 2 * THREADS // 32 * (1 + 2 * SIZE // DEPTH)


def main() -> None:
    if not torch_on_gpu():
        compile_only()
        return
    with kscope.profile("gemm.kscope") as prof:
        expected = run()
    show(prof.trace, expected, "gemm")


if __name__ == "__main__":
    main()
