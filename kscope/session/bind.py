"""Code that somebody else loaded: bind() lets sessions record its kernels.

What lives here: the call. What does not: what a library or an image says of itself (the frontend of code without a
DSL), what a driver's handle means (backends).
"""

from __future__ import annotations

import os
from typing import Any

from ..instrument import registry

_FRONTEND = "cuda"
"""Whose code has no DSL in this process that could hook its loading."""

Image = bytes | bytearray | memoryview | str | os.PathLike[str]


def bind(code: Any, image: Image | None = None) -> tuple[str, ...]:
    """Let sessions record the kernels of code that kscope did not see being loaded, from now on; their names.

    code: what the driver gave whoever loaded it: a CUlibrary, CUmodule, CUkernel or CUfunction of cuda-bindings, the
        runtime's cudaLibrary_t or cudaKernel_t, or an object of cuda.core's that has one as its `handle`; a number or
        ctypes.c_void_p, which is taken for a CUlibrary (a cudaLibrary_t is one); or a ctypes pointer to such a one. Or
        a shared object that nvcc built with kscope.cuh, or that has functions of TVM-FFI from CuTe DSL: what
        ctypes.CDLL returned, an extension module, or a path.
    image: the cubin or fatbin that was loaded, or its path. Needed for what nvcc built in place, whose names are in
        that file; what kscope lowered brings them along.

    Call it once per module and GPU, with that GPU current; the session that is under way and later ones need nothing
    more. Nothing is kept by the handle: unload the code when you like, and bind it again when it is loaded again. A
    shared object not inside of a graph capture: its code may be loaded only then.

    Raises UsageError for what is no handle, and for code that has nothing of kscope in it or cannot say its names;
    DriverError for a handle that the driver does not know; UnsupportedError for a kernel's handle before CUDA 12.5;
    MissingError where there is no GPU; FormatError for names that cannot be read; OSError for an image's file.
    """
    return tuple(kernel.name for meta in registry.frontend(_FRONTEND).bind(code, image) for kernel in meta.kernels)
