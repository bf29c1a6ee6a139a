"""Device helpers: functions that read the GPU's clocks and the thread's position, the same in every DSL.

    began = kscope.clock()
    ...
    kscope.counter("cycles", kscope.clock() - began)

They work in every kernel, whether or not kscope records.
"""

from __future__ import annotations

from typing import Any

from ..errors import KscopeError
from ..instrument import registry
from ..marks.refusals import outside_kernel


def clock(*, _semantic: Any = None) -> Any:
    """Read the low 32 bits of the SM's cycle counter, in program order with memory accesses.

    Returns:
        uint32. Differences are modulo 2^32, about 2 s.

    Raises:
        UsageError: called outside a kernel.
    """
    return _read("clock", _semantic)


def clock64(*, _semantic: Any = None) -> Any:
    """Read the SM's cycle counter, in program order with memory accesses.

    Returns:
        int64. Counters of different SMs are not synchronized.

    Raises:
        UsageError: called outside a kernel.
    """
    return _read("clock64", _semantic)


def globaltimer(*, _semantic: Any = None) -> Any:
    """Read the GPU's global timer, in program order with memory accesses.

    Returns:
        int64, ns, the same for all SMs. Its resolution depends on the GPU: 32 ns on an H200.

    Raises:
        UsageError: called outside a kernel.
    """
    return _read("globaltimer", _semantic)


def smid(*, _semantic: Any = None) -> Any:
    """The SM that this thread runs on, as in ``Trace.sm``.

    Returns:
        int32.

    Raises:
        UsageError: called outside a kernel.
    """
    return _read("smid", _semantic)


def warp_id(*, _semantic: Any = None) -> Any:
    """The warp's index in its block: linear thread index / 32, as in ``Trace.warp``.

    Returns:
        int32.

    Raises:
        UsageError: called outside a kernel.
    """
    return _read("warp_id", _semantic)


def lane_id(*, _semantic: Any = None) -> Any:
    """The lane's index in its warp, as in ``Trace.lane``.

    Returns:
        int32, 0 to 31.

    Raises:
        UsageError: called outside a kernel.
    """
    return _read("lane_id", _semantic)


def block_id(*, _semantic: Any = None) -> Any:
    """The block's linear index x + nx * (y + ny * z), as in ``Trace.block``.

    Returns:
        int32: the low 32 bits.

    Raises:
        UsageError: called outside a kernel.
    """
    return _read("block_id", _semantic)


HELPERS = (clock, clock64, globaltimer, smid, warp_id, lane_id, block_id)
for _builtin in HELPERS:
    vars(_builtin)["__triton_builtin__"] = True  # read by the compiler's call protocol


def _read(name: str, context: Any) -> Any:
    """Let the frontend that is tracing or running a kernel emit the read."""
    if context is not None:
        return registry.frontend(registry.COMPILER).read(name, context)
    for frontend in registry.loaded():
        if (result := frontend.read(name, None)) is not None:
            return result
    failed: list[KscopeError] = []
    # no frontend that is loaded traces this kernel: load those of the imported DSLs
    for other in registry.imported():
        try:
            result = registry.frontend(other).read(name, None)
        except KscopeError as error:  # unusable here, but perhaps not the one that traces
            failed.append(error)
            continue
        if result is not None:
            return result
    if failed:
        raise failed[0]
    raise outside_kernel(f"kscope.{name}")
