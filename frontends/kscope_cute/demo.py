"""The kernel of `kscope demo --on cute`: a vector addition."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import cutlass
from cutlass import cute

import kscope

from . import libraries

TITLE = "a CuTe DSL kernel on this GPU: 132 blocks of 4 warps add two vectors"
BLOCKS, THREADS, PIECES = 132, 128, 64


@cute.kernel
def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor) -> Any:
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    with kscope.region("block"):
        for piece in cutlass.range(PIECES):
            at = (block * PIECES + piece) * THREADS + thread
            with kscope.region("load", value=piece):
                x = a[at]
                y = b[at]
            with kscope.region("store"):
                c[at] = x + y


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor) -> None:
    add(a, b, c).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])


def obstacle() -> str:
    """Reason why the kernel cannot run here; "" if it can."""
    if find_spec("torch") is None:
        return "torch is not installed: the kernel adds its tensors"
    return "" if libraries.present() else "no NVIDIA GPU that CuTe DSL can use"


def run() -> None:
    """Launch the kernel once."""
    torch: Any = import_module("torch")  # an extra: a type checker may not find it
    runtime: Any = import_module("cutlass.cute.runtime")
    tensors = [torch.ones(BLOCKS * PIECES * THREADS, device="cuda") for _ in range(3)]
    arguments: list[Any] = [runtime.from_dlpack(tensor) for tensor in tensors]
    untyped: Any = launch
    untyped(*arguments)
    torch.cuda.synchronize()
