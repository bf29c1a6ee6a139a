"""PTX to a cubin without nvcc and without a GPU: NVIDIA's linker library, where it is installed.

What lives here: nvJitLink through cuda-bindings, and what its log says of registers. What does not: lowering
(kscope/lowering), and what is done where the library is missing (nvrtc.py: the driver assembles the PTX itself).

nvJitLink comes with the CUDA toolkit, and with the wheels that CuPy's extra [ctk] and PyTorch install. It must be
as new as the compiler that wrote the PTX, else it refuses; then the driver is asked as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from kscope.lowering import fit

_PASSED = ("maxrregcount", "lineinfo", "Xptxas")
_SPELLED = {"generate-line-info": "lineinfo", "ptxas-options": "Xptxas"}


@dataclass(frozen=True)
class Assembled:
    """A cubin, and what it needs."""

    cubin: bytes
    usage: fit.Usage


@lru_cache(16)
def assemble(text: str, arch: str, flags: tuple[str, ...] = ()) -> Assembled | None:
    """The text for ``sm_90`` or another such word; None where the library is missing, or refuses the text."""
    linker = nvjitlink()
    if linker is None:
        return None
    options = [f"-arch={arch}", "-verbose", *flags]
    data = text.encode()
    try:
        handle = linker.create(len(options), options)
    except linker.nvJitLinkError:
        return None
    try:
        linker.add_data(handle, linker.InputType.PTX, data, len(data), "kscope")
        linker.complete(handle)
        cubin = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, cubin)
        log = bytearray(linker.get_info_log_size(handle))
        linker.get_info_log(handle, log)
    except linker.nvJitLinkError:
        return None
    finally:
        linker.destroy(handle)
    return Assembled(bytes(cubin), fit.usage(log.decode(errors="replace")))


@lru_cache
def nvjitlink() -> ModuleType | Any | None:
    """cuda.bindings.nvjitlink with its library loaded; None where either is missing."""
    try:
        found = import_module("cuda.bindings.nvjitlink")
        found.version()  # loads the library
    except (ImportError, RuntimeError):  # bindings before 12.3; no library, or one that lacks a function
        return None
    return found


def flags(options: Iterable[str]) -> tuple[str, ...]:
    """Those of NVRTC's options that matter to the assembler, as nvJitLink spells them."""
    passed = []
    for option in options:
        name, equals, value = option.lstrip("-").partition("=")
        name = _SPELLED.get(name, name)
        if name in _PASSED:
            passed.append(f"-{name}{equals}{value}")
    return tuple(passed)
