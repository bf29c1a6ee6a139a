"""CuPy's modules, and access to the private names that kscope uses. CuPy ships almost no types, so they are Any."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kscope.errors import UnsupportedError

cupy: Any = import_module("cupy")
compiler: Any = import_module("cupy.cuda.compiler")
current_stream: Any = cupy.cuda.get_current_stream
function: Any = import_module("cupy.cuda.function")
runtime: Any = import_module("cupy_backends.cuda.api.runtime")
driver: Any = import_module("cupy_backends.cuda.api.driver")
raw: Any = import_module("cupy._core.raw")
elementwise: Any = import_module("cupy._core._kernel")
reduction: Any = import_module("cupy._core._reduction")
cub_reduction: Any = import_module("cupy._core._cub_reduction")
translator: Any = import_module("cupyx.jit._compile")
expressions: Any = import_module("cupyx.jit._internal_types")
interface: Any = import_module("cupyx.jit._interface")
builtins: Any = import_module("cupyx.jit._builtin_funcs")
types: Any = import_module("cupyx.jit._cuda_types")


def fetch(owner: Any, name: str) -> Any:
    """A private attribute of a CuPy module or object."""
    return getattr(owner, name)


def check(owner: Any, *names: str) -> None:
    """Raise UnsupportedError for the first of the names that this CuPy lacks."""
    for name in names:
        if not hasattr(owner, name):
            raise UnsupportedError(
                f"cupy {cupy.__version__} has no {owner.__name__}.{name}, which kscope needs to prepare kernels; "
                "CuPy 14 has it: pip install 'cupy-cuda13x>=14,<15', or cupy-cuda12x"
            )
