"""A warp-specialized matmul in Gluon for Hopper: one warp fetches tiles, four multiply.

    python examples/gluon_warp_specialized.py

Every partition records on a separate track: the timeline shows the fetching warp run ahead, and which warps
wait. On an sm_90 GPU: checks the product against torch, writes gluon.kscope, prints one line
per region. Elsewhere: compiles the kernel for sm_90.
"""

from __future__ import annotations

import triton
from shared import show, triton_on_gpu
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import kscope

SIZE = 2048
BM, BN, BK, STAGES = 128, 128, 64, 4

if hasattr(tma, "async_load"):
    load_tile, store_tile = tma.async_load, tma.async_store
else:  # their names up to Triton 3.6
    load_tile, store_tile = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global


@gluon.jit
def fetch(a, b, a_tiles, b_tiles, empty, ready, row, column, K, BK: gl.constexpr, STAGES: gl.constexpr):
    """The producer: one warp, which requests tiles from the copy engine as buffers become empty."""
    for i in range(K // BK):
        stage, turn = i % STAGES, (i // STAGES) & 1
        with kscope.region("wait_empty", value=i):
            mbarrier.wait(empty.index(stage), turn ^ 1)
        with kscope.region("ask"):
            mbarrier.expect(ready.index(stage), a.block_type.nbytes + b.block_type.nbytes)
            load_tile(a, [row, i * BK], ready.index(stage), a_tiles.index(stage))
            load_tile(b, [i * BK, column], ready.index(stage), b_tiles.index(stage))


@gluon.jit
def multiply(c, a_tiles, b_tiles, empty, ready, row, column, K, BK: gl.constexpr, STAGES: gl.constexpr):
    """The consumer: four warps, one warpgroup."""
    BM: gl.constexpr = c.block_type.shape[0]
    BN: gl.constexpr = c.block_type.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    total = gl.zeros((BM, BN), gl.float32, layout)
    for i in range(K // BK):
        stage, turn = i % STAGES, (i // STAGES) & 1
        with kscope.region("wait_ready", value=i):
            mbarrier.wait(ready.index(stage), turn)
        with kscope.region("multiply"):
            total = warpgroup_mma(a_tiles.index(stage), b_tiles.index(stage), total, is_async=True)
            total = warpgroup_mma_wait(0, deps=(total,))
        mbarrier.arrive(empty.index(stage), count=1)
    with kscope.region("store"):
        tile = gl.allocate_shared_memory(gl.float16, c.block_type.shape, c.layout, total.to(gl.float16))
        fence_async_shared()
        store_tile(c, [row, column], tile)
        tma.store_wait(0)


@gluon.jit
def matmul(a, b, c, K, BK: gl.constexpr, STAGES: gl.constexpr):
    row = gl.program_id(0) * c.block_type.shape[0]
    column = gl.program_id(1) * c.block_type.shape[1]
    a_tiles = gl.allocate_shared_memory(gl.float16, [STAGES] + a.block_type.shape, a.layout)
    b_tiles = gl.allocate_shared_memory(gl.float16, [STAGES] + b.block_type.shape, b.layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(empty.index(stage), count=1)
        mbarrier.init(ready.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (multiply, (c, a_tiles, b_tiles, empty, ready, row, column, K, BK, STAGES)),
            (fetch, (a, b, a_tiles, b_tiles, empty, ready, row, column, K, BK, STAGES)),
        ],
        [1],
        [40],
    )


def compile_only() -> None:
    """Without a Hopper GPU: compile the kernel, with its regions, for a given target."""
    tiles = {"a": (BM, BK), "b": (BK, BN), "c": (BM, BN)}
    types = {
        name: f"tensordesc<fp16[{x}, {y}],{gl.NVMMASharedLayout.get_default_for([x, y], gl.float16)!r}>"
        for name, (x, y) in tiles.items()
    }
    types |= {"K": "i32", "BK": "constexpr", "STAGES": "constexpr"}
    kscope.enable()
    source = GluonASTSource(matmul, types, {"BK": BK, "STAGES": STAGES})
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    kscope.disable()
    print(f"no Hopper GPU here: {kernel.name} compiled for sm_90 with its regions, {len(kernel.asm['cubin'])} bytes")


def on_hopper() -> bool:
    if not triton_on_gpu():
        return False
    import torch

    return torch.cuda.get_device_capability()[0] == 9


def main() -> None:
    if not on_hopper():
        compile_only()
        return
    import torch

    torch.manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    tiles = ((a, [BM, BK]), (b, [BK, BN]), (c, [BM, BN]))
    described = [
        TensorDescriptor.from_tensor(matrix, shape, gl.NVMMASharedLayout.get_default_for(shape, gl.float16))
        for matrix, shape in tiles
    ]
    grid = (SIZE // BM, SIZE // BN)
    with kscope.profile("gluon.kscope") as prof:
        matmul[grid](*described, SIZE, BK, STAGES, num_warps=4)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    # Two regions per iteration in the fetching warp and in each of four that multiply, which also store.
    expected = grid[0] * grid[1] * (2 * SIZE // BK * (1 + 4) + 4)
    show(prof.trace, expected, "gluon")


if __name__ == "__main__":
    main()
