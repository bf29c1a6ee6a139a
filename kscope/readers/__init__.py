"""Other profilers' buffers and files as a Trace, so that instrumented kernels get kscope's analyses and exports.

    flashinfer           FlashInfer, Apache TVM's CudaProfiler, warpscope
    mirage               Mirage's persistent kernels: the same family, other bits
    triton_distributed   Triton-distributed
    nuggets              transformer_nuggets, both of its layouts
    sm_profiler          sm-profiler, CUDA and Triton
    proton               Proton's Chrome trace of an instrumented kernel

Damaged data becomes problems of the trace; only invalid arguments and unreadable files raise.
"""

from __future__ import annotations

from collections.abc import Callable

from ..trace import Trace
from .nuggets import nuggets
from .proton import proton
from .sm_profiler import sm_profiler
from .tagged import flashinfer, mirage
from .triton_distributed import triton_distributed

__all__ = ["READERS", "flashinfer", "mirage", "nuggets", "proton", "sm_profiler", "triton_distributed"]

READERS: dict[str, Callable[..., Trace]] = {
    "flashinfer": flashinfer,
    "mirage": mirage,
    "triton-distributed": triton_distributed,
    "nuggets": nuggets,
    "sm-profiler": sm_profiler,
    "proton": proton,
}
"""Readers for --from on the command line."""
