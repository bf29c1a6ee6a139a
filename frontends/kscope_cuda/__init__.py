"""CUDA C++: the header kscope.cuh, and libraries built with it.

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
    from .binary_metadata import describe
    from .compile import Compilation, loaded
    from .frontend import CudaFrontend, arm
    from .nvcc_flags import flags

__all__ = ["Compilation", "CudaFrontend", "arm", "describe", "flags", "loaded"]

_MODULES = {
    **dict.fromkeys(("CudaFrontend", "arm"), "frontend"),
    **dict.fromkeys(("Compilation", "loaded"), "compile"),
    "describe": "binary_metadata",
    "flags": "nvcc_flags",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kscope_cuda' has no attribute {name!r}; it has {', '.join(sorted(_MODULES))}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
