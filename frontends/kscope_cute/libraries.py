"""What kscope asks the driver about the libraries that CuTe DSL has loaded.

What lives here: these few calls, through the bindings that CuTe itself needs. What does not: what is done with the
answers (loading.py), and every other driver call (the runtime).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kscope.capture.layout import CTL_SYMBOL
from kscope.errors import DriverError

driver: Any = import_module("cuda.bindings.driver")  # no types to check: what comes out of it is Any
runtime: Any = import_module("cuda.bindings.runtime")


def present() -> bool:
    """Whether there is a driver and a GPU."""
    try:
        return int(driver.cuInit(0)[0]) == 0 and int(driver.cuDeviceGetCount()[1]) > 0
    except RuntimeError:  # as the bindings say that there is no driver's library
        return False


def context() -> int:
    """The current context's handle; the runtime's device gets its own where a thread has none yet."""
    found = int(_checked("cuCtxGetCurrent", driver.cuCtxGetCurrent()))
    if found == 0:
        runtime.cudaSetDevice(runtime.cudaGetDevice()[1])
        found = int(_checked("cuCtxGetCurrent", driver.cuCtxGetCurrent()))
    return found


def prepared(library: Any) -> bool:
    """Whether the library has the constant by which kscope arms a module."""
    return int(driver.cuLibraryGetGlobal(_handle(library), CTL_SYMBOL.encode())[0]) == 0


def module(library: Any) -> int:
    """The library's module in the current context; loads it there if it was not yet."""
    with _relaxed():
        return int(_checked("cuLibraryGetModule", driver.cuLibraryGetModule(_handle(library))))


def kernels(library: Any) -> list[str]:
    """Names of the library's kernels."""
    count = _checked("cuLibraryGetKernelCount", driver.cuLibraryGetKernelCount(_handle(library)))
    found = _checked("cuLibraryEnumerateKernels", driver.cuLibraryEnumerateKernels(count, _handle(library)))
    return [_checked("cuKernelGetName", driver.cuKernelGetName(kernel)).decode() for kernel in found]


def _handle(library: Any) -> Any:
    return driver.CUlibrary(int(library))


def _checked(call: str, answer: Any) -> Any:
    """What a binding returned beside its status. Raises DriverError."""
    status, *values = answer
    if int(status) != 0:
        raise DriverError(call, getattr(status, "name", "unknown"), int(status))
    return values[0] if len(values) == 1 else values


@contextmanager
def _relaxed() -> Generator[None, None, None]:
    """A stream that this thread captures does not forbid what is called within."""
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = _checked("cuThreadExchangeStreamCaptureMode", driver.cuThreadExchangeStreamCaptureMode(mode))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)
