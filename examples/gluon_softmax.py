"""A softmax in Gluon: three passes over a row. The same kernel as *_softmax.py in other languages, same regions.

    python examples/gluon_softmax.py

On a GPU: computes the softmax of 4096 rows, checks it against torch, writes softmax.kscope, and prints one line per
region. Without one: compiles the kernel for sm_90.
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

ROWS, COLUMNS, WARPS = 4096, 8192, 8
BLOCK = 1024
"""Numbers of a row that a block takes at once."""


@gluon.jit
def softmax(x, out, columns, BLOCK: gl.constexpr, WARPS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([BLOCK // (32 * WARPS)], [32], [WARPS], [0])
    at = gl.arange(0, BLOCK, layout=layout)
    x += gl.program_id(0).to(gl.int64) * columns
    out += gl.program_id(0).to(gl.int64) * columns
    with kscope.region("maximum"):
        highest = gl.full((BLOCK,), float("-inf"), gl.float32, layout)
        for i in range(0, columns, BLOCK):
            highest = gl.maximum(highest, gl.load(x + i + at))
        most = gl.max(highest, 0)
    with kscope.region("sum"):
        total = gl.zeros((BLOCK,), gl.float32, layout)
        for i in range(0, columns, BLOCK):
            total += gl.exp(gl.load(x + i + at) - most)
        whole = gl.sum(total, 0)
    with kscope.region("write"):
        for i in range(0, columns, BLOCK):
            gl.store(out + i + at, gl.exp(gl.load(x + i + at) - most) / whole)


def compile_only(arch: int = 90) -> Any:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    types = {"x": "*fp32", "out": "*fp32", "columns": "i32", "BLOCK": "constexpr", "WARPS": "constexpr"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(3)}
    kscope.enable()
    source = GluonASTSource(softmax, types, {"BLOCK": BLOCK, "WARPS": WARPS}, aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": WARPS})
    kscope.disable()
    print(f"no GPU here: {kernel.name} compiled for sm_{arch} with its regions, {len(kernel.asm['cubin'])} bytes")
    return kernel


def run(rows: int = ROWS) -> int:
    """Launch once and check the result; returns the number of records."""
    import torch

    x = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(0)).cuda()
    out = torch.empty_like(x)
    softmax[(rows,)](x, out, COLUMNS, BLOCK, WARPS, num_warps=WARPS)
    torch.testing.assert_close(out, torch.softmax(x, 1), rtol=1e-4, atol=1e-7)
    return rows * WARPS * 3  # every warp of every block records three regions


def main() -> None:
    if not triton_on_gpu():
        compile_only()
        return
    with kscope.profile("softmax.kscope") as prof:
        expected = run()
    show(prof.trace, expected, "softmax")


if __name__ == "__main__":
    main()
