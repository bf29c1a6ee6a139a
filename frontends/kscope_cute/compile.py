"""The compilation: modules with marks are compiled to PTX, lowered, assembled, and their binary takes the place of
the one with marks.

What lives here: the hooks in the compiler, and what surrounds lowering. What does not: lowering (kscope/lowering), how
PTX becomes a binary (assembling.py), how a mark enters the IR (placing.py).

Everything that CuTe does with a compiled module comes after: execution, both caches, export to objects, TVM-FFI.
Its caches are keyed by the traced IR, which says for which recording the marks are (placing.TAG).
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
from kscope.instrument.selection.catalogue import Sites
from kscope.lowering import register_budget
from kscope.lowering.plan import without_marks
from kscope.marks.grammar import format_name, parse, unquote

from . import assembling, cubin, ffi, hook_points, places
from . import sites as listed
from .emit import TAG

_STAGES = "; a region in a loop with prefetch_stages may not hold both its loads and their use: name the two apart"
_BACKEND = "CUTE_DSL_COMPILER_BACKEND"
_STAGED = "cutlass.pipelining"
"""The attribute of a loop with prefetch_stages."""
_NAME = re.compile(r"//kscope (?:enter|instant|counter) (\S+) ")


class Pipeline:
    """The hooks in CuTe's compiler, while recording is enabled."""

    def __init__(self, compiled: Callable[[], None], sites: Sites) -> None:
        """compiled: told after each compilation. sites: what was marked that nobody annotated."""
        self._sites = sites
        self.recording: Recording | None = None
        self.tag = ""
        self._compile = Hook(cute_compiler.Compiler, "compile", self._lower)
        self._jit = Hook(cute_dsl.BaseDSL, "compile_and_jit", self._unwrap)
        self._raised = threading.local()
        self._compiled = compiled

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this CuTe DSL lacks, or the compiler that has none."""
        if os.environ.get(_BACKEND, "legacy") != "legacy":
            raise UnsupportedError(
                f"{_BACKEND}={os.environ[_BACKEND]} is a compiler of CuTe DSL that kscope does not know: unset it"
            )
        hook_points.check(cute_compiler.Compiler, "compile", "base_dsl.compiler.Compiler")
        hook_points.check(cute_dsl.BaseDSL, "compile_and_jit", "base_dsl.dsl.BaseDSL")

    def install(self, recording: Recording) -> None:
        """Take the hook points, or change the options of the hooks that have them."""
        self.recording, self.tag = recording, recording.tag(Path(__file__).parent) + listed.tag()
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
        """CuTe's Compiler.compile: a module without marks as it is, else with its marks lowered."""
        names = [name for name, marked in _gpu_modules(module) if marked]
        if not names or self.recording is None:
            return original(compiler, module, pipeline, *args, **kwargs)
        traced = _Traced.of(str(module), names[0])
        try:
            with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
                asking = assembling.dumping(pipeline, ptx=folder)
                compiled = original(compiler, module, asking, *args, **kwargs)
                text, ending = assembling.dumped(folder)
            out = compiled if isinstance(compiled, ir.Module) else module
            made = _lowered(text, traced, self.recording, pipeline, compiler.passmanager)
            with out.context:
                assembling.replace_binary(out, names[0], made.binary)
                ffi.tell(out)
            _keep(made, pipeline, ending)
            plain = partial(_plain, text, pipeline, compiler.passmanager)
            listed.note(made.meta, text, made.cubin, self._sites, self.recording.selection, plain)
        except KscopeError as error:
            self._raised.error = error
            raise
        return compiled

    def _unwrap(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """CuTe's compile_and_jit, which calls every error of a compiler an internal one: ours are for the user."""
        self._raised.error = None
        try:
            made = original(*args, **kwargs)
            self._compiled()
        except Exception:
            if (error := self._raised.error) is not None:
                self._raised.error = None
                raise error from None
            raise
        return made


@dataclass(frozen=True)
class _Traced:
    """What the IR of a module says before it is compiled. module: the gpu.module's name. placed: names of its marks.
    staged: whether the compiler may pipeline a loop of it."""

    module: str
    placed: frozenset[str]
    staged: bool

    @staticmethod
    def of(text: str, module: str) -> _Traced:
        return _Traced(module, frozenset(map(unquote, _NAME.findall(text))), _STAGED in text)

    def lost(self, text: str) -> tuple[Problem, ...]:
        """Names of which no mark is left in the PTX: their code can never run."""
        found = {mark.name for mark in map(parse, text.splitlines()) if mark is not None}
        removed = sorted(self.placed - found)
        if not removed:
            return ()
        listed = ", ".join(map(format_name, removed))
        told = f"the CuTe DSL compiler removed every mark of {listed}: code that can never run has this effect"
        return (Problem("removed", told, len(removed)),)

    def check(self, problems: Iterable[Problem]) -> None:
        """Raises PairingError where pipelining took a region apart."""
        broken = [problem.text for problem in problems if problem.kind == "pairing"]
        if broken and self.staged:
            raise PairingError(f"{broken[0]}{_STAGES}")


@dataclass(frozen=True)
class _Made:
    """A module whose marks are lowered."""

    meta: ModuleMeta
    text: str
    binary: bytes
    cubin: bytes


def _lowered(text: str, traced: _Traced, recording: Recording, pipeline: str, manager: Any) -> _Made:
    """The module's PTX, lowered, and its binary. Raises as fit.lower_to_fit()."""
    lost = traced.lost(text)

    @lru_cache(8)
    def assemble(lowered: str) -> assembling.Assembled:
        return assembling.assemble(lowered, pipeline, manager, traced.module)

    def measure(lowered: str) -> register_budget.Usage:
        return cubin.usage(assemble(lowered).cubin, "setmaxnreg" in lowered)

    try:
        lowered = register_budget.lower_to_fit(
            places.untold(text), recording, frontend="cute", measure=measure, known=lost, told=places.told(text)
        )
    except PairingError as error:
        raise PairingError(f"{error}{_STAGES if traced.staged else ''}") from None
    traced.check(lowered.problems)
    for problem in lowered.problems or lost:
        warnings.warn(f"kscope: {problem.text}", stacklevel=2)
    made = assemble(lowered.text)
    return _Made(lowered.meta, lowered.text, made.binary, made.cubin)


def _plain(text: str, pipeline: str, manager: Any) -> bytes:
    """The cubin of a module without its marks."""
    return assembling.assemble(without_marks(places.untold(text)), pipeline, manager).cubin


def _keep(made: _Made, pipeline: str, ending: str) -> None:
    """Write the files that the user wants to keep of the compilation."""
    for kind, content in (("ptx", made.text.encode()), ("cubin", made.cubin)):
        path = assembling.kept(pipeline, kind, ending)
        if path is not None:
            path.write_bytes(content)


def _gpu_modules(module: Any) -> Iterator[tuple[str, bool]]:
    """Name of each gpu.module, and whether it has marks."""
    for operation in module.body.operations:
        if operation.operation.name == "gpu.module":
            attributes = operation.operation.attributes
            yield ir.StringAttr(attributes["sym_name"]).value, TAG in attributes
