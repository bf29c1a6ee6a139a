"""A CUDA graph of two Triton kernels, replayed a hundred times: shown as a hundred launches of each.

    python examples/triton_graph.py

On a GPU: captures the graph once, replays it while recording, checks that every replay is there, and
prints one line per region. Without one: compiles the kernels for sm_90.
"""

from __future__ import annotations

import triton
import triton.language as tl
from shared import triton_on_gpu
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kscope

SIZE, BLOCK, REPLAYS = 1 << 16, 1024, 100


@triton.jit
def scale(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with kscope.region("load"):
        values = tl.load(x + at)
    with kscope.region("store"):
        tl.store(out + at, values * 2)


@triton.jit
def add_one(out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with kscope.region("update"):
        tl.store(out + at, tl.load(out + at) + 1)


def compile_only() -> None:
    """Without a GPU: compile the kernels, with their regions, for a given target."""
    kscope.enable()
    for kernel, pointers in ((scale, ("x", "out")), (add_one, ("out",))):
        types = dict.fromkeys(pointers, "*fp32") | {"BLOCK": "constexpr"}
        source = ASTSource(kernel, types, {"BLOCK": BLOCK})
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        print(f"no GPU here: {compiled.name} compiled for sm_90 with its regions, {len(compiled.asm['cubin'])} bytes")
    kscope.disable()


def main() -> None:
    if not triton_on_gpu():
        compile_only()
        return
    import torch

    torch.manual_seed(0)
    x = torch.randn(SIZE, device="cuda")
    out = torch.empty_like(x)
    grid = (SIZE // BLOCK,)

    def work() -> None:
        scale[grid](x, out, BLOCK)
        add_one[grid](out, BLOCK)

    kscope.enable()  # graphs captured from here on can record
    work()  # compiles: nothing may be compiled while a graph is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    with kscope.profile("graph.kscope") as prof:
        for _ in range(REPLAYS):
            graph.replay()
        torch.cuda.synchronize()
    kscope.disable()
    torch.testing.assert_close(out, x * 2 + 1)
    launches = [launch.kernel for launch in prof.trace.launches]
    assert launches.count("scale") == launches.count("add_one") == REPLAYS, f"{len(launches)} launches"
    # 4 warps per block: two regions in one kernel, one in the other
    expected = REPLAYS * grid[0] * 4 * 3
    assert len(prof.trace) == expected, f"{len(prof.trace)} records, expected {expected}"
    print(prof.trace.summary())


if __name__ == "__main__":
    main()
