"""Writes kscope.cuh, the one header of CUDA C++: from kscope/ptx, kscope/layout.py and kscope/marks.py.

    python -m kscope_cuda.header          writes include/kscope.cuh; a test fails when that file is stale

What lives here: the order of the header's parts. What does not: the parts (this package's other files).
"""

from __future__ import annotations

from pathlib import Path

from kscope.instrument.recording import AUTO_RECORDS

from . import apart, common, helpers, hosted, macros, marked, noted, stored

PATH = Path(__file__).resolve().parents[1] / "include" / "kscope.cuh"


def text() -> str:
    """The whole header."""
    parts = (
        _HEAD,
        macros.TRACK,
        helpers.text(),
        "#if KSCOPE && !KSCOPE_MARKS && defined(__CUDACC__)",
        _OPTIONS,
        hosted.text(),
        "#endif",
        "#if !KSCOPE || !defined(__CUDA_ARCH__)  // plain, or code for the host",
        macros.empty(),
        "#else",
        macros.SHARED,
        _TYPES,
        "namespace kscope {",
        common.text(),
        f"#define KSCOPE_LINES_ {stored.LINES}",
        "#if KSCOPE_MARKS",
        marked.text(),
        "#else",
        apart.text(),
        stored.text(),
        noted.text(),
        "#endif",
        "}  // namespace kscope",
        "#if KSCOPE_MARKS",
        macros.MARKED,
        "#else",
        macros.STORED,
        "#endif",
        macros.MARKS,
        "#endif  // KSCOPE, device code\n#endif  // KSCOPE_CUH",
    )
    return "\n".join(part.strip("\n") for part in parts) + "\n"


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
//   KSCOPE_REGION_IF("load", k % 8 == 0); recorded where the predicate holds at its begin; so _REGION_V_IF, INSTANT_IF,
//   INSTANT_V_IF, COUNTER_IF: the predicate behind name and value
//   KSCOPE_REGION("load" KSCOPE_TRACK("loads")); drawn on a track of that name, below its warp; so with every name
//   KSCOPE_PIN(x); the computation of x stays before this line
//   a strategy behind the name or the value: kscope::Lane0Warp0, Elected, TargetWarp<0, 4>, AllThreads, and
//   ElectedAnyLane where kscope lowers the marks
//   kscope::clock() clock64() globaltimer() smid() warp_id() lane_id() block_id(): in every state, also without records
//
//   -DKSCOPE=1        the macros record; without it they are empty, and the code is the same as without them
//   -DKSCOPE_MARKS=1  the macros are comments in the PTX, for kscope's own lowering (CuPy, cuda.core, NVRTC)
#ifndef KSCOPE_CUH
#define KSCOPE_CUH
#ifndef KSCOPE_MARKS
#define KSCOPE_MARKS 0
#endif
#ifndef KSCOPE
#define KSCOPE KSCOPE_MARKS
#endif
"""

_OPTIONS = rf"""
#if __CUDACC_VER_MAJOR__ < 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 2)
#error "kscope: -DKSCOPE=1 needs CUDA 12.2 or later"
#endif
#ifndef KSCOPE_RECORDS  // records of a slab, rounded up to a power of two
#define KSCOPE_RECORDS {AUTO_RECORDS}
#endif
#ifndef KSCOPE_STRATEGY  // of kernels that name none
#ifdef KSCOPE_WARPS  // TargetWarp by the bits of a number: neither a shell nor nvcc takes that apart
#define KSCOPE_STRATEGY kscope::warps_<KSCOPE_WARPS>
#else
#define KSCOPE_STRATEGY kscope::Elected
#endif
#endif
#ifndef KSCOPE_CLOCK  // cycles or globaltimer
#define KSCOPE_CLOCK cycles
#endif
#ifndef KSCOPE_FILL  // ring: the newest records stay; stop: the oldest
#define KSCOPE_FILL ring
#endif
#define KSCOPE_IS_cycles 1
#define KSCOPE_IS_globaltimer 2
#define KSCOPE_IS_ring 1
#define KSCOPE_IS_stop 2
#define KSCOPE_IS2_(word) KSCOPE_IS_##word
#define KSCOPE_IS1_(word) KSCOPE_IS2_(word)
#define KSCOPE_CLOCK_ KSCOPE_IS1_(KSCOPE_CLOCK)
#define KSCOPE_FILL_ KSCOPE_IS1_(KSCOPE_FILL)
#if KSCOPE_CLOCK_ != 1 && KSCOPE_CLOCK_ != 2
#error "kscope: KSCOPE_CLOCK is cycles or globaltimer"
#endif
#if KSCOPE_FILL_ != 1 && KSCOPE_FILL_ != 2
#error "kscope: KSCOPE_FILL is ring or stop"
#endif
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
