"""The kernel of faults_program.py in CuTe DSL."""

from __future__ import annotations

import cutlass
from cuda.bindings import driver
from cutlass import Int32, Int64, cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op

import kscope

BLOCKS, SLOTS, THREADS = 64, 32, 128
_FAR = 1 << 40


@dsl_user_op
def trap(*, loc=None, ip=None):
    """The instruction."""
    llvm.inline_asm(None, [], "trap;", "", has_side_effects=True, loc=loc, ip=ip)


@cute.jit
def count(words: cute.Tensor, at: Int32, more: cutlass.Constexpr) -> Int32:
    """Add to a word; returns what it was."""
    return cute.arch.atomic_add(words.iterator + at, Int32(more))


@cute.kernel
def pipeline(
    flags: cute.Tensor, done: cute.Tensor, out: cute.Tensor, mode: Int32, block: Int32, slot: Int32, which: Int32
):
    thread, _, _ = cute.arch.thread_idx()
    number, _, _ = cute.arch.block_idx()
    warp, lane = cute.arch.make_warp_uniform(thread // 32), thread % 32
    row = number * SLOTS
    if warp == 0:
        kscope.role("producer")
        for i in cutlass.range(SLOTS, unroll=1):
            if i > 0:
                with kscope.region("wait_empty", value=i):
                    if lane == 0:
                        taken = count(done, row + i - 1, 0)
                        while taken < 3:
                            taken = count(done, row + i - 1, 0)
                    cute.arch.sync_warp()
            with kscope.region("load", value=i):
                if lane == 0 and (number != block or mode != 2 or i != slot):
                    count(flags, row + i, 1)
                cute.arch.sync_warp()
    else:
        kscope.role("consumer")
        for i in cutlass.range(SLOTS, unroll=1):
            here = number == block and warp == which and i == slot
            with kscope.region("wait_full", value=i):
                if lane == 0:
                    there = count(flags, row + i, 0)
                    while there == 0:
                        there = count(flags, row + i, 0)
                cute.arch.sync_warp()
            with kscope.region("multiply", value=i):
                out[number * THREADS + thread] += i
            if here and mode == 3:
                with kscope.region("check", value=i):
                    trap()
            if here and mode == 4:
                with kscope.region("poke", value=i, open=True):
                    far = cute.make_tensor(out.iterator + Int64(_FAR), cute.make_layout(THREADS))
                    out[number * THREADS + thread] = far[thread] + 1
            if lane == 0 and (not here or mode != 1):
                count(done, row + i, 1)


@cute.jit
def launched(
    flags: cute.Tensor, done: cute.Tensor, out: cute.Tensor, mode: Int32, block: Int32, slot: Int32, which: Int32,
    stream: driver.CUstream,
):  # fmt: skip
    """Launch the kernel."""
    kernel = pipeline(flags, done, out, mode, block, slot, which)
    kernel.launch(grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1), stream=stream)


def launch(mode: int, block: int, slot: int, which: int) -> None:
    """Launch the kernel on new buffers of torch's."""
    import torch
    from cutlass.cute.runtime import from_dlpack

    sizes = BLOCKS * SLOTS, BLOCKS * SLOTS, BLOCKS * THREADS
    buffers = [torch.zeros(size, device="cuda", dtype=torch.int32) for size in sizes]
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    launched(*map(from_dlpack, buffers), Int32(mode), Int32(block), Int32(slot), Int32(which), stream)
