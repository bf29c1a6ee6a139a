"""A warp-specialized, persistent matmul in CuTe DSL for Hopper: one warp fetches tiles, two warpgroups multiply.

    python examples/cute_gemm.py

Blocks work in pairs, clusters of two, on vertically adjacent tiles of c: each fetches one half of the common tile of b,
for both (TMA multicast), and a stage is free again when the consumers of both blocks have released it. Every warp
records on a separate track, with its role as the outermost region: the timeline shows the producer run ahead, and which
warp waits. On an sm_90 GPU: checks the product against torch, writes cute.kscope, prints one line per region;
elsewhere: compiles the kernel for sm_90a.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")  # read when CuTe is imported; there may be no GPU

import cutlass
import cutlass.utils.hopper_helpers as hopper
from cuda.bindings import driver
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor
from shared import show

import kscope

SIZE = 4096
BM, BN, BK, STAGES = 128, 256, 64, 4
GROUP = 128  # threads of a warpgroup
CONSUMERS = 2  # warpgroups that multiply, after the one in which a warp fetches
PAIR = 2  # blocks of a cluster, which share tiles of b
HALF, FLOAT = cutlass.Float16, cutlass.Float32


@cute.kernel
def gemm(
    mma: cute.TiledMma,
    load_a: cute.CopyAtom,
    a: cute.Tensor,
    load_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    a_layout: cute.ComposedLayout,
    b_layout: cute.ComposedLayout,
):
    """c = a @ b.T for K-major a (M, K) and b (N, K): every block takes every gridDim-th tile of c.

    Tiles are counted down the columns of c. gridDim and the tiles in a column are even, so what a pair of blocks takes
    is a pair of tiles in one column, and both blocks take equally many.
    """
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()
    half = cute.arch.block_idx_in_cluster()  # of b's tile, that this block fetches

    shared = getattr(cutlass, "memory", utils).SmemAllocator()  # its place up to 4.7 is utils
    barriers = shared.allocate_array(cutlass.Int64, STAGES * 2)
    tiles_a = shared.allocate_tensor(HALF, a_layout.outer, byte_alignment=1024, swizzle=a_layout.inner)
    tiles_b = shared.allocate_tensor(HALF, b_layout.outer, byte_alignment=1024, swizzle=b_layout.inner)
    buffers = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, PAIR * CONSUMERS * 4),  # warps of both blocks
        tx_count=(BM + BN) * BK * 2,  # bytes that arrive in a block, from both blocks' copies
        cta_layout_vmnk=cute.make_layout((1, PAIR, 1, 1)),
        # Lane 0 of a consumer's warp releases stages of block 0, and lane 1 those of block 1. Otherwise the lane comes
        # from another thread_idx(), read where a stage is released, and ptxas treats the code around it as divergent.
        tidx=cute.arch.lane_idx(),
    )

    from_a = cute.local_tile(a, (BM, BK), (None, None))  # (BM, BK, rows, k)
    from_b = cute.local_tile(b, (BN, BK), (None, None))  # (BN, BK, columns, k)
    into_c = cute.local_tile(c, (BM, BN), (None, None))  # (BM, BN, rows, columns)
    into_a, from_a = cpasync.tma_partition(
        load_a, 0, cute.make_layout(1), cute.group_modes(tiles_a, 0, 2), cute.group_modes(from_a, 0, 2)
    )
    into_b, from_b = cpasync.tma_partition(
        load_b, half, cute.make_layout(PAIR), cute.group_modes(tiles_b, 0, 2), cute.group_modes(from_b, 0, 2)
    )
    rows = cute.size(into_c, mode=[2])
    tiles = rows * cute.size(into_c, mode=[3])
    count = cute.size(from_a, mode=[2])

    if warp < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp == 0:
            with kscope.region("producer"):
                filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
                for tile in cutlass.range(first, tiles, step):
                    for k in cutlass.range(count):
                        with kscope.region("wait_empty", value=k):
                            buffers.producer_acquire(filling)
                        with kscope.region("ask"):
                            arrival = buffers.producer_get_barrier(filling)
                            cute.copy(
                                load_a,
                                from_a[(None, tile % rows, k)],
                                into_a[(None, filling.index)],
                                tma_bar_ptr=arrival,
                            )
                            cute.copy(
                                load_b,
                                from_b[(None, tile // rows, k)],
                                into_b[(None, filling.index)],
                                tma_bar_ptr=arrival,
                                mcast_mask=cutlass.Int16(2**PAIR - 1),  # to all blocks of the cluster
                            )
                        buffers.producer_commit(filling)
                        filling.advance()
                buffers.producer_tail(filling)  # waits until the other block has finished with this one
    else:
        cute.arch.setmaxregister_increase(232)
        with kscope.region("consumer"):
            ours = mma.get_slice(cute.arch.make_warp_uniform(thread // GROUP - 1) * GROUP)  # the warpgroup's
            fragments_a = mma.make_fragment_A(ours.partition_A(tiles_a))
            fragments_b = mma.make_fragment_B(ours.partition_B(tiles_b))
            places = mma.get_slice(thread - GROUP).partition_C(into_c)
            total = cute.make_rmem_tensor(places.shape[:3], FLOAT)
            rounded = cute.make_rmem_tensor(places.shape[:3], HALF)
            reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
            done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
            for tile in cutlass.range(first, tiles, step):
                total.fill(0.0)
                mma.set(warpgroup.Field.ACCUMULATE, True)
                for k in cutlass.range(count):
                    with kscope.region("wait_ready", value=k):
                        buffers.consumer_wait(reading)
                    with kscope.region("multiply"):
                        warpgroup.fence()  # in each step: one that ptxas has to add may serialize the wgmma
                        for step_k in cutlass.range_constexpr(cute.size(fragments_a, mode=[2])):
                            at = (None, None, step_k, reading.index)
                            cute.gemm(mma, total, fragments_a[at], fragments_b[at], total)
                        warpgroup.commit_group()
                        warpgroup.wait_group(1)  # the one before this is done
                    if k > 0:
                        buffers.consumer_release(done)
                        done.advance()
                    reading.advance()
                warpgroup.wait_group(0)
                buffers.consumer_release(done)
                done.advance()
                with kscope.region("store"):
                    rounded.store(total.load().to(HALF))
                    cute.autovec_copy(rounded, places[(None, None, None, tile % rows, tile // rows)])


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, blocks: cutlass.Constexpr, stream: driver.CUstream):
    """Uses an even number of blocks."""
    assert c.shape[0] % (PAIR * BM) == 0, "c must have an even number of rows of tiles"
    major = [utils.LayoutEnum.from_tensor(tensor).sm90_mma_major_mode() for tensor in (a, b)]
    mma = hopper.make_trivial_tiled_mma(HALF, HALF, *major, FLOAT, (CONSUMERS, 1, 1), tiler_mn=(64, BN))
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, HALF)
    a_layout = cute.tile_to_shape(atom, (BM, BK, STAGES), order=(0, 1, 2))
    b_layout = cute.tile_to_shape(atom, (BN, BK, STAGES), order=(0, 1, 2))
    load, share = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileG2SMulticastOp()
    load_a, from_a = cpasync.make_tiled_tma_atom(load, a, cute.slice_(a_layout, (None, None, 0)), (BM, BK))
    load_b, from_b = cpasync.make_tiled_tma_atom(share, b, cute.slice_(b_layout, (None, None, 0)), (BN, BK), PAIR)
    gemm(mma, load_a, from_a, load_b, from_b, c, a_layout, b_layout).launch(
        grid=[blocks // PAIR * PAIR, 1, 1],
        block=[(CONSUMERS + 1) * GROUP, 1, 1],
        cluster=[PAIR, 1, 1],
        min_blocks_per_mp=1,
        stream=stream,
    )


def fakes(size: int) -> list[Any]:
    """Tensors that only have a shape: enough to compile."""
    return [make_fake_compact_tensor(HALF, (size, size), stride_order=(1, 0), assumed_align=16) for _ in range(3)]


def compile_only() -> None:
    """Without a Hopper GPU: compile the kernel, with its regions, for a given target."""
    kscope.enable()
    compiled = cute.compile(matmul, *fakes(SIZE), 132, driver.CUstream(0))
    kscope.disable()
    print(f"no Hopper GPU here: {', '.join(compiled.kernel_info)} compiled for sm_90a with its regions")


def on_hopper() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9


def main() -> None:
    if not on_hopper():
        compile_only()
        return
    import torch
    from cutlass.cute.runtime import from_dlpack

    torch.manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    tensors = [from_dlpack(tensor, assumed_align=16) for tensor in (a, b, c)]
    blocks = torch.cuda.get_device_properties(0).multi_processor_count // PAIR * PAIR
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    with kscope.profile("cute.kscope", records=1024) as prof:
        matmul(*tensors, blocks, stream)
    torch.testing.assert_close(c, a @ b.T, rtol=1e-2, atol=1e-1)
    # Two regions per step in the producer and in each of eight warps that multiply, which also store; and the roles.
    tiles, steps = (SIZE // BM) * (SIZE // BN), SIZE // BK
    expected = tiles * (2 * steps * (1 + 8) + 8) + blocks * (1 + 8)
    show(prof.trace, expected, "cute")


if __name__ == "__main__":
    main()
