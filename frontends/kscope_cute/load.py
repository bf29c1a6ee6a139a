"""Hooks on CuTe DSL launches: arm each library once per context, and report launches that record nothing.

One hook sees every compiled function that runs: called directly, compiled ahead of time, taken from a cache or loaded
from an object file. Calls through TVM-FFI arrive through tvm_ffi.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import FunctionType
from typing import Any

from cutlass.base_dsl import jit_executor

from kscope.capture.model import Problem
from kscope.instrument import registry
from kscope.instrument.code_objects import reachable, uses_kscope
from kscope.instrument.hooks import Hook

from . import hook_points, libraries
from .tvm_ffi import TvmFfiHooks

_SEEN = "_kscope_contexts"
"""Attribute of CuTe's object for loaded libraries: context -> kernels that could not be armed there."""
_SYMBOL = "kernel_cutlass_{name}_"
"""Prefix of a kernel's symbol, from the name of its function."""


class LaunchHooks:
    """The hooks, while recording is enabled."""

    def __init__(self, is_selected: Callable[[FunctionType], bool]) -> None:
        """is_selected: whether the selection touches a function."""
        self._is_selected = is_selected
        self._plain: set[str] = set()  # kernels launched though compiled without marks
        self._tvm_ffi = TvmFfiHooks(self._launching)
        self._run = Hook(jit_executor.JitExecutor, "run_compiled_program", self._run_program)

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point."""
        hook_points.check(jit_executor.JitExecutor, "run_compiled_program", "base_dsl.jit_executor.JitExecutor")

    def install(self) -> None:
        """Idempotent."""
        self.begin()
        self._run.install()
        self._tvm_ffi.install()

    def begin(self) -> None:
        """Forget the launches until now."""
        self._plain.clear()

    def module_compiled(self) -> None:
        """Hook TVM-FFI if CuTe has imported it for the compilation."""
        self._tvm_ffi.install()

    def remove(self) -> None:
        """Inverse of install()."""
        self._tvm_ffi.remove()
        self._run.remove()

    def _run_program(self, original: Callable[..., Any], executor: Any, *args: Any, **kwargs: Any) -> Any:
        self._launching(executor.jit_module)
        return original(executor, *args, **kwargs)

    def _launching(self, loaded: Any) -> None:
        """Arm the libraries of a function that is about to run.

        loaded: CuTe's object with the libraries in `cuda_library`, or a stand-in that also has `kernels`: names of
        kernels that cannot be armed.
        """
        self._plain.update(getattr(loaded, "kernels", ()))
        loaded_libraries = getattr(loaded, "cuda_library", None)
        if not loaded_libraries:  # it launches nothing
            return
        context = libraries.context()
        seen = vars(loaded).setdefault(_SEEN, {})
        if context not in seen:
            seen[context] = [name for library in loaded_libraries for name in self._arm(library)]
        self._plain.update(seen[context])
        registry.backend("cuda").pace(id(loaded))

    def _arm(self, library: Any) -> list[str]:
        """Arm a library in the current context; names of its kernels if it has no marks."""
        if not libraries.has_control_block(library):
            return libraries.kernels(library)
        registry.backend("cuda").module_loaded(libraries.module(library))
        return []

    def problems(self) -> tuple[Problem, ...]:
        """Kernels that have regions in their source and were launched without marks."""
        return tuple(
            Problem(
                "plain",
                f"kernel {name} has regions in its source and none in its binary, most likely because it was compiled "
                "before recording was enabled: they are not recorded; compile it after kscope.enable(), or within "
                "kscope.profile()",
            )
            for name in sorted(self._plain)
            if _has_marks(name, self._is_selected)
        )


def _has_marks(kernel: str, is_selected: Callable[[FunctionType], bool]) -> bool:
    """Whether the kernel's function, or one that it calls, uses kscope or is selected.

    True if the function no longer exists: it may have used kscope.
    """
    candidates = [
        function
        for function in gc.get_objects()
        if type(function) is FunctionType and kernel.startswith(_SYMBOL.format(name=function.__name__))
    ]
    longest = max((len(function.__name__) for function in candidates), default=0)  # `_convert` is not `_convert_kernel`
    candidates = [function for function in candidates if len(function.__name__) == longest]
    reached = (one for function in candidates for one in reachable(function, _user_function))
    return not candidates or any(is_selected(one) or uses_kscope(one) for one in reached)


def _user_function(thing: Any) -> Any:
    """The Python function inside a decorated one; None for CuTe's own functions."""
    inner = getattr(thing, "__wrapped__", thing)
    return None if str(getattr(inner, "__module__", "")).startswith("cutlass") else inner
