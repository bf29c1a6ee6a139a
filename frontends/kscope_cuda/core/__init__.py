"""cuda.core: programs that are compiled while the process runs, and record.

    from kscope_cuda import core

    code = core.compile(source, ProgramOptions(std="c++17", arch="sm_90"))
    kernel = code.get_kernel("kernel")
    core.arm(code)

cuda.core's classes are compiled code that nothing can be hooked into, so these two calls stand for
``Program(source, "c++", options).compile("cubin")`` and for the hook on loading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from kscope import cuda_include
from kscope.capture.layout import CTL_SYMBOL
from kscope.errors import UnsupportedError
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import PREFIX

from .. import assembling, lines, nvrtc, sites

NAME = "cuda.core"
cuda_core: Any = import_module("cuda.core")
_USED = ("Program", "ProgramOptions", "ObjectCode")


class CoreFrontend(Frontend):
    """Knows what compile() compiles for. Hooks nothing: any version of cuda.core may be imported."""

    name = NAME
    selects = frozenset({"kinds", "lines"})

    def __init__(self) -> None:
        self.recording: Recording | None = None

    def enable(self, recording: Recording) -> None:
        """Programs that compile() makes from now on carry marks."""
        self.recording = recording

    def disable(self) -> None:
        """Programs that compile() makes from now on are plain."""
        self.recording = None

    def lacks(self) -> str:
        return assembling.lacking()


def compile(source: str, options: Any = None, *, name_expressions: Sequence[str] = ()) -> Any:
    """An ObjectCode of C++: plain, or prepared where recording is enabled now. It stays what it is.

    options: cuda.core's ProgramOptions; the header's folder is added to them. Raises as plan.lower() does, and
    UnsupportedError for a cuda.core that lacks what this needs.
    """
    _check()
    frontend = registry.frontend(NAME)
    assert isinstance(frontend, CoreFrontend)
    recording = frontend.recording
    options = _with_header(options or cuda_core.ProgramOptions(), recording)
    if recording is None:
        return cuda_core.Program(nvrtc.with_header(source), "c++", options).compile("cubin", name_expressions)
    marked = lines.marked(source, recording.selection)
    given = source if marked is None else marked.text
    text, told = nvrtc.with_header(given, name=nvrtc.FILE), replace(options, lineinfo=True)
    made = cuda_core.Program(text, "c++", told).compile("ptx", name_expressions)
    ptx = bytes(made.code).decode().rstrip("\0")
    if PREFIX not in ptx:
        return cuda_core.Program(nvrtc.with_header(source), "c++", options).compile("cubin", name_expressions)
    names = {bytes(mangled).decode(): name for name, mangled in made.symbol_mapping.items()}
    with sites.sites(marked):
        code = nvrtc.lower(ptx, recording, frontend=NAME, arch=options.arch, flags=_flags(options), names=names)
    load = cuda_core.ObjectCode.from_cubin if code.startswith(b"\x7fELF") else cuda_core.ObjectCode.from_ptx
    return load(code, name=options.name, symbol_mapping=made.symbol_mapping)


def arm(code: Any) -> None:
    """Tell kscope of an ObjectCode that is loaded on the current device; once for each device that runs it.

    Its kernels record in this and every later session. A plain one is left alone.
    """
    if CTL_SYMBOL.encode() in bytes(code.code):
        registry.backend("cuda").module_loaded(int(code.get_module()))


def _check() -> None:
    missing = [name for name in _USED if not hasattr(cuda_core, name)]
    missing += [] if missing or hasattr(cuda_core.ObjectCode, "get_module") else ["ObjectCode.get_module"]
    if missing:
        version = getattr(cuda_core, "__version__", "before 1")
        raise UnsupportedError(
            f"cuda.core {version} has no cuda.core.{missing[0]}, which kscope needs to prepare programs: "
            "pip install 'cuda-core>=1'"
        )


def _with_header(options: Any, recording: Recording | None) -> Any:
    words = nvrtc.options(recording)
    defines = [word.removeprefix("-D") for word in words if word.startswith("-D")]
    return replace(
        options,
        include_path=[*_several(options.include_path), cuda_include()],
        define_macro=[*_several(options.define_macro), *defines] or None,
    )


def _several(words: Any) -> list[Any]:
    """cuda.core takes one or several: None, a word, a (name, value), or a list of these."""
    if words is None:
        return []
    return list(words) if isinstance(words, list) else [words]


def _flags(options: Any) -> tuple[str, ...]:
    flags = [f"-maxrregcount={options.max_register_count}"] if options.max_register_count else []
    flags += ["-lineinfo"] if options.lineinfo else []
    flags += [f"-Xptxas={word}" for word in _several(options.ptxas_options)]
    return assembling.flags(flags)
