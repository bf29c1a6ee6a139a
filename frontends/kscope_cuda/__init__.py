"""CUDA C++: the header kscope.cuh, and libraries that were built with it.

nvcc -DKSCOPE=1 -I$(python -m kscope include) -shared -Xcompiler -fPIC kernels.cu -o kernels.so

library = ctypes.CDLL("./kernels.so")
kscope_cuda.arm(library)
with kscope.profile() as prof:
    library.launch()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .binary_metadata import describe as describe
    from .building import flags as flags
    from .libraries import CudaFrontend as CudaFrontend
    from .libraries import arm as arm
    from .loadtime import compile_options as compile_options
    from .loadtime import loaded as loaded
    from .loadtime import lower as lower
    from .loadtime import marked as marked

__all__ = ["CudaFrontend", "arm", "compile_options", "describe", "flags", "loaded", "lower", "marked"]

_HOME = {
    **dict.fromkeys(("CudaFrontend", "arm"), "libraries"),
    **dict.fromkeys(("compile_options", "loaded", "lower", "marked"), "loadtime"),
    "describe": "binary_metadata",
    "flags": "building",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kscope_cuda' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
