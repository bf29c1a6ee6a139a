"""Assembles PTX to a cubin with ptxas or nvJitLink; needs no GPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import Any

from kscope.errors import MissingError
from kscope.lowering import assembler, register_budget
from kscope.lowering.assembler import ptxas
from kscope.lowering.register_usage import read_log

_VALUED, _FLAGS = ("maxrregcount", "Xptxas"), ("lineinfo",)
REGISTER_WARNING = 48
"""Warn from this many registers: nvJitLink limits a thread to 64, and reserves some of them for calls."""
_FEW_REGISTERS = (
    "kscope: no installed ptxas accepts this PTX, so nvJitLink assembles it, with at most 64 registers per thread: a "
    "kernel that needs more is slower than without kscope; install the CUDA toolkit, or nvidia-cuda-nvcc, of NVRTC's "
    "release"
)
_ALIASES = {"generate-line-info": "lineinfo", "ptxas-options": "Xptxas"}


@lru_cache(16)
def assemble(text: str, arch: str, flags: tuple[str, ...] = ()) -> register_budget.Assembled | None:
    """Assemble for an architecture such as ``sm_90``; None if no installed assembler can."""
    return _by_ptxas(text, arch, flags) or _by_nvjitlink(text, arch, flags)


def by_ptxas(text: str, arch: str, flags: tuple[str, ...] = ()) -> register_budget.Assembled | None:
    """The same by ptxas alone; None if it refuses the text. Raises MissingError without one that may assemble it."""
    if ptxas(release := _newest_release(text)) is None:
        suiting = "" if release is None else f" of CUDA {release} or older"
        raise MissingError(f"there is no ptxas{suiting}; install nvidia-cuda-nvcc")
    return _by_ptxas(text, arch, flags)


def _by_ptxas(text: str, arch: str, flags: tuple[str, ...]) -> register_budget.Assembled | None:
    program = ptxas(_newest_release(text))
    if program is None:
        return None
    return register_budget.assemble(text, program, (f"-arch={arch}", *chain.from_iterable(map(_ptxas_flags, flags))))


def _newest_release(text: str) -> int | None:
    """The newest CUDA release whose cubin the driver loads: that of the text's compiler or of the driver, whichever is
    later. None if the text does not name its compiler."""
    written = assembler.writer(text)
    return None if written is None else max(written, driver() or 0)


def _ptxas_flags(flag: str) -> list[str]:
    """ptxas options for an nvJitLink option, such as -Xptxas=-O1,-dlcm=cg."""
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
    usage = read_log(log.decode(errors="replace"))
    if usage.registers > REGISTER_WARNING:
        warnings.warn(_FEW_REGISTERS, stacklevel=2)
    return register_budget.Assembled(bytes(cubin), usage)


def identity() -> str:
    """Part of cache keys: the ptxas, and the driver's release, which decides whether that ptxas may assemble."""
    return f"{assembler.identity(ptxas())} {driver()}"


def missing() -> str:
    """A message about a missing ptxas and its remedy; empty with ptxas."""
    if ptxas():
        return ""
    if nvjitlink() is None:
        return "no ptxas: the driver assembles kernels, and kscope cannot detect spills; install nvidia-cuda-nvcc"
    return "no ptxas: kernels that need more than 64 registers are slower; install nvidia-cuda-nvcc"


@lru_cache
def nvjitlink() -> ModuleType | Any | None:
    """cuda.bindings.nvjitlink with its library loaded; None if either is missing."""
    try:
        found = import_module("cuda.bindings.nvjitlink")
        found.version()  # loads the library
    except (ImportError, RuntimeError):  # bindings before 12.3; library missing or too old
        return None
    return found


@lru_cache
def driver() -> int | None:
    """The driver's CUDA release, 13 for 13.0; None without a driver."""
    try:
        error, version = import_module("cuda.bindings.driver").cuDriverGetVersion()
    except (ImportError, RuntimeError):  # no bindings; no libcuda
        return None
    return None if int(error) else int(version) // 1000


def flags(options: Iterable[str]) -> tuple[str, ...]:
    """The assembler's options among NVRTC's or nvcc's, whose values may be separate options, in nvJitLink's syntax."""
    passed, rest = [], iter(options)
    for option in rest:
        name, equals, value = option.lstrip("-").partition("=")
        name = _ALIASES.get(name, name)
        if not option.startswith("-"):  # another option's value
            continue
        if name in _VALUED:
            passed.append(f"-{name}={value if equals else next(rest, '')}")
        elif name in _FLAGS:
            passed.append(f"-{name}")
    return tuple(passed)
