"""A softmax in Triton: three passes over a row. The same kernel as *_softmax.py in other languages, same regions.

    python examples/triton_softmax.py

On a GPU: computes the softmax of 4096 rows, checks it against torch, writes softmax.kscope, and prints one line per
region. Without one: compiles the kernel for sm_90. With TRITON_INTERPRET=1: the same with four rows, on the CPU.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from shared import show
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kscope

ROWS, COLUMNS, WARPS = 4096, 8192, 8
BLOCK = 1024
"""Numbers of a row that a block takes at once."""


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x += tl.program_id(0).to(tl.int64) * columns
    out += tl.program_id(0).to(tl.int64) * columns
    with kscope.region("maximum"):
        highest = tl.full((BLOCK,), float("-inf"), tl.float32)
        for i in range(0, columns, BLOCK):
            highest = tl.maximum(highest, tl.load(x + i + at))
        most = tl.max(highest, 0)
    with kscope.region("sum"):
        total = tl.zeros((BLOCK,), tl.float32)
        for i in range(0, columns, BLOCK):
            total += tl.exp(tl.load(x + i + at) - most)
        whole = tl.sum(total, 0)
    with kscope.region("write"):
        for i in range(0, columns, BLOCK):
            tl.store(out + i + at, tl.exp(tl.load(x + i + at) - most) / whole)


def compile_only(arch: int = 90) -> Any:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    types = {"x": "*fp32", "out": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
    kscope.enable()
    source = ASTSource(softmax, types, {"BLOCK": BLOCK}, {(i,): [["tt.divisibility", 16]] for i in range(3)})
    kernel = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": WARPS})
    kscope.disable()
    print(f"no GPU here: {kernel.name} compiled for sm_{arch} with its regions, {len(kernel.asm['cubin'])} bytes")
    return kernel


def run(rows: int = ROWS, device: str = "cuda", warps: int = WARPS) -> int:
    """Launch once and check the result; returns the number of records."""
    import torch

    x = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(0)).to(device)
    out = torch.empty_like(x)
    softmax[(rows,)](x, out, COLUMNS, BLOCK, num_warps=WARPS)
    torch.testing.assert_close(out, torch.softmax(x, 1), rtol=1e-4, atol=1e-7)
    return rows * warps * 3  # every warp of every block records three regions


def main() -> None:
    interpreted = triton.knobs.runtime.interpret
    if not interpreted and not backends["nvidia"].driver.is_active():
        compile_only()
        return
    with kscope.profile("softmax.kscope") as prof:
        expected = run(rows=4, device="cpu", warps=1) if interpreted else run()  # the interpreter has one warp a block
    show(prof.trace, expected, "softmax")


if __name__ == "__main__":
    main()
