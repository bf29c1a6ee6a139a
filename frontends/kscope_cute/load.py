"""Launches of CuTe DSL: arm each library once per context, and report launches that record nothing.

One hook sees every compiled function that runs: called directly, compiled ahead of time, taken from a cache or loaded
from an object file. Functions called through TVM-FFI arrive through ffi.py.
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
from .ffi import Calls

_SEEN = "_kscope_contexts"
"""Attribute of CuTe's object for a loaded library: the contexts in which the runtime has armed it."""
_SYMBOL = "kernel_cutlass_{name}_"
"""How a kernel's symbol begins, from the name of its function."""


class Loading:
    """The hook on launches, while recording is enabled."""

    def __init__(self, selected: Callable[[FunctionType], bool]) -> None:
        """selected: whether lines of a function are to be marked."""
        self._selected = selected
        self._plain: set[str] = set()  # kernels launched though compiled without marks
        self._calls = Calls(self.launched)
        self._run = Hook(jit_executor.JitExecutor, "run_compiled_program", self._running)

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this CuTe DSL lacks."""
        hook_points.check(jit_executor.JitExecutor, "run_compiled_program", "base_dsl.jit_executor.JitExecutor")

    def install(self) -> None:
        """Take the hook points. Idempotent."""
        self.begin()
        self._run.install()
        self._calls.install()

    def begin(self) -> None:
        """What was launched until now is no problem of what comes."""
        self._plain.clear()

    def compiled(self) -> None:
        """A module was compiled: CuTe may have imported TVM-FFI for it."""
        self._calls.install()

    def remove(self) -> None:
        """Inverse of install()."""
        self._calls.remove()
        self._run.remove()

    def _running(self, original: Callable[..., Any], executor: Any, *args: Any, **kwargs: Any) -> Any:
        self.launched(executor.jit_module)
        return original(executor, *args, **kwargs)

    def launched(self, loaded: Any) -> None:
        """A function is about to run. loaded: CuTe's object for its libraries, or one that holds them as cuda_library
        and says the kernels of those that cannot be armed."""
        self._plain.update(getattr(loaded, "kernels", ()))
        found = getattr(loaded, "cuda_library", None)
        if not found:  # it launches nothing
            return
        context = libraries.context()
        seen = vars(loaded).setdefault(_SEEN, {})
        if context not in seen:
            seen[context] = [name for library in found for name in self._loaded(library)]
        self._plain.update(seen[context])
        registry.backend("cuda").pace()

    def _loaded(self, library: Any) -> list[str]:
        """Arm a library in the current context; names of its kernels if there is nothing to arm."""
        if not libraries.prepared(library):
            return libraries.kernels(library)
        registry.backend("cuda").module_loaded(libraries.module(library))
        return []

    def problems(self) -> tuple[Problem, ...]:
        """Kernels whose source has marks and that were launched without."""
        return tuple(
            Problem(
                "plain",
                f"kernel {name} has regions in its source and none in its binary, most likely because it was compiled "
                "before recording was enabled: they are not recorded; compile it after kscope.enable(), or within "
                "kscope.profile()",
            )
            for name in sorted(self._plain)
            if _has_marks(name, self._selected)
        )


def _has_marks(kernel: str, selected: Callable[[FunctionType], bool]) -> bool:
    """Whether a function of that kernel's name, or one that it calls, uses kscope or is selected.

    True if no such function exists any more, because nothing is known then.
    """
    candidates = [
        function
        for function in gc.get_objects()
        if type(function) is FunctionType and kernel.startswith(_SYMBOL.format(name=function.__name__))
    ]
    reached = (one for function in candidates for one in reachable(function, _users))
    return not candidates or any(selected(one) or uses_kscope(one) for one in reached)


def _users(thing: Any) -> Any:
    """The Python function behind a decorated one; None for CuTe's own functions."""
    inner = getattr(thing, "__wrapped__", thing)
    return None if str(getattr(inner, "__module__", "")).startswith("cutlass") else inner
