"""Launches: tell the runtime about each library once per context, and notice those that record nothing.

What lives here: the hook in the one place through which compiled functions of CuTe DSL run, whether they were called
directly, compiled ahead, taken from a cache or loaded from an object file. What does not: driver calls (libraries.py,
the runtime), functions called through TVM-FFI (ffi.py), whether a kernel's source has marks (sources.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
from cutlass.base_dsl import jit_executor

from kscope import frontends
from kscope.capture import Problem
from kscope.errors import UnsupportedError
from kscope.wording import installs

from . import libraries, sources
from .ffi import Calls

_SEEN = "_kscope_contexts"
"""Attribute of CuTe's own object for a loaded library: the contexts in which the runtime knows it."""


class Loading:
    """The hook on launches, while recording is enabled."""

    def __init__(self) -> None:
        self._run: Callable[..., Any] | None = None
        self._plain: set[str] = set()  # kernels launched though compiled without marks
        self._calls = Calls(self.launched)

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this CuTe DSL lacks."""
        if not callable(getattr(getattr(jit_executor, "JitExecutor", None), "run_compiled_program", None)):
            raise UnsupportedError(
                f"nvidia-cutlass-dsl {cutlass.__version__} has no base_dsl.jit_executor.JitExecutor."
                "run_compiled_program, which kscope needs to find loaded kernels: "
                f"{installs('cute')} brings a version that works"
            )

    def install(self) -> None:
        """Take the hook point. Idempotent."""
        self._plain.clear()
        self.compiled()
        if self._run is not None:
            return
        executor: Any = jit_executor.JitExecutor
        self._run = run = executor.run_compiled_program
        launched = self.launched

        def run_compiled_program(self: Any, *args: Any, **kwargs: Any) -> Any:
            launched(self.jit_module)
            return run(self, *args, **kwargs)

        executor.run_compiled_program = run_compiled_program

    def compiled(self) -> None:
        """A module was compiled: CuTe may have imported TVM-FFI for it."""
        self._calls.install()

    def remove(self) -> None:
        """Inverse of install()."""
        self._calls.remove()
        if self._run is not None:
            executor: Any = jit_executor.JitExecutor
            executor.run_compiled_program = self._run
            self._run = None

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
        frontends.backend("cuda").pace()

    def _loaded(self, library: Any) -> list[str]:
        """Arm a library in the current context; names of its kernels if there is nothing to arm."""
        if not libraries.prepared(library):
            return libraries.kernels(library)
        frontends.backend("cuda").module_loaded(libraries.module(library))
        return []

    def problems(self) -> tuple[Problem, ...]:
        """Kernels whose source has marks and that were launched without."""
        return tuple(
            Problem(
                "plain",
                f"kernel {name} was compiled before recording was enabled, and launched as it was: its regions are "
                "not recorded; compile it after kscope.enable(), or within kscope.profile()",
            )
            for name in sorted(self._plain)
            if sources.has_marks(name)
        )
