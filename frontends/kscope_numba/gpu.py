"""Compiled kernels: installs and removes the hooks of this package together, under Numba's compiler lock."""

from __future__ import annotations

from typing import Any

from kscope.capture.model import LaunchCount, Problem
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from . import linking
from .bytecode import BytecodeHooks
from .compilation_context import CompilationContext
from .compile import CompilerHooks
from .evaluator import collect
from .hook_points import check, module
from .load import LoadHooks

_dispatcher: Any = module("dispatcher")
_LOCK = "global_compiler_lock"


class GpuTarget:
    """numba.cuda compiling for a GPU. enable() and disable() wait for compilations in other threads."""

    def __init__(self) -> None:
        self._bytecode = BytecodeHooks()
        self._loads = LoadHooks(self._bytecode.unmarked)
        self._compiler = CompilerHooks(self._bytecode.sites)
        self._context = CompilationContext()
        self._taught = False

    def enable(self, recording: Recording) -> None:
        """Raises UnsupportedError naming a missing hook point, before anything is changed."""
        check(_dispatcher, _LOCK)
        for hooks in (self._bytecode, self._compiler, self._loads, self._context):
            hooks.check()
        with getattr(_dispatcher, _LOCK):
            self._context.hooks.install()
            self._compiler.install(recording)
            self._bytecode.set_selection(recording.selection, self._context.is_kernel)
            self._bytecode.install(emit_marks=True)
            self._loads.install(recording)

    def disable(self) -> None:
        """Inverse of enable()."""
        with getattr(_dispatcher, _LOCK):
            self._context.hooks.remove()
            self._compiler.remove()
            if self._taught:
                self._bytecode.install(emit_marks=False)
            else:
                self._bytecode.remove()
            self._loads.remove(self._taught)

    def teach(self) -> None:
        """Drop regions from kernels that are compiled while recording is disabled."""
        self._bytecode.check()
        if not self._taught:
            self._taught = True
            if self._compiler.recording is None:
                self._bytecode.install(emit_marks=False)
                self._loads.remove(taught=True)

    def read(self, name: str) -> Any:
        """None: Numba types and lowers device helpers itself (helpers.py)."""
        return None

    def limitation(self) -> str:
        return linking.missing_ptxas()

    def begin(self) -> None:
        self._loads.begin()
        self._loads.forms.recording = True

    def end(self) -> None:
        self._loads.forms.recording = False

    def launches(self) -> dict[int, LaunchCount]:
        return self._loads.counts.by_kernel()

    def problems(self) -> tuple[Problem, ...]:
        return *self._bytecode.problems(), *self._loads.problems

    def emit(self, mark: Mark, value: Any, when: Any) -> bool:
        """True while this thread rewrites a function."""
        return collect(mark, value, when)
