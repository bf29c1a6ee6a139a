"""Hooks on CuTe's compiler: the PTX of modules with marks is lowered and assembled, and replaces CuTe's binary for
execution, both caches, export to objects and TVM-FFI. CuTe's caches are keyed by the traced IR, which contains the
recording options (emit.TAG).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from cutlass._mlir import ir
from cutlass.base_dsl import compiler as cute_compiler
from cutlass.base_dsl import dsl as cute_dsl

from kscope.capture.model import ModuleMeta, Problem
from kscope.errors import KscopeError, PairingError, UnsupportedError
from kscope.instrument import compile_warnings
from kscope.instrument.hooks import Hook, Hooks
from kscope.instrument.recording import Recording
from kscope.instrument.selection.catalog import Sites
from kscope.language.mistakes import refuse_mistakes
from kscope.lowering import empty_regions, metadata_patch, register_budget
from kscope.lowering.plan import without_marks
from kscope.lowering.register_usage import Usage
from kscope.marks.operations import PIPELINE

from . import assembler, compilations, dry_run, fatbin, hook_points, loops, register_usage, tvm_ffi
from .load import user_function
from .source_comments import source_info, without_source_comments
from .traced_module import TracedModule, adopt, erase_selected, kernels, kernels_without_marks, restore, skipped

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_BACKEND = "CUTE_DSL_COMPILER_BACKEND"


class CompilerHooks:
    """The hooks, while recording is enabled.

    Attributes:
        recording: the options; None while disabled.
        tag: a cache key for them.
        options: the symbol of modules that are compiled with them.
    """

    def __init__(
        self,
        module_compiled: Callable[[], None],
        traced_without_marks: Callable[[list[tuple[str, str]]], None],
        marked_sites: Sites,
        compiling: Callable[[Any, str | None], None],
    ) -> None:
        """Installs nothing yet.

        Args:
            module_compiled: called after each compilation.
            traced_without_marks: called with the kernels of each module that gets no marks, also if a cache has it.
            marked_sites: the sites that were marked for a selection.
            compiling: called with each traced module, and with its pipeline if it is compiled.
        """
        self._compiling = compiling
        self._traced_without_marks = traced_without_marks
        self._sites = marked_sites
        self.recording: Recording | None = None
        self.tag = self.options = ""
        self._hooks = Hooks(
            Hook(cute_compiler.Compiler, "compile", self._lower),
            Hook(cute_dsl.BaseDSL, "compile_and_jit", self._unwrap),
            Hook(cute_dsl.BaseDSL, "get_module_hash", self._look_up),
            Hook(cute_dsl.BaseDSL, compilations.TRACE, self._trace),
        )
        self._module_compiled = module_compiled

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point or a compiler backend without them."""
        if os.environ.get(_BACKEND, "legacy") != "legacy":
            raise UnsupportedError(
                f"{_BACKEND}={os.environ[_BACKEND]}: kscope supports CuTe DSL's legacy compiler only: unset {_BACKEND}"
            )
        hook_points.check(cute_compiler.Compiler, "compile", "base_dsl.compiler.Compiler")
        for name in ("compile_and_jit", "get_module_hash"):
            hook_points.check(cute_dsl.BaseDSL, name, "base_dsl.dsl.BaseDSL")

    def install(self, recording: Recording) -> None:
        """Idempotent; later calls change the options."""
        tag = recording.tag(Path(__file__).parent)
        self.recording, self.tag, self.options = recording, tag + dry_run.cache_tag(), tag.replace("-", "_")
        self._hooks.install()

    def remove(self) -> None:
        """Inverse of install()."""
        self.recording, self.tag, self.options = None, "", ""
        self._hooks.remove()

    def _lower(
        self, original: Callable[..., Any], compiler: Any, module: Any, pipeline: str, *args: Any, **kwargs: Any
    ) -> Any:
        """Around CuTe's Compiler.compile: lowers the marks of a module that has some.

        Selected marks never break a program: a module that does not compile with them is compiled without them.
        """
        self._adopt(module)
        traced = None if self.recording is None or compilations.began_plain() else TracedModule.of(module)
        self._compiling(module, pipeline)
        if traced is None:
            self._traced_without_marks(kernels_without_marks(module))
            return original(compiler, module, pipeline, *args, **kwargs)

        def run(pipeline: str) -> Any:
            return original(compiler, module, pipeline, *args, **kwargs)

        job = _Job(run, module, pipeline, compiler.passmanager)
        if not traced.selected:
            return self._lower_marks(job)
        copy = module.operation.clone()
        try:
            return self._lower_marks(job)
        except Exception as error:  # of any kind: the program must compile as without kscope
            reason = f"it does not compile with marks ({_one_line(error)})"
        restore(module, copy)
        erase_selected(module)
        return self._lower_marks(job, [skipped(name, where, reason) for name, where in traced.selected.items()])

    def _lower_marks(self, job: _Job, problems: Iterable[Problem] = ()) -> Any:
        """Compile a module and lower its marks. problems: regions that were skipped."""
        recording = self.recording
        assert recording is not None
        known = (*problems, *loops.unmark_vectorized(job.module))
        compile_warnings.warn(known)
        traced = TracedModule.of(job.module)
        if traced is None:
            for problem in known:
                self._sites.note(recording.selection, problem)
            self._traced_without_marks(kernels_without_marks(job.module))
            return job.run(job.pipeline)
        loops.keep_exits_with_loads(job.module)
        symbols = kernels(job.module)
        with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
            compiled = job.run(assembler.dump_into(job.pipeline, ptx=folder))
            text, ending = assembler.read_ptx(folder)
        out = compiled if isinstance(compiled, ir.Module) else job.module
        lowered = _lowered(text, traced, known, recording, job, self.options)
        if not lowered.meta.kernels:  # the compiler removed all marks
            self._traced_without_marks(symbols)
        with out.context:
            assembler.replace_binary(out, traced.name, lowered.binary)
            tvm_ffi.export_library(out)
        _write_user_dumps(lowered, job.pipeline, ending)
        build_plain = partial(_plain_cubin, text, job)
        dry_run.note(lowered.meta, text, lowered.cubin, self._sites, recording.selection, build_plain)
        return compiled

    def _look_up(self, original: Callable[..., Any], dsl: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Around the key of CuTe's caches, which is computed of each module before it is launched."""
        self._adopt(module)
        self._traced_without_marks(kernels_without_marks(module))
        self._compiling(module, None)
        return original(dsl, module, *args, **kwargs)

    def _adopt(self, module: Any) -> None:
        """With auto="pipeline", kernels without marks are lowered, too."""
        selected = self.recording is not None and PIPELINE in self.recording.selection.kinds
        if selected and not compilations.began_plain():
            adopt(module, self.tag)

    def _trace(self, original: Callable[..., Any], dsl: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Around CuTe's tracing and compilation of a host function, and of the kernels that it launches."""
        refuse_mistakes(function, user_function)
        return compilations.compile_unchanged(original, dsl, function, *args, **kwargs)

    def _unwrap(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Around CuTe's compile_and_jit, which reports every error as internal: re-raises kscope's own."""
        handled = sys.exc_info()[1]
        try:
            function = original(*args, **kwargs)
        except Exception as error:
            cause = _kscope_error(error, handled)
            if cause is None or cause is error:
                raise
            raise cause from None
        self._module_compiled()
        return function


def _one_line(error: Exception) -> str:
    """An error's text without colors and line breaks, cut to 200 characters."""
    return " ".join(_COLOR.sub("", str(error)).split())[:200]


def _kscope_error(error: BaseException | None, handled: BaseException | None) -> KscopeError | None:
    """The kscope error from which an error was raised, if any; not from what its caller was handling."""
    while error is not None and error is not handled:
        if isinstance(error, KscopeError):
            return error
        error = error.__cause__ or error.__context__
    return None


@dataclass(frozen=True)
class _Job:
    """A compilation by CuTe.

    Attributes:
        run: runs it with a pipeline.
        module: the module.
        pipeline: CuTe's pipeline for it.
        manager: CuTe's passmanager module.
    """

    run: Callable[[str], Any]
    module: Any
    pipeline: str
    manager: Any


@dataclass(frozen=True)
class _LoweredModule:
    """A module with lowered marks: its metadata, PTX, binary and cubin."""

    meta: ModuleMeta
    text: str
    binary: bytes
    cubin: bytes


def _lowered(
    text: str, traced: TracedModule, known: Sequence[Problem], recording: Recording, job: _Job, options: str
) -> _LoweredModule:
    """Lower and assemble the module's PTX.

    Args:
        text: the PTX.
        traced: its IR.
        known: problems of its marks.
        recording: the options.
        job: the compilation.
        options: a name for the options, which becomes a symbol of the module.

    Raises:
        PairingError: pipelining split a region of the user's.
        KscopeError: as register_budget.lower_to_fit().
    """
    removed = traced.removed(text)

    @lru_cache(8)
    def assemble_new(lowered: str) -> assembler.Assembled:
        return assembler.assemble(lowered, job.pipeline, job.manager, traced.name)

    def assemble(lowered: str) -> assembler.Assembled:
        return metadata_patch.assemble_once(lowered, assemble_new, "binary", "cubin")

    def measure(lowered: str) -> Usage:
        return register_usage.usage(assemble(lowered).cubin, "setmaxnreg" in lowered)

    marked = f"{without_source_comments(text)}\n.visible .global .b8 {options}[1];\n"
    source = source_info(text, traced.taken_apart)
    machine_code = _MachineCode(job, traced.name)
    lowered = register_budget.lower_to_fit(
        marked,
        recording,
        frontend="cute",
        measure=measure,
        known=(*known, *removed),
        source=source,
        code=machine_code.assemble,
    )
    lowered = empty_regions.with_problems(lowered, marked, lambda code: assemble(code).cubin, source)
    broken = (one for one in lowered.problems if one.kind == "pairing" and one.region not in traced.selected)
    if traced.taken_apart and (first := next(broken, None)) is not None:
        raise PairingError(first.text)
    compile_warnings.warn(problem for problem in lowered.problems or removed if problem not in known)
    if lowered.cubin is not None:
        return _LoweredModule(lowered.meta, lowered.text, machine_code.binary(lowered.cubin), lowered.cubin)
    assembled = assemble(lowered.text)
    return _LoweredModule(lowered.meta, lowered.text, assembled.binary, assembled.cubin)


class _MachineCode:
    """Machine code of a module's texts by CuTe's assembler for placement="schedule", and the binary with other code."""

    def __init__(self, job: _Job, name: str) -> None:
        self._job, self._name = job, name
        self._lock = threading.Lock()  # CuTe's compiler runs in one thread at a time
        self._made: assembler.Assembled | None = None

    def assemble(self, text: str, lines: bool) -> bytes:
        """The cubin. Raises UnsupportedError if it could not be replaced in CuTe's binary."""
        with self._lock:
            made = assembler.assemble(text, self._job.pipeline, self._job.manager, self._name, lines)
        self._made = made
        fatbin.with_cubin(made.binary, made.cubin, made.cubin)  # checks its layout
        return made.cubin

    def binary(self, cubin: bytes) -> bytes:
        """CuTe's binary with this cubin."""
        assert self._made is not None
        return fatbin.with_cubin(self._made.binary, self._made.cubin, cubin)


def _plain_cubin(text: str, job: _Job) -> bytes:
    """The cubin of a module without its marks."""
    return assembler.assemble(without_marks(without_source_comments(text)), job.pipeline, job.manager).cubin


def _write_user_dumps(lowered: _LoweredModule, pipeline: str, ending: str) -> None:
    """Write the files that the user requested with keep-ptx and keep-cubin."""
    for kind, content in (("ptx", lowered.text.encode()), ("cubin", lowered.cubin)):
        path = assembler.user_dump_path(pipeline, kind, ending)
        if path is not None:
            path.write_bytes(content)
