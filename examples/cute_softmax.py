"""A softmax in CuTe DSL: three passes over a row. The same kernel as *_softmax.py in other languages, same regions.

    python examples/cute_softmax.py

On a GPU: computes the softmax of 4096 rows, checks it against torch, writes softmax.kscope, and prints one line per
region. Without one: compiles the kernel for sm_90a.
"""

from __future__ import annotations

import operator
import os
from pathlib import Path
from typing import Any

if not any(Path("/dev").glob("nvidia[0-9]*")):  # CuTe needs the architecture when it is imported
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cutlass
from cuda.bindings import driver
from cutlass import Float32, cute, utils
from cutlass.cute.runtime import make_fake_compact_tensor
from shared import show, torch_on_gpu

import kscope

ROWS, COLUMNS, THREADS = 4096, 8192, 256


@cute.jit
def across(value: Float32, shared: cute.Tensor, combine: cutlass.Constexpr) -> Float32:
    """Reduce the numbers of all threads of the block with `combine`; every thread gets the result."""
    thread, _, _ = cute.arch.thread_idx()
    value = cute.arch.warp_reduction(value, combine)
    if thread % 32 == 0:
        shared[thread // 32] = value
    cute.arch.sync_threads()
    value = cute.arch.warp_reduction(shared[thread % (THREADS // 32)], combine, threads_in_group=THREADS // 32)
    cute.arch.sync_threads()
    return value


@cute.kernel
def softmax(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    memory = getattr(cutlass, "memory", utils).SmemAllocator()  # its place up to 4.7 is utils
    shared = memory.allocate_tensor(Float32, cute.make_layout(THREADS // 32), byte_alignment=16)
    with kscope.region("maximum"):
        highest = Float32(-3.4e38)
        for i in cutlass.range(thread, COLUMNS, THREADS):
            highest = cute.arch.fmax(highest, x[row, i])
        highest = across(highest, shared, cute.arch.fmax)
    with kscope.region("sum"):
        total = Float32(0)
        for i in cutlass.range(thread, COLUMNS, THREADS):
            total += cute.math.exp(x[row, i] - highest, fastmath=True)
        total = across(total, shared, operator.add)
    with kscope.region("write"):
        for i in cutlass.range(thread, COLUMNS, THREADS):
            out[row, i] = cute.math.exp(x[row, i] - highest, fastmath=True) / total


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, stream: driver.CUstream):
    softmax(x, out).launch(grid=[cute.size(x, mode=[0]), 1, 1], block=[THREADS, 1, 1], stream=stream)


def compile_only(arch: str = "90a", options: str = "") -> Any:
    """Without a GPU: compile the kernel, with its regions, for a given target."""
    rows = [make_fake_compact_tensor(Float32, (ROWS, COLUMNS), stride_order=(1, 0), assumed_align=16) for _ in range(2)]
    kscope.enable()
    compiled = cute.compile(launch, *rows, driver.CUstream(0), options=f"--gpu-arch sm_{arch} {options}")
    kscope.disable()
    print(f"no GPU here: softmax compiled for sm_{arch} with its regions")
    return compiled


def run() -> int:
    """Launch once and check the result; returns the number of records."""
    import torch
    from cutlass.cute.runtime import from_dlpack

    x = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)).cuda()
    out = torch.empty_like(x)
    tensors = [from_dlpack(tensor, assumed_align=16) for tensor in (x, out)]
    launch(*tensors, driver.CUstream(torch.cuda.current_stream().cuda_stream))
    torch.testing.assert_close(out, torch.softmax(x, 1), rtol=1e-4, atol=1e-7)
    return ROWS * THREADS // 32 * 3  # every warp of every block records three regions


def main() -> None:
    if not torch_on_gpu():
        compile_only()
        return
    with kscope.profile("softmax.kscope") as prof:
        expected = run()
    show(prof.trace, expected, "softmax")


if __name__ == "__main__":
    main()
