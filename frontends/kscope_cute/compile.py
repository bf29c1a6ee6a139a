"""Hooks on CuTe's compiler: the PTX of modules with marks is lowered and assembled, and replaces CuTe's binary.

Execution, both caches, export to objects and TVM-FFI all use the replaced binary. CuTe's caches are keyed by the traced
IR, which contains the recording options (emit.TAG).
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from cutlass._mlir import ir
from cutlass.base_dsl import compiler as cute_compiler
from cutlass.base_dsl import dsl as cute_dsl

from kscope.capture.model import ModuleMeta, Problem
from kscope.errors import KscopeError, PairingError, UnsupportedError
from kscope.instrument.hooks import Hook
from kscope.instrument.recording import Recording
from kscope.instrument.selection.catalog import Sites
from kscope.lowering import register_budget
from kscope.lowering.plan import without_marks
from kscope.marks.grammar import format_name, parse, unquote

from . import assembler, cubin, hook_points, sites, tvm_ffi
from .emit import TAG
from .source_comments import source_info, without_source_comments

_STAGES = "; in a loop with prefetch_stages a region cannot contain both the loads and their use: split it in two"
_BACKEND = "CUTE_DSL_COMPILER_BACKEND"
_PIPELINED = "cutlass.pipelining"
"""The attribute of a loop with prefetch_stages."""
_NAME = re.compile(r"//kscope (?:enter|instant|counter) (\S+) ")


class CompilerHooks:
    """The hooks, while recording is enabled."""

    def __init__(self, module_compiled: Callable[[], None], marked_sites: Sites) -> None:
        """module_compiled: called after each compilation. marked_sites: the sites that were marked for a selection."""
        self._sites = marked_sites
        self.recording: Recording | None = None
        self.tag = ""
        self._compile = Hook(cute_compiler.Compiler, "compile", self._lower)
        self._jit = Hook(cute_dsl.BaseDSL, "compile_and_jit", self._unwrap)
        self._thread = threading.local()
        self._module_compiled = module_compiled

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point or a compiler backend without them."""
        if os.environ.get(_BACKEND, "legacy") != "legacy":
            raise UnsupportedError(
                f"{_BACKEND}={os.environ[_BACKEND]}: kscope supports CuTe DSL's legacy compiler only: unset {_BACKEND}"
            )
        hook_points.check(cute_compiler.Compiler, "compile", "base_dsl.compiler.Compiler")
        hook_points.check(cute_dsl.BaseDSL, "compile_and_jit", "base_dsl.dsl.BaseDSL")

    def install(self, recording: Recording) -> None:
        """Idempotent; later calls change the options."""
        self.recording, self.tag = recording, recording.tag(Path(__file__).parent) + sites.cache_tag()
        self._compile.install()
        self._jit.install()

    def remove(self) -> None:
        """Inverse of install()."""
        self.recording, self.tag = None, ""
        self._compile.remove()
        self._jit.remove()

    def _lower(
        self, original: Callable[..., Any], compiler: Any, module: Any, pipeline: str, *args: Any, **kwargs: Any
    ) -> Any:
        """Around CuTe's Compiler.compile: lowers the marks of a module that has some."""
        names = [name for name, marked in _gpu_modules(module) if marked]
        if not names or self.recording is None:
            return original(compiler, module, pipeline, *args, **kwargs)
        traced = _TracedModule.of(str(module), names[0])
        try:
            with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
                dumping = assembler.dump_into(pipeline, ptx=folder)
                compiled = original(compiler, module, dumping, *args, **kwargs)
                text, ending = assembler.read_ptx(folder)
            out = compiled if isinstance(compiled, ir.Module) else module
            lowered = _lowered(text, traced, self.recording, pipeline, compiler.passmanager)
            with out.context:
                assembler.replace_binary(out, names[0], lowered.binary)
                tvm_ffi.export_library(out)
            _write_user_dumps(lowered, pipeline, ending)
            build_plain = partial(_plain_cubin, text, pipeline, compiler.passmanager)
            sites.note(lowered.meta, text, lowered.cubin, self._sites, self.recording.selection, build_plain)
        except KscopeError as error:
            self._thread.error = error
            raise
        return compiled

    def _unwrap(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Around CuTe's compile_and_jit, which reports every error as internal: re-raises kscope's own."""
        self._thread.error = None
        try:
            function = original(*args, **kwargs)
            self._module_compiled()
        except Exception:
            if (error := self._thread.error) is not None:
                self._thread.error = None
                raise error from None
            raise
        return function


@dataclass(frozen=True)
class _TracedModule:
    """A module's IR before it is compiled.

    Attributes:
        name: the gpu.module's name.
        marks: names of its marks.
        pipelined: whether the compiler may pipeline one of its loops.
    """

    name: str
    marks: frozenset[str]
    pipelined: bool

    @staticmethod
    def of(text: str, name: str) -> _TracedModule:
        return _TracedModule(name, frozenset(map(unquote, _NAME.findall(text))), _PIPELINED in text)

    def removed(self, text: str) -> tuple[Problem, ...]:
        """A problem for names without a mark left in the PTX: their code is unreachable."""
        names = sorted(self.marks - {mark.name for mark in map(parse, text.splitlines()) if mark is not None})
        if not names:
            return ()
        listed = ", ".join(map(format_name, names))
        problem = f"the CuTe DSL compiler removed every mark of {listed}: unreachable code is the usual cause"
        return (Problem("removed", problem, len(names)),)

    def check(self, problems: Iterable[Problem]) -> None:
        """Raises PairingError if pipelining split a region."""
        broken = [problem.text for problem in problems if problem.kind == "pairing"]
        if broken and self.pipelined:
            raise PairingError(f"{broken[0]}{_STAGES}")


@dataclass(frozen=True)
class _LoweredModule:
    """A module with lowered marks: its metadata, PTX, binary and cubin."""

    meta: ModuleMeta
    text: str
    binary: bytes
    cubin: bytes


def _lowered(text: str, traced: _TracedModule, recording: Recording, pipeline: str, manager: Any) -> _LoweredModule:
    """Lower and assemble the module's PTX. Raises what register_budget.lower_to_fit() raises."""
    removed = traced.removed(text)

    @lru_cache(8)
    def assemble(lowered: str) -> assembler.Assembled:
        return assembler.assemble(lowered, pipeline, manager, traced.name)

    def measure(lowered: str) -> register_budget.Usage:
        return cubin.usage(assemble(lowered).cubin, "setmaxnreg" in lowered)

    try:
        lowered = register_budget.lower_to_fit(
            without_source_comments(text),
            recording,
            frontend="cute",
            measure=measure,
            known=removed,
            source=source_info(text),
        )
    except PairingError as error:
        raise PairingError(f"{error}{_STAGES if traced.pipelined else ''}") from None
    traced.check(lowered.problems)
    for problem in lowered.problems or removed:
        warnings.warn(f"kscope: {problem.text}", stacklevel=2)
    assembled = assemble(lowered.text)
    return _LoweredModule(lowered.meta, lowered.text, assembled.binary, assembled.cubin)


def _plain_cubin(text: str, pipeline: str, manager: Any) -> bytes:
    """The cubin of a module without its marks."""
    return assembler.assemble(without_marks(without_source_comments(text)), pipeline, manager).cubin


def _write_user_dumps(lowered: _LoweredModule, pipeline: str, ending: str) -> None:
    """Write the files that the user requested with keep-ptx and keep-cubin."""
    for kind, content in (("ptx", lowered.text.encode()), ("cubin", lowered.cubin)):
        path = assembler.user_dump_path(pipeline, kind, ending)
        if path is not None:
            path.write_bytes(content)


def _gpu_modules(module: Any) -> Iterator[tuple[str, bool]]:
    """Name of each gpu.module, and whether it has marks."""
    for operation in module.body.operations:
        if operation.operation.name == "gpu.module":
            attributes = operation.operation.attributes
            yield ir.StringAttr(attributes["sym_name"]).value, TAG in attributes
