"""Writes kscope.cuh, the one header of CUDA C++: from kscope/marks.py, kscope/layout.py and kscope/ptx.

    python -m kscope_cuda.header          writes include/kscope.cuh; a test fails when that file is stale

What lives here: the order of the header's parts. What does not: the parts (this package's other files).
"""

from __future__ import annotations

from pathlib import Path

from . import common, macros, marked

PATH = Path(__file__).resolve().parents[1] / "include" / "kscope.cuh"


def text() -> str:
    """The whole header."""
    return (
        "\n".join(
            part.strip("\n")
            for part in (
                _HEAD,
                _PLAIN.replace("@EMPTY@", macros.empty()),
                _TYPES,
                macros.shared(),
                "namespace kscope {",
                common.text(),
                marked.text(),
                "}  // namespace kscope",
                macros.marked(),
                "#endif  // KSCOPE, device code\n#endif  // KSCOPE_CUH",
            )
        )
        + "\n"
    )


_HEAD = r"""
// kscope.cuh: regions in CUDA C++ kernels. C++14 and later, nvcc and NVRTC, sm_75 and later; includes nothing.
// Written by `python -m kscope_cuda.header`: change it there.
//
//   __global__ void kernel(...) {
//     KSCOPE_KERNEL();                            first in the kernel
//     KSCOPE_REGION("load");                      until the end of the scope
//     for (int k = 0; k < n; k++) {
//       KSCOPE_REGION_V("step", k);               with a value: int, unsigned or float
//       ...
//
//   KSCOPE_ENTER("a"); KSCOPE_EXIT("a"); KSCOPE_INSTANT("b"); KSCOPE_INSTANT_V("b", x); KSCOPE_COUNTER("c", x);
//   a strategy behind the name and the value: kscope::Lane0Warp0, Elected, TargetWarp<0, 4>, AllThreads
//
//   -DKSCOPE=1        the macros record; without it they are empty, and the code is the same as without them
//   -DKSCOPE_MARKS=1  the macros are comments in the PTX, for kscope's own lowering (CuPy, cuda.core, NVRTC)
#ifndef KSCOPE_CUH
#define KSCOPE_CUH
"""

_PLAIN = r"""
#ifndef KSCOPE_MARKS
#define KSCOPE_MARKS 0
#endif
#ifndef KSCOPE
#define KSCOPE KSCOPE_MARKS
#endif

#if !KSCOPE || !defined(__CUDA_ARCH__)  // plain, or nvcc's pass for the host
@EMPTY@
#else
"""

_TYPES = r"""
#ifdef __CUDACC_DEBUG__
#define KSCOPE_DEBUG_ 1
#else
#define KSCOPE_DEBUG_ 0
#endif
#define KSCOPE_FN_ __device__ __forceinline__
namespace kscope { typedef unsigned int b32_; typedef unsigned long long b64_; }
"""
