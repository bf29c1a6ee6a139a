"""Hooks on CuPy's compilers: sources with marks become PTX, are lowered and assembled, and get separate cache keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kscope.errors import UnsupportedError
from kscope.instrument.hooks import Hooks
from kscope.instrument.recording import Recording
from kscope.language.cuda_header import source_uses_header
from kscope.marks.operations import PIPELINE

from .. import assembler, dry_run, nvrtc, select
from ..empty_scopes import refuse_empty_scopes
from . import hook_points, loaded_code
from .emit import prelude
from .hook_points import compiler
from .load import LoaderHooks

_COMPILE_MODULE, _PROGRAM, _NVCC = "_compile_module_with_cache", "_NVRTCProgram", "compile_using_nvcc"
_COMPILE = "compile"
_FLAGS, _ARCH = "_rdc_flags", "_get_arch"
NAME = "cupy"


class CompilerHooks:
    """The hooks on CuPy's compilers. Without a recording they only add the header's folder, for teach()."""

    def __init__(self, loader: LoaderHooks) -> None:
        self._loader = loader
        self._recording: Recording | None = None
        self._options: tuple[str, ...] = ()
        self._hooks = Hooks()

    def check(self) -> None:
        """Raise UnsupportedError naming the hook point that this CuPy lacks."""
        hook_points.check(compiler, _COMPILE_MODULE, _PROGRAM, _NVCC, _FLAGS, _ARCH, loaded_code.FUNCTION)
        hook_points.check(hook_points.fetch(compiler, _PROGRAM), _COMPILE)

    def install(self, recording: Recording | None) -> None:
        """Install the hooks for this recording; idempotent."""
        self._recording, self._options = recording, nvrtc.options(recording)
        self._hooks.add(compiler, _COMPILE_MODULE, self._compile_module)
        self._hooks.add(hook_points.fetch(compiler, _PROGRAM), _COMPILE, self._compile_program)
        self._hooks.add(compiler, _NVCC, self._compile_nvcc)

    def remove(self) -> None:
        """Remove the hooks."""
        self._recording = None
        self._hooks.remove()

    def _compile_module(
        self, original: Any, source: str, options: tuple[str, ...] = (), *args: Any, **named: Any
    ) -> Any:
        """Replaces _compile_module_with_cache(): a loaded module, or LTO-IR, which never gets marks."""
        with self._loader.lock:
            return self._module(original, source, options, *args, **named)

    def _module(self, original: Any, source: str, options: tuple[str, ...], *args: Any, **named: Any) -> Any:
        self._loader.compiling()
        recording = None if named.get("to_ltoir") else self._recording
        marked = None
        if recording is not None:
            refuse_empty_scopes(source, nvrtc.FILE)
            marked = select.marked(source, recording.selection, kinds=self._loader.compiling_raw)
        uses_header = source_uses_header(source, nvrtc.include_folders(options))
        if marked is None and not uses_header and not self._records_operations(recording):
            return original(source, options, *args, **named)

        def load_plain() -> Any:
            if not uses_header:
                return original(source, options, *args, **named)
            text = nvrtc.with_header(source, prelude(source, False))
            return original(text, (*options, *nvrtc.options(None)), *args, **named)

        if recording is None:
            return load_plain()
        text = source if marked is None else marked.text
        text = nvrtc.with_header(text, prelude(text, True), nvrtc.FILE)
        with dry_run.compiling(marked), loaded_code.seen() as code:
            module = original(text, (*options, *self._options, *nvrtc.line_info(options)), *args, **named)
        return self._loader.prepared(module, code, load_plain)

    def _compile_nvcc(
        self,
        original: Any,
        source: str,
        options: tuple[str, ...] = (),
        arch: Any = None,
        filename: str = "kern.cu",
        code_type: str = "cubin",
        separate_compilation: bool = False,
        log_stream: Any = None,
    ) -> bytes:
        """Replaces compile_using_nvcc()."""
        recording = self._recording
        if recording is None or nvrtc.MARKS not in options or code_type != "cubin":
            code: bytes = original(source, options, arch, filename, code_type, separate_compilation, log_stream)
            return code
        if separate_compilation:
            raise UnsupportedError(
                f"{Path(filename).name}: kernels with regions cannot be built as relocatable device code (-dc, "
                "-rdc=true) by nvcc here: compile them without it, or with backend='nvrtc'"
            )
        ptx = original(source, options, arch, filename, "ptx", False, log_stream)
        real = f"sm_{arch or hook_points.fetch(compiler, _ARCH)()}"
        flags = assembler.flags(nvrtc.without_kscope(options))
        return nvrtc.lower(ptx.decode(), recording, frontend=NAME, arch=real, flags=flags, patched=True)

    def _compile_program(
        self, original: Any, program: Any, options: tuple[str, ...] = (), log_stream: Any = None
    ) -> Any:
        """Replaces _NVRTCProgram.compile(): marked sources stop at PTX."""
        recording = self._recording
        if recording is None or nvrtc.MARKS not in options or program.method == "lto":
            return original(program, options, log_stream)
        method, program.method = program.method, "ptx"
        ptx, mapping = original(program, nvrtc.virtual(options), log_stream)
        return self._lowered(ptx, recording, options, method, mapping), mapping

    def _lowered(
        self, ptx: bytes, recording: Recording, options: tuple[str, ...], method: str, mapping: dict[str, str] | None
    ) -> bytes:
        """A cubin or PTX, as CuPy requested; PTX if CuPy links it with other code."""
        linked = any(option in hook_points.fetch(compiler, _FLAGS) for option in options)
        arch = None if linked or method != "cubin" else nvrtc.architecture(options)
        text = ptx.decode().rstrip("\0")
        names = {mangled: name for name, mangled in (mapping or {}).items()}
        flags = assembler.flags(nvrtc.without_kscope(options))
        return nvrtc.lower(text, recording, frontend=NAME, arch=arch, flags=flags, names=names, patched=True)

    def _records_operations(self, recording: Recording | None) -> bool:
        """True if auto="pipeline" may find something in the PTX of this thread's source."""
        return recording is not None and PIPELINE in recording.selection.kinds and self._loader.compiling_raw

    @property
    def recording(self) -> Recording | None:
        return self._recording
