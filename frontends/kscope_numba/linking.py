"""Linking as Numba links, in two steps where there is LTO: to PTX, which is lowered, and from it to a cubin.

What lives here: what is linked in which step, what an assembler makes and says of a text, and CUDA C++ sources that
use kscope's header. What does not: lowering, and when this is done (pipeline.py).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from kscope import cuda_include
from kscope.capture.layout import CTL_SYMBOL
from kscope.lowering import assembler, register_budget
from kscope.marks.grammar import PREFIX

from .hook_points import check, module

_driver: Any = module("cudadrv.driver")
_nvrtc: Any = module("cudadrv.nvrtc")
_MACRO, _HEADER = "KSCOPE_", "kscope.cuh"
_PATHS = "CUDA_NVRTC_EXTRA_SEARCH_PATHS"
_INCLUDED = re.compile(r"""^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]""", re.MULTILINE)


def check_points() -> None:
    """Raises UnsupportedError naming what this numba-cuda lacks."""
    check(_driver, "_Linker", "Linker", "LinkerOptions", "ObjectCode")
    check(_driver._Linker, "add_ptx", "add_file_guess_ext", "get_linked_ptx", "complete", "info_log")
    check(_nvrtc.config, _PATHS)


class Optimized(_driver._Linker):
    """Numba's linker, for the first step: what cannot be optimized while linking is put aside in `others`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.others: list[Any] = []

    def add_file_guess_ext(self, path_or_code: Any, ignore_nonlto: bool = False) -> None:
        before = len(self._object_codes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Not adding .* as it is not optimizable")
            super().add_file_guess_ext(path_or_code, ignore_nonlto=True)
        if len(self._object_codes) == before:
            self.others.append(path_or_code)

    def text(self) -> str:
        """The PTX of everything that was added."""
        return str(self.get_linked_ptx().decode()).rstrip("\0")


def plain(max_registers: int | None, cc: Any) -> Any:
    """Numba's linker, for the second step."""
    return _driver._Linker(max_registers=max_registers, cc=cc, lto=False)


@lru_cache(8)
def assembled(text: str, cc: tuple[Any, ...], max_registers: int | None) -> register_budget.Assembled | None:
    """A whole program, by ptxas, as the linker assembles what it has optimized itself. PTX from elsewhere it takes for
    a part of a program: an attention then loaded each of its shared words alone, and took 29 % longer. None where no
    ptxas is here that takes the text, and for functions that are linked later."""
    program = ptxas()
    if program is None:
        return None
    bound = (f"-maxrregcount={max_registers}",) if max_registers else ()
    return register_budget.assemble(text, program, (f"-arch={_arch(cc)}", *bound))


@lru_cache(8)
def usage(
    text: str, cc: tuple[Any, ...], max_registers: int | None, whole: bool = False
) -> register_budget.Usage | None:
    """What the assembler says of a text: the linker's, or that of whole programs. None where it refuses it, as for
    functions that are linked later."""
    made = assembled(text, cc, max_registers) if whole else None
    if made is not None:
        return made.usage
    options = _driver.LinkerOptions(arch=_arch(cc), max_register_count=max_registers or None, verbose=True)
    linker = _driver.Linker(_driver.ObjectCode.from_ptx(text.encode()), options=options)
    try:
        linker.link("cubin")
        return register_budget.usage(f"{linker.get_info_log()}")
    except Exception as error:  # nvJitLink's, cuda.core's or the driver's: whoever links it in earnest gets it again
        warnings.warn(f"kscope: registers are not looked at: {error}", stacklevel=2) if not _extern(text) else None
        return None
    finally:
        linker.close()


def cubin(text: str, cc: tuple[Any, ...], max_registers: int | None, whole: bool = False) -> bytes:
    """A text alone, linked or as a whole program. Raises what the linker raises."""
    made = assembled(text, cc, max_registers) if whole else None
    if made is not None:
        return made.cubin
    linker = plain(max_registers, cc)
    linker.add_ptx(text.encode())
    return bytes(linker.complete().code)


def ptxas() -> str | None:
    """The newest ptxas of the linker's major release: it reads the linker's PTX, and the driver loads its cubins."""
    found = assembler.ptxas(_release())
    return found if found is not None and (assembler.release(found) or (0,))[0] == _release() else None


def identity() -> str:
    """Which one it is, for the keys of caches."""
    return assembler.identity(ptxas())


def lacking() -> str:
    """What is to be said where there is none."""
    release = _release()
    if release is None or ptxas() is not None:
        return ""
    wheel = "nvidia-cuda-nvcc" if release > 12 else f"nvidia-cuda-nvcc-cu{release}"
    return f"no ptxas of CUDA {release}: kernels with link-time optimization may be slower; install {wheel}"


@lru_cache
def _release() -> int | None:
    """The CUDA release that nvJitLink is of; None where it is not here, and nothing is optimized while it is linked."""
    try:
        return int(import_module("cuda.bindings.nvjitlink").version()[0])
    except (ImportError, RuntimeError):
        return None


def loadable(cubin: bytes) -> Any:
    """A cubin as Numba loads it."""
    return _driver.ObjectCode.from_cubin(cubin)


def _arch(cc: tuple[Any, ...]) -> str:
    return f"sm_{''.join(map(str, cc))}"


def _extern(text: str) -> bool:
    return ".extern .func" in text


def with_regions(linker: Any, own: int) -> Iterator[str]:
    """Names of linked objects, behind the first `own`, that have regions of their own."""
    for code in linker._object_codes[own:]:
        data = code.code if isinstance(code.code, bytes) else str(code.code).encode()
        if code.code_type != "ltoir" and (PREFIX.encode() in data or CTL_SYMBOL.encode() in data):
            yield str(code.name)


def has_macros(linked: Any) -> bool:
    """Whether something that is linked is CUDA C++ that uses kscope's header."""
    if isinstance(linked, str):
        path = Path(linked)
        return path.suffix == ".cu" and path.is_file() and _uses(path.read_text(errors="replace"))
    return getattr(linked, "kind", "") == "cu" and _uses(linked.data)


def marked(compile_cu: Callable[..., Any], source: Any, name: str, *args: Any, **options: Any) -> Any:
    """Numba's nvrtc.compile(), with the header's macros as marks."""
    text = source.decode() if isinstance(source, bytes) else source
    if not _uses(text):
        return compile_cu(source, name, *args, **options)
    config, before = _nvrtc.config, getattr(_nvrtc.config, _PATHS)
    setattr(config, _PATHS, ":".join(filter(None, (before, cuda_include()))))
    try:
        return compile_cu(f'#define KSCOPE_MARKS 1\n#line 1 "{name}"\n{text}', name, *args, **options)
    finally:
        setattr(config, _PATHS, before)


def _uses(text: str | bytes, read: set[Path] | None = None) -> bool:
    """Whether a source, or a header of the user's that it includes, uses kscope's. read: headers looked at so far."""
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    if _MACRO in text or _HEADER in text:
        return True
    read = set() if read is None else read
    folders = [".", *(getattr(_nvrtc.config, _PATHS) or "").split(":")]
    for name in _INCLUDED.findall(text):
        header = next((path for path in (Path(folder, name) for folder in folders if folder) if path.is_file()), None)
        if header is not None and header not in read:
            read.add(header)
            if _uses(header.read_text(errors="replace"), read):
                return True
    return False
