"""Linking as Numba does it, with LTO in two steps: to PTX, which is lowered, and from there to a cubin."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from kscope.capture.wire import CTL_SYMBOL
from kscope.errors import MissingError
from kscope.language.cuda_header import cuda_include, source_uses_header
from kscope.lowering import assembler, register_budget
from kscope.lowering.register_usage import Usage, read_log
from kscope.marks.grammar import PREFIX

from .hook_points import check, module

_driver: Any = module("cudadrv.driver")
_nvrtc: Any = module("cudadrv.nvrtc")
_PATHS = "CUDA_NVRTC_EXTRA_SEARCH_PATHS"


def check_hook_points() -> None:
    """Raises UnsupportedError naming a missing hook point."""
    check(_driver, "_Linker", "Linker", "LinkerOptions", "ObjectCode")
    check(_driver._Linker, "add_ptx", "add_file_guess_ext", "get_linked_ptx", "complete", "info_log")
    check(_nvrtc.config, _PATHS)


class LtoLinker(_driver._Linker):
    """Numba's linker for the first step. deferred: the inputs without LTO-IR, for the second step."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.deferred: list[Any] = []

    def add_file_guess_ext(self, path_or_code: Any, ignore_nonlto: bool = False) -> None:
        before = len(self._object_codes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Not adding .* as it is not optimizable")
            super().add_file_guess_ext(path_or_code, ignore_nonlto=True)
        if len(self._object_codes) == before:
            self.deferred.append(path_or_code)

    def ptx(self) -> str:
        """The optimized PTX of all LTO-IR inputs."""
        return str(self.get_linked_ptx().decode()).rstrip("\0")


def make_linker(max_registers: int | None, cc: Any) -> Any:
    """Numba's linker for the second step."""
    return _driver._Linker(max_registers=max_registers, cc=cc, lto=False)


@lru_cache(8)
def assemble_program(
    text: str, cc: tuple[Any, ...], max_registers: int | None, lines: bool = False
) -> register_budget.Assembled | None:
    """Assemble a whole program with ptxas, as nvJitLink does internally with the code that it optimized.

    nvJitLink treats PTX input as part of a program: an attention kernel then lost its vectorized shared loads and
    took 29 % longer. None if no matching ptxas is installed or the text needs linking. lines: with a line table.
    """
    program = matching_ptxas()
    if program is None:
        return None
    bound = (f"-maxrregcount={max_registers}",) if max_registers else ()
    return register_budget.assemble(text, program, (f"-arch={_arch(cc)}", *bound, *(("-lineinfo",) if lines else ())))


def program_cubin(text: str, cc: tuple[Any, ...], max_registers: int | None) -> bytes | None:
    """The cubin of assemble_program()."""
    assembled = assemble_program(text, cc, max_registers)
    return assembled.cubin if assembled else None


def code(text: str, lines: bool, cc: tuple[Any, ...], max_registers: int | None) -> bytes | None:
    """The same for placement="schedule". Raises MissingError without a matching ptxas: nvJitLink's code is its own."""
    if matching_ptxas() is None:
        raise MissingError(missing_ptxas())
    assembled = assemble_program(text, cc, max_registers, lines)
    return assembled.cubin if assembled else None


@lru_cache(8)
def usage(text: str, cc: tuple[Any, ...], max_registers: int | None, whole: bool = False) -> Usage | None:
    """Register usage of a text, assembled by ptxas if it is a whole program, else by the linker. None if that fails."""
    assembled = assemble_program(text, cc, max_registers) if whole else None
    if assembled is not None:
        return assembled.usage
    options = _driver.LinkerOptions(arch=_arch(cc), max_register_count=max_registers or None, verbose=True)
    linker = _driver.Linker(_driver.ObjectCode.from_ptx(text.encode()), options=options)
    try:
        linker.link("cubin")
        return read_log(f"{linker.get_info_log()}")
    except Exception as error:  # nvJitLink's, cuda.core's or the driver's: the final link raises it again
        if ".extern .func" not in text:
            warnings.warn(f"kscope: register usage cannot be measured: {error}", stacklevel=2)
        return None
    finally:
        linker.close()


def cubin(text: str, cc: tuple[Any, ...], max_registers: int | None, whole: bool = False) -> bytes:
    """A text assembled as a whole program, or linked alone. Raises what the linker raises."""
    assembled = program_cubin(text, cc, max_registers) if whole else None
    if assembled is not None:
        return assembled
    linker = make_linker(max_registers, cc)
    linker.add_ptx(text.encode())
    return bytes(linker.complete().code)


def matching_ptxas() -> str | None:
    """The newest ptxas of nvJitLink's major release: it reads nvJitLink's PTX, and the driver loads its cubins."""
    path = assembler.ptxas(_release())
    return path if path is not None and (assembler.release(path) or (0,))[0] == _release() else None


def ptxas_identity() -> str:
    """Identifies the matching ptxas in cache keys."""
    return assembler.identity(matching_ptxas())


def missing_ptxas() -> str:
    """The advice for `kscope doctor` if no matching ptxas is installed, else ""."""
    release = _release()
    if release is None or matching_ptxas() is not None:
        return ""
    wheel = "nvidia-cuda-nvcc" if release > 12 else f"nvidia-cuda-nvcc-cu{release}"
    return f"no ptxas of CUDA {release}: kernels with link-time optimization may be slower; install {wheel}"


@lru_cache
def _release() -> int | None:
    """nvJitLink's CUDA release; None if it is not installed, and there is no LTO."""
    try:
        return int(import_module("cuda.bindings.nvjitlink").version()[0])
    except (ImportError, RuntimeError):
        return None


def object_code(cubin: bytes) -> Any:
    """A cubin as the object that Numba loads."""
    return _driver.ObjectCode.from_cubin(cubin)


def _arch(cc: tuple[Any, ...]) -> str:
    return f"sm_{''.join(map(str, cc))}"


def objects_with_regions(linker: Any, own: int) -> Iterator[str]:
    """Names of linked objects, after the first `own`, that contain regions."""
    for code in linker._object_codes[own:]:
        data = code.code if isinstance(code.code, bytes) else str(code.code).encode()
        if code.code_type != "ltoir" and (PREFIX.encode() in data or CTL_SYMBOL.encode() in data):
            yield str(code.name)


def linked_uses_header(linked: Any) -> bool:
    """True if a linked file or source is CUDA C++ that uses kscope's header."""
    if isinstance(linked, str):
        path = Path(linked)
        return path.suffix == ".cu" and path.is_file() and _uses_header(path.read_text(errors="replace"))
    return getattr(linked, "kind", "") == "cu" and _uses_header(linked.data)


def compile_cuda_source(compile_cu: Callable[..., Any], source: Any, name: str, *args: Any, **options: Any) -> Any:
    """Around Numba's nvrtc.compile(): the header's macros become marks."""
    text = source.decode() if isinstance(source, bytes) else source
    if not _uses_header(text):
        return compile_cu(source, name, *args, **options)
    config, before = _nvrtc.config, getattr(_nvrtc.config, _PATHS)
    setattr(config, _PATHS, ":".join(filter(None, (before, cuda_include()))))
    try:
        return compile_cu(f'#define KSCOPE_MARKS 1\n#line 1 "{name}"\n{text}', name, *args, **options)
    finally:
        setattr(config, _PATHS, before)


def _uses_header(text: str | bytes) -> bool:
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    return source_uses_header(text, filter(None, (getattr(_nvrtc.config, _PATHS) or "").split(":")))
