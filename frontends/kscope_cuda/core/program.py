"""compile() and arm(): cuda.core programs with marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from kscope import cuda_include
from kscope.capture.wire import CTL_SYMBOL
from kscope.errors import UnsupportedError
from kscope.instrument import loaded_code, registry
from kscope.instrument.recording import Recording
from kscope.lowering.pipeline import concerns
from kscope.machine_code.elf import is_elf

from .. import assembler, dry_run, nvrtc, select
from ..empty_scopes import refuse_empty_scopes
from .frontend import NAME, CoreFrontend

cuda_core: Any = import_module("cuda.core")
_REQUIRED = ("Program", "ProgramOptions", "ObjectCode")


def compile(source: str, options: Any = None, *, name_expressions: Sequence[str] = ()) -> Any:
    """Compile C++, with marks if recording is enabled; the ObjectCode does not change afterwards.

    Args:
        source: CUDA C++.
        options: cuda.core's ProgramOptions; the header's folder is added.
        name_expressions: template instances, as for ``Program.compile``.

    Returns:
        A ``cuda.core.ObjectCode``.

    Raises:
        UnsupportedError, PairingError, UsageError: the marks cannot be lowered, or cuda.core is too old.
    """
    _check()
    frontend = registry.frontend(NAME)
    assert isinstance(frontend, CoreFrontend)
    recording = frontend.recording
    options = _with_header(options or cuda_core.ProgramOptions(), recording)
    if recording is None:
        return cuda_core.Program(nvrtc.with_header(source), "c++", options).compile("cubin", name_expressions)
    refuse_empty_scopes(source, nvrtc.FILE)
    marked = select.marked(source, recording.selection)
    text = nvrtc.with_header(source if marked is None else marked.text, name=nvrtc.FILE)
    code = cuda_core.Program(text, "c++", replace(options, lineinfo=True)).compile("ptx", name_expressions)
    ptx = bytes(code.code).decode().rstrip("\0")
    if not concerns(ptx, recording):
        return cuda_core.Program(nvrtc.with_header(source), "c++", options).compile("cubin", name_expressions)
    names = {bytes(mangled).decode(): name for name, mangled in code.symbol_mapping.items()}
    with dry_run.compiling(marked):
        lowered = nvrtc.lower(ptx, recording, frontend=NAME, arch=options.arch, flags=_flags(options), names=names)
    load = cuda_core.ObjectCode.from_cubin if is_elf(lowered) else cuda_core.ObjectCode.from_ptx
    return load(lowered, name=options.name, symbol_mapping=code.symbol_mapping)


def arm(code: Any) -> None:
    """Let this and later sessions record the kernels of an ObjectCode; ignores one without marks.

    Args:
        code: an ObjectCode that is loaded on the current device; call it once per device.
    """
    image = bytes(code.code)
    if CTL_SYMBOL.encode() in image:
        registry.backend("cuda").module_loaded(int(code.get_module()))
        loaded_code.keep(image, shared=True)


def _check() -> None:
    missing = [name for name in _REQUIRED if not hasattr(cuda_core, name)]
    if missing or not hasattr(cuda_core.ObjectCode, "get_module"):
        version = getattr(cuda_core, "__version__", "before 1")
        name = missing[0] if missing else "ObjectCode.get_module"
        raise UnsupportedError(
            f"cuda.core {version} has no cuda.core.{name}, which kscope needs to prepare programs: "
            "pip install 'cuda-core>=1'"
        )


def _with_header(options: Any, recording: Recording | None) -> Any:
    defines = [flag.removeprefix("-D") for flag in nvrtc.options(recording) if flag.startswith("-D")]
    return replace(
        options,
        include_path=[*_as_list(options.include_path), cuda_include()],
        define_macro=[*_as_list(options.define_macro), *defines] or None,
    )


def _as_list(values: Any) -> list[Any]:
    """cuda.core takes None, a string, a (name, value), or a list of these."""
    if values is None:
        return []
    return list(values) if isinstance(values, list) else [values]


def _flags(options: Any) -> tuple[str, ...]:
    flags = [f"-maxrregcount={options.max_register_count}"] if options.max_register_count else []
    flags += ["-lineinfo"] if options.lineinfo else []
    flags += [f"-Xptxas={flag}" for flag in _as_list(options.ptxas_options)]
    return assembler.flags(flags)
