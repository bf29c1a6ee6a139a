"""Kernels in the style of CUTLASS's examples, each with regions where a user would put them.

An Ampere matmul (cp.async, mma.sync), a Hopper one whose loop the compiler pipelines (prefetch_stages), a
warp-specialized Blackwell one (tcgen05), and their hosts. The warp-specialized Hopper matmul is examples/cute_gemm.py.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.utils.blackwell_helpers as blackwell
import cutlass.utils.hopper_helpers as hopper
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import cpasync, tcgen05, warp, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor

import kscope

HALF, FLOAT = cutlass.Float16, cutlass.Float32
SIZE = 1024


def fakes() -> list[Any]:
    """a (M, K), b (N, K) and c (M, N), row-major."""
    return [make_fake_compact_tensor(HALF, (SIZE, SIZE), stride_order=(1, 0), assumed_align=16) for _ in range(3)]


def allocator() -> Any:
    return getattr(cutlass, "memory", utils).SmemAllocator()


# Ampere: four warps copy with cp.async, three stages deep, and multiply with mma.sync

AM, AN, AK, A_STAGES = 128, 128, 32, 3


@cute.kernel
def ampere(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    layout: cute.ComposedLayout,
    copy: cute.TiledCopy,
    mma: cute.TiledMma,
):
    thread, _, _ = cute.arch.thread_idx()
    row, column, _ = cute.arch.block_idx()
    shared = allocator()
    tiles_a = shared.allocate_tensor(HALF, layout, 16)
    tiles_b = shared.allocate_tensor(HALF, layout, 16)
    from_a = cute.local_tile(a, (AM, AK), (row, None))
    from_b = cute.local_tile(b, (AN, AK), (column, None))
    into_c = cute.local_tile(c, (AM, AN), (row, column))
    moving = copy.get_slice(thread)
    a_from, a_into = moving.partition_S(from_a), moving.partition_D(tiles_a)
    b_from, b_into = moving.partition_S(from_b), moving.partition_D(tiles_b)
    mine = mma.get_slice(thread)
    fragment_a = mma.make_fragment_A(mine.partition_A(tiles_a)[None, None, None, 0])
    fragment_b = mma.make_fragment_B(mine.partition_B(tiles_b)[None, None, None, 0])
    place = mine.partition_C(into_c)
    total = mma.make_fragment_C(place)
    total.fill(0.0)
    matrices = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), HALF)
    read_a = cute.make_tiled_copy_A(matrices, mma)
    read_b = cute.make_tiled_copy_B(matrices, mma)
    s_a, r_a = read_a.get_slice(thread).partition_S(tiles_a), read_a.get_slice(thread).retile(fragment_a)
    s_b, r_b = read_b.get_slice(thread).partition_S(tiles_b), read_b.get_slice(thread).retile(fragment_b)
    count = cute.size(a_from, mode=[3])

    with kscope.region("fill"):
        for stage in cutlass.range_constexpr(A_STAGES - 1):
            cute.copy(copy, a_from[None, None, None, stage], a_into[None, None, None, stage])
            cute.copy(copy, b_from[None, None, None, stage], b_into[None, None, None, stage])
            cute.arch.cp_async_commit_group()
    with kscope.region("mainloop"):
        for k in cutlass.range(count):
            with kscope.region("wait", value=k):
                cute.arch.cp_async_wait_group(A_STAGES - 2)
                cute.arch.sync_threads()
            ahead = k + A_STAGES - 1
            with kscope.region("copy"):
                if ahead < count:
                    cute.copy(copy, a_from[None, None, None, ahead], a_into[None, None, None, ahead % A_STAGES])
                    cute.copy(copy, b_from[None, None, None, ahead], b_into[None, None, None, ahead % A_STAGES])
                cute.arch.cp_async_commit_group()
            with kscope.region("mma"):
                for part in cutlass.range_constexpr(AK // 16):
                    cute.copy(read_a, s_a[None, None, part, k % A_STAGES], r_a[None, None, part])
                    cute.copy(read_b, s_b[None, None, part, k % A_STAGES], r_b[None, None, part])
                    cute.gemm(mma, total, fragment_a[None, None, part], fragment_b[None, None, part], total)
    with kscope.region("store"):
        rounded = cute.make_fragment_like(total, HALF)
        rounded.store(total.load().to(HALF))
        cute.autovec_copy(rounded, place)


@cute.jit
def ampere_host(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    atom = cute.make_composed_layout(cute.make_swizzle(2, 3, 3), 0, cute.make_layout((8, AK), stride=(AK, 1)))
    layout = cute.tile_to_shape(atom, (AM, AK, A_STAGES), (0, 1, 2))
    moved = cute.make_copy_atom(cpasync.CopyG2SOp(), HALF, num_bits_per_copy=128)
    copy = cute.make_tiled_copy_tv(moved, cute.make_layout((32, 4), stride=(4, 1)), cute.make_layout((1, 8)))
    op = warp.MmaF16BF16Op(HALF, FLOAT, (16, 8, 16))
    mma = cute.make_tiled_mma(op, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16))
    ampere(a, b, c, layout, copy, mma).launch(grid=[SIZE // AM, SIZE // AN, 1], block=[128, 1, 1])


# Hopper: one warpgroup requests tiles and multiplies, in a loop that the compiler pipelines

PM, PN, PK, P_STAGES = 128, 128, 64, 4


@cute.kernel
def pipelined(
    mma: cute.TiledMma,
    load_a: cute.CopyAtom,
    a: cute.Tensor,
    load_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    a_layout: cute.ComposedLayout,
    b_layout: cute.ComposedLayout,
    across: cutlass.Constexpr,
):
    """across: whether one region spans the stages that the compiler takes apart."""
    thread, _, _ = cute.arch.thread_idx()
    row, column, _ = cute.arch.block_idx()
    shared = allocator()
    barriers = shared.allocate_array(cutlass.Int64, P_STAGES * 2)
    tiles_a = shared.allocate_tensor(HALF, a_layout.outer, byte_alignment=1024, swizzle=a_layout.inner)
    tiles_b = shared.allocate_tensor(HALF, b_layout.outer, byte_alignment=1024, swizzle=b_layout.inner)
    producer, consumer = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=P_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4),
        tx_count=(PM + PN) * PK * 2,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    ).make_participants()
    one = cute.make_layout(1)
    from_a = cute.local_tile(a, (PM, PK), (row, None))
    from_b = cute.local_tile(b, (PN, PK), (column, None))
    into_a, from_a = cpasync.tma_partition(
        load_a, 0, one, cute.group_modes(tiles_a, 0, 2), cute.group_modes(from_a, 0, 2)
    )
    into_b, from_b = cpasync.tma_partition(
        load_b, 0, one, cute.group_modes(tiles_b, 0, 2), cute.group_modes(from_b, 0, 2)
    )
    ours = mma.get_slice(0)
    fragments_a = mma.make_fragment_A(ours.partition_A(tiles_a))
    fragments_b = mma.make_fragment_B(ours.partition_B(tiles_b))
    place = mma.get_slice(thread).partition_C(cute.local_tile(c, (PM, PN), (row, column)))
    total = mma.make_fragment_C(place.shape)
    total.fill(0.0)
    mma.set(warpgroup.Field.ACCUMULATE, True)
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    for k in cutlass.range(cute.size(from_a, mode=[1]), prefetch_stages=P_STAGES - 2):
        if cutlass.const_expr(across):
            ACROSS.enter()
        if warp_idx == 0:
            with kscope.region("ask"):
                empty = producer.acquire_and_advance()
                cute.copy(load_a, from_a[(None, empty.count)], into_a[(None, empty.index)], tma_bar_ptr=empty.barrier)
                cute.copy(load_b, from_b[(None, empty.count)], into_b[(None, empty.index)], tma_bar_ptr=empty.barrier)
        with kscope.region("wait", value=k):
            full = consumer.wait_and_advance()
        with kscope.region("multiply"):
            warpgroup.fence()
            for part in cutlass.range_constexpr(cute.size(fragments_a, mode=[2])):
                at = (None, None, part, full.index)
                cute.gemm(mma, total, fragments_a[at], fragments_b[at], total)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
        full.release()
        if cutlass.const_expr(across):
            ACROSS.exit()
    with kscope.region("store"):
        rounded = cute.make_rmem_tensor(place.shape, HALF)
        rounded.store(total.load().to(HALF))
        cute.autovec_copy(rounded, place)


ACROSS = kscope.scope("across")


@cute.jit
def pipelined_host(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, across: cutlass.Constexpr = False):
    major = [utils.LayoutEnum.from_tensor(tensor).sm90_mma_major_mode() for tensor in (a, b)]
    mma = hopper.make_trivial_tiled_mma(HALF, HALF, *major, FLOAT, (1, 1, 1), tiler_mn=(64, PN))
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, HALF)
    layout = cute.tile_to_shape(atom, (PM, PK, P_STAGES), order=(0, 1, 2))
    load = cpasync.CopyBulkTensorTileG2SOp()
    load_a, from_a = cpasync.make_tiled_tma_atom(load, a, cute.slice_(layout, (None, None, 0)), (PM, PK))
    load_b, from_b = cpasync.make_tiled_tma_atom(load, b, cute.slice_(layout, (None, None, 0)), (PN, PK))
    pipelined(mma, load_a, from_a, load_b, from_b, c, layout, layout, across).launch(
        grid=[SIZE // PM, SIZE // PN, 1], block=[128, 1, 1]
    )


# Blackwell: one warp requests tiles, one issues tcgen05.mma, four read tensor memory and store

TM, TN, TK, T_STAGES = 128, 128, 64, 4


@cute.kernel
def tensor_memory(
    mma: cute.TiledMma,
    load_a: cute.CopyAtom,
    a: cute.Tensor,
    load_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    a_layout: cute.ComposedLayout,
    b_layout: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    row, column, _ = cute.arch.block_idx()
    shared = allocator()
    barriers = shared.allocate_array(cutlass.Int64, T_STAGES * 2 + 2)
    held = shared.allocate_array(cutlass.Int32, 1)
    tiles_a = shared.allocate_tensor(HALF, a_layout.outer, byte_alignment=1024, swizzle=a_layout.inner)
    tiles_b = shared.allocate_tensor(HALF, b_layout.outer, byte_alignment=1024, swizzle=b_layout.inner)
    memory = getattr(cutlass, "memory", utils).TmemAllocator(
        held, barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=192)
    )
    alone = pipeline.CooperativeGroup(pipeline.Agent.Thread)
    buffers = pipeline.PipelineTmaUmma.create(
        barrier_storage=barriers,
        num_stages=T_STAGES,
        producer_group=alone,
        consumer_group=alone,
        tx_count=(TM + TN) * TK * 2,
    )
    ready = pipeline.PipelineUmmaAsync.create(
        barrier_storage=barriers + T_STAGES * 2,
        num_stages=1,
        producer_group=alone,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 128),
    )
    at = (row, column, None)
    ours = mma.get_slice(0)
    from_a = ours.partition_A(cute.local_tile(a, (TM, TN, TK), at, proj=(1, None, 1)))
    from_b = ours.partition_B(cute.local_tile(b, (TM, TN, TK), at, proj=(None, 1, 1)))
    into_c = ours.partition_C(cute.local_tile(c, (TM, TN, TK), at, proj=(1, 1, None)))
    one = cute.make_layout(1)
    into_a, from_a = cpasync.tma_partition(
        load_a, 0, one, cute.group_modes(tiles_a, 0, 3), cute.group_modes(from_a, 0, 3)
    )
    into_b, from_b = cpasync.tma_partition(
        load_b, 0, one, cute.group_modes(tiles_b, 0, 3), cute.group_modes(from_b, 0, 3)
    )
    fragments_a, fragments_b = mma.make_fragment_A(tiles_a), mma.make_fragment_B(tiles_b)
    count = cute.size(from_a, mode=[1])
    memory.allocate(TN)
    memory.wait_for_alloc()
    place = memory.retrieve_ptr(FLOAT)
    total = cute.make_tensor(place, mma.make_fragment_C(mma.partition_shape_C((TM, TN))).layout)

    if warp_idx == 4:
        with kscope.region("producer"):
            filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, T_STAGES)
            for k in cutlass.range(count):
                with kscope.region("wait_empty", value=k):
                    buffers.producer_acquire(filling)
                with kscope.region("ask"):
                    arrival = buffers.producer_get_barrier(filling)
                    cute.copy(load_a, from_a[(None, k)], into_a[(None, filling.index)], tma_bar_ptr=arrival)
                    cute.copy(load_b, from_b[(None, k)], into_b[(None, filling.index)], tma_bar_ptr=arrival)
                filling.advance()
            buffers.producer_tail(filling)
    elif warp_idx == 5:
        with kscope.region("multiplier"):
            reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, T_STAGES)
            making = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
            ready.producer_acquire(making)
            mma.set(tcgen05.Field.ACCUMULATE, False)
            for k in cutlass.range(count):
                with kscope.region("wait_ready", value=k):
                    buffers.consumer_wait(reading)
                with kscope.region("issue"):
                    for part in cutlass.range_constexpr(cute.size(fragments_a, mode=[2])):
                        piece = (None, None, part, reading.index)
                        cute.gemm(mma, total, fragments_a[piece], fragments_b[piece], total)
                        mma.set(tcgen05.Field.ACCUMULATE, True)
                buffers.consumer_release(reading)
                reading.advance()
            ready.producer_commit(making)
    elif warp_idx < 4:
        with kscope.region("epilogue"):
            using = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
            with kscope.region("wait_total"):
                ready.consumer_wait(using)
            atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x64), FLOAT)
            piece = ((cute.size(total, mode=[0, 0]), cute.size(total, mode=[0, 1]) // 2),)
            source, sink = cute.zipped_divide(total, piece), cute.zipped_divide(into_c, piece)
            reader = tcgen05.make_tmem_copy(atom, source[None, 0])
            mine = reader.get_slice(thread)
            source, sink = mine.partition_S(source), mine.partition_D(sink)
            values = cute.make_rmem_tensor(sink[None, None, 0].shape, FLOAT)
            rounded = cute.make_rmem_tensor(sink[None, None, 0].shape, HALF)
            for part in cutlass.range(cute.size(source, mode=[2])):
                with kscope.region("read"):
                    cute.copy(reader, source[None, None, part], values)
                    cute.arch.fence_view_async_tmem_load()
                with kscope.region("store"):
                    rounded.store(values.load().to(HALF))
                    cute.autovec_copy(rounded, sink[None, None, part])
            ready.consumer_release(using)
    cute.arch.sync_threads()
    memory.relinquish_alloc_permit()
    memory.free(place)


@cute.jit
def tensor_memory_host(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    k_major = cute.nvgpu.OperandMajorMode.K
    op = tcgen05.MmaF16BF16Op(
        HALF, FLOAT, (TM, TN, 16), tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM, k_major, k_major
    )
    mma = cute.make_tiled_mma(op)
    tile = (TM, TN, TK)
    a_layout = blackwell.make_smem_layout_a(mma, tile, HALF, T_STAGES)
    b_layout = blackwell.make_smem_layout_b(mma, tile, HALF, T_STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    staged = (None, None, None, 0)
    load_a, from_a = cute.nvgpu.make_tiled_tma_atom_A(load, a, cute.slice_(a_layout, staged), tile, mma)
    load_b, from_b = cute.nvgpu.make_tiled_tma_atom_B(load, b, cute.slice_(b_layout, staged), tile, mma)
    tensor_memory(mma, load_a, from_a, load_b, from_b, c, a_layout, b_layout).launch(
        grid=[SIZE // TM, SIZE // TN, 1], block=[192, 1, 1]
    )
