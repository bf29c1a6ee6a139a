"""bind(): lets sessions record kernels of code that was loaded without kscope."""

from __future__ import annotations

import os
from typing import Any

from ..instrument import registry

_FRONTEND = "cuda"
"""The frontend of code that is loaded without any DSL's hook."""

Image = bytes | bytearray | memoryview | str | os.PathLike[str]


def bind(code: Any, image: Image | None = None) -> tuple[str, ...]:
    """Let sessions record the kernels of code that kscope did not see being loaded.

    Call it once per module and GPU, with that GPU current. The active session and later ones need nothing more. The
    handle is not kept: unload the code at any time, and bind it again when it is loaded again. Do not bind a shared
    object inside a graph capture, because that may be when its code is loaded.

    Args:
        code: a driver handle: a CUlibrary, CUmodule, CUkernel or CUfunction of cuda-bindings, the runtime's
            cudaLibrary_t or cudaKernel_t, or an object of cuda.core with such a `handle`; a number, ctypes.c_void_p or
            ctypes pointer is taken for a CUlibrary. Or a shared object that nvcc built with kscope.cuh, or that has
            TVM-FFI functions of CuTe DSL: the result of ctypes.CDLL, an extension module, or a path.
        image: the loaded cubin or fatbin, or its path. Required only for nvcc builds that record in place, because
            their names are in that file.

    Returns:
        The names of the kernels that record.

    Raises:
        UsageError: `code` is not a handle, or has no kscope marks, or does not carry its names.
        DriverError: the driver does not know the handle.
        UnsupportedError: a kernel's handle before CUDA 12.5.
        MissingError: there is no GPU.
        FormatError: the names cannot be read.
        OSError: the image cannot be read.
    """
    return tuple(kernel.name for meta in registry.frontend(_FRONTEND).bind(code, image) for kernel in meta.kernels)
