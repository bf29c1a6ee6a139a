"""CuPy's compilers: sources with macros are compiled to PTX, lowered, and assembled, and have cache keys of their
own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kscope.errors import UnsupportedError
from kscope.instrument.hooks import Hook
from kscope.instrument.recording import Recording

from .. import assembling, lines, nvrtc, sites
from . import hook_points
from .hook_points import compiler
from .jit import prelude
from .load import Loader

_FUNNEL, _PROGRAM, _NVCC = "_compile_module_with_cache", "_NVRTCProgram", "compile_using_nvcc"
_COMPILE = "compile"
_FLAGS, _ARCH = "_rdc_flags", "_get_arch"
NAME = "cupy"


class Compiling:
    """The hooks on CuPy's compilers. Without a recording they only let CuPy find the header (teach_cupy)."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._recording: Recording | None = None
        self._options: tuple[str, ...] = ()
        self._hooks: list[Hook] = []

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this CuPy lacks."""
        hook_points.check(compiler, _FUNNEL, _PROGRAM, _NVCC, _FLAGS, _ARCH)
        hook_points.check(hook_points.fetch(compiler, _PROGRAM), _COMPILE)

    def install(self, recording: Recording | None) -> None:
        """Put the hooks in, or change what they do."""
        self._recording, self._options = recording, nvrtc.options(recording)
        if not self._hooks:
            self._hooks = [
                Hook(compiler, _FUNNEL, self._compile),
                Hook(hook_points.fetch(compiler, _PROGRAM), _COMPILE, self._program),
                Hook(compiler, _NVCC, self._nvcc),
            ]
        for hook in self._hooks:
            hook.install()

    def remove(self) -> None:
        """Inverse of install()."""
        self._recording = None
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _compile(self, original: Any, source: str, options: tuple[str, ...] = (), *more: Any, **rest: Any) -> Any:
        """In the place of _compile_module_with_cache(): a loaded module, or LTO-IR, which is never prepared."""
        self._loader.compiles()
        recording = None if rest.get("to_ltoir") else self._recording
        marked = None
        if recording is not None:
            marked = lines.marked(source, recording.selection, kinds=self._loader.raw)
        if marked is None and not nvrtc.concerns(source, options):
            return original(source, options, *more, **rest)
        source = source if marked is None else marked.text
        added = (*self._options, *nvrtc.lines(options)) if recording else nvrtc.options(None)
        source = nvrtc.with_header(source, prelude(source, recording is not None), nvrtc.FILE if recording else "")
        with sites.sites(marked):
            made = original(source, (*options, *added), *more, **rest)
        return made if recording is None else self._loader.prepared(made)

    def _nvcc(
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
        """In the place of compile_using_nvcc()."""
        recording = self._recording
        if recording is None or nvrtc.MARKS not in options or code_type != "cubin":
            made: bytes = original(source, options, arch, filename, code_type, separate_compilation, log_stream)
            return made
        if separate_compilation:
            raise UnsupportedError(
                f"{Path(filename).name}: kernels with regions cannot be built as relocatable device code (-dc, "
                "-rdc=true) by nvcc here: compile them without it, or with backend='nvrtc'"
            )
        ptx = original(source, options, arch, filename, "ptx", False, log_stream)
        real = f"sm_{arch or hook_points.fetch(compiler, _ARCH)()}"
        flags = assembling.flags(nvrtc.of_user(options))
        return nvrtc.lower(ptx.decode(), recording, frontend=NAME, arch=real, flags=flags)

    def _program(self, original: Any, program: Any, options: tuple[str, ...] = (), log_stream: Any = None) -> Any:
        """In the place of _NVRTCProgram.compile(): marked sources stop at PTX."""
        recording = self._recording
        if recording is None or nvrtc.MARKS not in options or program.method == "lto":
            return original(program, options, log_stream)
        method, program.method = program.method, "ptx"
        ptx, mapping = original(program, nvrtc.virtual(options), log_stream)
        return self._lowered(ptx, recording, options, method, mapping), mapping

    def _lowered(
        self, ptx: bytes, recording: Recording, options: tuple[str, ...], method: str, mapping: dict[str, str] | None
    ) -> bytes:
        """What NVRTC hands to CuPy: a cubin or PTX as asked for, PTX where CuPy links it with other code."""
        linked = any(option in hook_points.fetch(compiler, _FLAGS) for option in options)
        arch = None if linked or method != "cubin" else nvrtc.architecture(options)
        text = ptx.decode().rstrip("\0")
        names = {mangled: name for name, mangled in (mapping or {}).items()}
        flags = assembling.flags(nvrtc.of_user(options))
        return nvrtc.lower(text, recording, frontend=NAME, arch=arch, flags=flags, names=names)

    @property
    def recording(self) -> Recording | None:
        return self._recording
