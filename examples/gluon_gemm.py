"""A tiled matrix product in Gluon: the same kernel as *_gemm.py in other languages, with the same regions.

    python examples/gluon_gemm.py

Layouts are explicit in Gluon: tiles are in shared memory, and each thread has 4 x 4 numbers of the result;
gluon_warp_specialized.py has a fast product. On a GPU: checks the product against torch, writes gemm.kscope, and prints
one line per region. Without one: compiles the kernel for sm_90.
"""

from __future__ import annotations

from typing import Any

import triton
from shared import show, triton_on_gpu
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import kscope

SIZE, TILE, DEPTH, WARPS = 1024, 64, 16, 8
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # its name up to Triton 3.6


@gluon.jit
def gemm(a, b, c, size, TILE: gl.constexpr, DEPTH: gl.constexpr):
    # 256 threads: 4 x 4 numbers each of the result (64 x 64), and four in a row of each tile (64 x 16 and 16 x 64)
    result: gl.constexpr = gl.BlockedLayout([4, 4], [2, 16], [8, 1], [1, 0])
    of_left: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [8, 1], [1, 0])
    of_right: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [8, 1], [1, 0])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    left = gl.allocate_shared_memory(gl.float32, [TILE, DEPTH], plain)
    right = gl.allocate_shared_memory(gl.float32, [DEPTH, TILE], plain)
    row, column = gl.program_id(1) * TILE, gl.program_id(0) * TILE
    y = gl.arange(0, TILE, layout=gl.SliceLayout(1, of_left))
    x = gl.arange(0, DEPTH, layout=gl.SliceLayout(0, of_left))
    from_a = a + (row + y)[:, None] * size + x[None, :]
    y = gl.arange(0, DEPTH, layout=gl.SliceLayout(1, of_right))
    x = gl.arange(0, TILE, layout=gl.SliceLayout(0, of_right))
    from_b = b + y[:, None] * size + (column + x)[None, :]
    total = gl.zeros((TILE, TILE), gl.float32, result)
    for k in range(0, size, DEPTH):
        with kscope.region("load", value=k):
            left.store(gl.load(from_a + k))
            right.store(gl.load(from_b + k * size))
            barrier()
        with kscope.region("multiply"):
            total = gl.dot_fma(
                left.load(gl.DotOperandLayout(0, result, 0)), right.load(gl.DotOperandLayout(1, result, 0)), total
            )
            barrier()
    with kscope.region("store"):
        y = gl.arange(0, TILE, layout=gl.SliceLayout(1, result))
        x = gl.arange(0, TILE, layout=gl.SliceLayout(0, result))
        gl.store(c + (row + y)[:, None] * size + (column + x)[None, :], total)


def compile_only(arch: int = 90) -> Any:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    types = dict.fromkeys("abc", "*fp32") | {"size": "i32", "TILE": "constexpr", "DEPTH": "constexpr"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    kscope.enable()
    source = GluonASTSource(gemm, types, {"TILE": TILE, "DEPTH": DEPTH}, aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": WARPS})
    kscope.disable()
    print(f"no GPU here: {kernel.name} compiled for sm_{arch} with its regions, {len(kernel.asm['cubin'])} bytes")
    return kernel


def run(size: int = SIZE) -> int:
    """Launch once and check the result; returns the number of records."""
    import torch

    numbers = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=numbers) for _ in range(2))
    c = torch.empty(size, size, device="cuda")
    grid = (size // TILE, size // TILE)
    gemm[grid](a.cuda(), b.cuda(), c, size, TILE, DEPTH, num_warps=WARPS)
    torch.testing.assert_close(c.cpu(), a @ b, rtol=1e-3, atol=1e-3)
    # every warp of every block records the store, and two regions in each iteration
    return grid[0] * grid[1] * WARPS * (1 + 2 * size // DEPTH)


def main() -> None:
    if not triton_on_gpu():
        compile_only()
        return
    with kscope.profile("gemm.kscope") as prof:
        expected = run()
    show(prof.trace, expected, "gemm")


if __name__ == "__main__":
    main()
