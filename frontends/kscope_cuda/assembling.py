"""PTX to a cubin without a GPU: by ptxas, or by NVIDIA's linker library, whichever is installed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from kscope.lowering import assembler, register_budget
from kscope.lowering.assembler import ptxas

_VALUED, _ALONE = ("maxrregcount", "Xptxas"), ("lineinfo",)
TOLD_FROM = 48
"""Registers from which on the linker's limit is felt: it keeps some of the 64 for calls."""
_FEW = (
    "kscope: no ptxas here takes this PTX, so nvJitLink assembles it, with 64 registers for a thread at most: a kernel "
    "that needs more is slower than without kscope; install the CUDA toolkit, or nvidia-cuda-nvcc, of NVRTC's release"
)
_SPELLED = {"generate-line-info": "lineinfo", "ptxas-options": "Xptxas"}


@lru_cache(16)
def assemble(text: str, arch: str, flags: tuple[str, ...] = ()) -> register_budget.Assembled | None:
    """The text for ``sm_90`` or another such word; None where nothing here assembles it."""
    return _by_ptxas(text, arch, flags) or _by_nvjitlink(text, arch, flags)


def _by_ptxas(text: str, arch: str, flags: tuple[str, ...]) -> register_budget.Assembled | None:
    program = ptxas(_newest_release(text))
    words = (f"-arch={arch}", *(word for flag in flags for word in _words(flag)))
    if program is None:
        return None
    return register_budget.assemble(text, program, words)


def _newest_release(text: str) -> int | None:
    """The newest CUDA release whose cubin of this text the driver loads: the later one of the text's compiler and the
    driver. None if the text does not say."""
    written = assembler.writer(text)
    return None if written is None else max(written, driver() or 0)


def _words(flag: str) -> list[str]:
    """What ptxas is told for a flag of nvJitLink's: -Xptxas=-O1,-dlcm=cg is for it alone."""
    return flag.removeprefix("-Xptxas=").split(",") if flag.startswith("-Xptxas=") else [flag]


def _by_nvjitlink(text: str, arch: str, flags: tuple[str, ...]) -> register_budget.Assembled | None:
    linker = nvjitlink()
    newest = _newest_release(text)
    if linker is None or (newest is not None and linker.version()[0] > newest):
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
    usage = register_budget.usage(log.decode(errors="replace"))
    if usage.registers > TOLD_FROM:
        warnings.warn(_FEW, stacklevel=2)
    return register_budget.Assembled(bytes(cubin), usage)


def identity() -> str:
    """What cubins depend on that neither sources nor options say, for the keys of caches: which ptxas it is, and the
    driver's release, which says whether that one may assemble."""
    return f"{assembler.identity(ptxas())} {driver()}"


def lacking() -> str:
    """What frontends say that assemble PTX, where ptxas is not here."""
    if ptxas():
        return ""
    if nvjitlink() is None:
        return "no ptxas: the driver assembles kernels, and nobody sees whether they spill; install nvidia-cuda-nvcc"
    return "no ptxas: kernels that need more than 64 registers are slower; install nvidia-cuda-nvcc"


@lru_cache
def nvjitlink() -> ModuleType | Any | None:
    """cuda.bindings.nvjitlink with its library loaded; None where either is missing."""
    try:
        found = import_module("cuda.bindings.nvjitlink")
        found.version()  # loads the library
    except (ImportError, RuntimeError):  # bindings before 12.3; no library, or one that lacks a function
        return None
    return found


@lru_cache
def driver() -> int | None:
    """The CUDA release that the driver here is of, 13 for 13.0; None without a driver."""
    try:
        error, version = import_module("cuda.bindings.driver").cuDriverGetVersion()
    except (ImportError, RuntimeError):  # no bindings; no libcuda
        return None
    return None if int(error) else int(version) // 1000


def flags(options: Iterable[str]) -> tuple[str, ...]:
    """Those of NVRTC's options that matter to the assembler, as nvJitLink spells them: a value may be an option of its
    own to NVRTC and nvcc (``-maxrregcount 32``)."""
    passed, words = [], iter(options)
    for option in words:
        name, equals, value = option.lstrip("-").partition("=")
        name = _SPELLED.get(name, name)
        if not option.startswith("-"):  # a value of another option
            continue
        if name in _VALUED:
            passed.append(f"-{name}={value if equals else next(words, '')}")
        elif name in _ALONE:
            passed.append(f"-{name}")
    return tuple(passed)
