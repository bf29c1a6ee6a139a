"""Finds the module in the current context behind a user's handle of loaded code."""

from __future__ import annotations

import ctypes
import reprlib
from typing import Any

from kscope.errors import UsageError

from .driver import CudaDriver

_KINDS = {
    **dict.fromkeys(("CUlibrary", "cudaLibrary_t"), "library"),
    "CUmodule": "module",
    **dict.fromkeys(("CUkernel", "cudaKernel_t"), "kernel"),
    **dict.fromkeys(("CUfunction", "cudaFunction_t"), "function"),
}
"""Type of cuda-bindings, by name -> kind. The runtime's handles are the driver's."""
_POINTER = ctypes.POINTER(ctypes.c_void_p)


def module(driver: CudaDriver, code: Any) -> int:
    """The module behind a handle, loaded on the current device if necessary. Raises UsageError, DriverError."""
    kind, handle = _identified(code)
    if handle == 0:
        raise UsageError(f"bind({code!r}): the {kind} is null: nothing is loaded, or it was unloaded")
    if driver.context() == 0:
        raise UsageError(f"bind({code!r}): no GPU is current in this thread; make the one current that has the {kind}")
    if kind == "function":
        return driver.module_of_function(handle)
    if kind == "kernel":
        handle, kind = driver.library_of_kernel(handle), "library"
    return driver.module_of_library(handle) if kind == "library" else handle


def _identified(code: Any) -> tuple[str, int]:
    """(kind, handle). A number is a library, which CuTe's objects and the runtime's loader return."""
    held = getattr(code, "handle", code)  # cuda.core's ObjectCode and Kernel have one
    if isinstance(held, _POINTER):
        if not held:
            raise UsageError(f"bind({code!r}): the pointer is null")
        held = held.contents
    if isinstance(held, ctypes.c_void_p | ctypes.c_uint64 | ctypes.c_int64):
        held = held.value or 0
    kind = "library" if type(held) is int else _KINDS.get(type(held).__name__)
    if kind is None:
        raise UsageError(
            f"bind({reprlib.repr(code)}): expected a {', '.join(sorted(_KINDS))} of cuda-bindings, the number of a "
            "CUlibrary, or a shared object"
        )
    return kind, int(held)
