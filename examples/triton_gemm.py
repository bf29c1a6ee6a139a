"""A tiled matrix product in Triton: the same kernel as *_gemm.py in other languages, with the same regions.

    python examples/triton_gemm.py

Common features only: 32-bit floats, tiles of 64 x 64 x 16, a block of 256 threads, no pipeline; triton_matmul.py has a
fast product. On a GPU: checks the product against torch, writes gemm.kscope, and prints one line per region. Without
one: compiles the kernel for sm_90.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from shared import show, triton_on_gpu
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kscope

SIZE, TILE, DEPTH, WARPS = 1024, 64, 16, 8


@triton.jit
def gemm(a, b, c, size, TILE: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, DEPTH)
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, size, DEPTH):
        with kscope.region("load", value=k) as load:
            left = tl.load(a + rows[:, None] * size + (k + inner)[None, :])
            right = tl.load(b + (k + inner)[:, None] * size + columns[None, :])
            # A load ends when it is issued; the first use waits. So use the numbers within the region.
            load.pin(left)
            load.pin(right)
        with kscope.region("multiply"):
            total = tl.dot(left, right, total, input_precision="ieee")  # not in the tensor cores' 19 bits
    with kscope.region("store"):
        tl.store(c + rows[:, None] * size + columns[None, :], total)


def compile_only(arch: int = 90) -> Any:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    types = dict.fromkeys("abc", "*fp32") | {"size": "i32", "TILE": "constexpr", "DEPTH": "constexpr"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    kscope.enable()
    source = ASTSource(gemm, types, {"TILE": TILE, "DEPTH": DEPTH}, aligned)
    options = {"num_warps": WARPS, "num_stages": 1}
    kernel = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    kscope.disable()
    print(f"no GPU here: {kernel.name} compiled for sm_{arch} with its regions, {len(kernel.asm['cubin'])} bytes")
    return kernel


def run(size: int = SIZE, device: str = "cuda") -> int:
    """Launch once and check the result; returns the number of records."""
    import torch

    numbers = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=numbers) for _ in range(2))
    c = torch.empty(size, size, device=device)
    grid = (size // TILE, size // TILE)
    gemm[grid](a.to(device), b.to(device), c, size, TILE, DEPTH, num_warps=WARPS, num_stages=1)
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
