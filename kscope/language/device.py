"""Device helpers: what a thread of a kernel may ask the GPU, the same words in every DSL.

    began = kscope.clock()
    ...
    kscope.counter("cycles", kscope.clock() - began)

They work in every kernel, whether or not kscope records. What lives here: the words. What does not: their instructions
(ptx/reading.py), and how a DSL gets them into a kernel (frontends).
"""

from __future__ import annotations

from typing import Any

from ..errors import KscopeError
from ..instrument import registry
from ..marks.refusals import outside_kernel


def clock(*, _semantic: Any = None) -> Any:
    """The SM's cycle counter, its low 32 bits (uint32): read where it stands, in order with memory. A difference is
    right modulo 2^32, that is within 2 s."""
    return _read("clock", _semantic)


def clock64(*, _semantic: Any = None) -> Any:
    """The SM's cycle counter (int64): read where it stands, in order with memory. Every SM counts for itself."""
    return _read("clock64", _semantic)


def globaltimer(*, _semantic: Any = None) -> Any:
    """The GPU's clock in nanoseconds (int64), the same for all SMs: read where it stands, in order with memory. How
    often it ticks is up to the GPU: every 32 ns on an H200."""
    return _read("globaltimer", _semantic)


def smid(*, _semantic: Any = None) -> Any:
    """The SM that this thread runs on (int32), as in ``Trace.sm``."""
    return _read("smid", _semantic)


def warp_id(*, _semantic: Any = None) -> Any:
    """The warp of its block (int32): linear thread index / 32, as in ``Trace.warp``."""
    return _read("warp_id", _semantic)


def lane_id(*, _semantic: Any = None) -> Any:
    """The lane of its warp (int32), 0 to 31, as in ``Trace.lane``."""
    return _read("lane_id", _semantic)


def block_id(*, _semantic: Any = None) -> Any:
    """The block of its grid (int32): x + nx * (y + ny * z), low 32 bits, as in ``Trace.block``."""
    return _read("block_id", _semantic)


HELPERS = (clock, clock64, globaltimer, smid, warp_id, lane_id, block_id)
for _builtin in HELPERS:
    vars(_builtin)["__triton_builtin__"] = True  # read by the compiler's call protocol


def _read(name: str, context: Any) -> Any:
    """What the frontend that traces or runs a kernel now makes of the word. Raises UsageError outside of kernels."""
    if context is not None:
        return registry.frontend(registry.COMPILER).read(name, context)
    for frontend in registry.loaded():
        if (found := frontend.read(name, None)) is not None:
            return found
    failed: list[KscopeError] = []
    # a plain kernel: nothing was recorded in this process so far. Another thread may take a frontend into use meanwhile
    for other in registry.imported():
        try:
            found = registry.frontend(other).read(name, None)
        except KscopeError as error:  # that DSL cannot be used, and may not be the one that asks
            failed.append(error)
            continue
        if found is not None:
            return found
    if failed:
        raise failed[0]
    raise outside_kernel(f"kscope.{name}")
