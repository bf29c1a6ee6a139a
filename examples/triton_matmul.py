"""A Triton matmul, seen from inside: which part of the loop waits?

    python examples/triton_matmul.py

On a GPU: multiplies two 2048 x 2048 fp16 matrices, checks the product against torch, writes
matmul.kscope, and prints one line per region. Without one: compiles the kernel for sm_90.
"""

from __future__ import annotations

import triton
import triton.language as tl
from shared import show, triton_on_gpu
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kscope

SIZE = 2048
TILE = {"BM": 128, "BN": 128, "BK": 64}
OPTIONS = {"num_warps": 8, "num_stages": 3}


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    with kscope.region("mainloop"):
        for k in range(0, K, BK):
            # The loop is software-pipelined: "load" is the wait for a tile requested two
            # iterations ago, and "dot" the issue of the tensor-core work.
            with kscope.region("load"):
                x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
                y = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
            with kscope.region("dot"):
                total = tl.dot(x, y, total)
    with kscope.region("epilogue"):
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


def compile_only(kernel: triton.JITFunction = matmul) -> None:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    types = dict.fromkeys("abc", "*fp16") | dict.fromkeys("MNK", "i32") | dict.fromkeys(TILE, "constexpr")
    with_alignment = {(i,): [["tt.divisibility", 16]] for i in range(6)}
    kscope.enable()
    source = ASTSource(kernel, types, TILE, with_alignment)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=OPTIONS)
    kscope.disable()
    print(f"no GPU here: {compiled.name} compiled for sm_90 with its regions, {len(compiled.asm['cubin'])} bytes")


def main() -> None:
    if not triton_on_gpu():
        compile_only()
        return
    import torch

    torch.manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    grid = (SIZE // TILE["BM"], SIZE // TILE["BN"])
    with kscope.profile("matmul.kscope") as prof:
        matmul[grid](a, b, c, SIZE, SIZE, SIZE, **TILE, **OPTIONS)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    # 8 warps of every block record the loop, the epilogue, and two regions in each of 32 iterations.
    expected = grid[0] * grid[1] * 8 * (2 + 2 * SIZE // TILE["BK"])
    show(prof.trace, expected, "matmul")


if __name__ == "__main__":
    main()
