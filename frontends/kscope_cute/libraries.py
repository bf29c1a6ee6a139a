"""Driver queries about the libraries that CuTe DSL has loaded, through the bindings that CuTe itself requires."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kscope.errors import DriverError
from kscope.instrument import registry

driver: Any = import_module("cuda.bindings.driver")  # untyped
runtime: Any = import_module("cuda.bindings.runtime")


def present() -> bool:
    """True if a driver and a GPU are present."""
    try:
        return int(driver.cuInit(0)[0]) == 0 and int(driver.cuDeviceGetCount()[1]) > 0
    except RuntimeError:  # raised by the bindings without a driver library
        return False


def context() -> int:
    """The current context's handle; makes the runtime's device current on a thread without one."""
    found = int(_checked("cuCtxGetCurrent", driver.cuCtxGetCurrent()))
    if found == 0:
        runtime.cudaSetDevice(runtime.cudaGetDevice()[1])
        found = int(_checked("cuCtxGetCurrent", driver.cuCtxGetCurrent()))
    return found


def has_symbol(library: Any, name: str) -> bool:
    """True if the library has a global variable of this name."""
    return int(driver.cuLibraryGetGlobal(_handle(library), name.encode())[0]) == 0


def module(library: Any) -> int:
    """The library's module in the current context; loads it there if needed."""
    with registry.backend("cuda").relaxed():  # a stream capture of this thread forbids it otherwise
        return int(_checked("cuLibraryGetModule", driver.cuLibraryGetModule(_handle(library))))


def kernels(library: Any) -> list[str]:
    """Names of the library's kernels."""
    return [name for name, _ in _kernels(library)]


def _kernels(library: Any) -> list[tuple[str, Any]]:
    count = _checked("cuLibraryGetKernelCount", driver.cuLibraryGetKernelCount(_handle(library)))
    found = _checked("cuLibraryEnumerateKernels", driver.cuLibraryEnumerateKernels(count, _handle(library)))
    return [(_checked("cuKernelGetName", driver.cuKernelGetName(kernel)).decode(), kernel) for kernel in found]


def fits_less(library: Any, than: Any) -> bool:
    """True if fewer blocks of a kernel fit on an SM than of the same kernel in another library."""
    ours, theirs = (_functions(one) for one in (library, than))
    return any(_fitting(ours[name]) < _fitting(theirs[name]) for name in ours.keys() & theirs.keys())


def _functions(library: Any) -> dict[str, Any]:
    """The library's kernels as functions of the current context, by name."""
    return {name: _checked("cuKernelGetFunction", driver.cuKernelGetFunction(one)) for name, one in _kernels(library)}


def _fitting(function: Any) -> int:
    """Number of the largest blocks of a kernel that fit on an SM without dynamic shared memory."""
    threads = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    most = _checked("cuFuncGetAttribute", driver.cuFuncGetAttribute(threads, function))
    call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return int(_checked(call, driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, most, 0)))


def _handle(library: Any) -> Any:
    return driver.CUlibrary(int(library))


def _checked(call: str, result: Any) -> Any:
    """The values of a binding's result without its status. Raises DriverError."""
    status, *values = result
    if int(status) != 0:
        raise DriverError(call, getattr(status, "name", "unknown"), int(status))
    return values[0] if len(values) == 1 else values
