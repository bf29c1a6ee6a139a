"""Check Python packages, GPUs and frontends on this machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Literal

from .. import native
from .._version import __version__
from ..capture import layout
from ..errors import KscopeError, MissingError
from ..instrument import registry
from ..instrument.recording import Recording
from ..lowering import assembler
from ..machine_code import tools
from ..util.text import install_command

State = Literal["ok", "missing", "broken"]


@dataclass(frozen=True)
class Finding:
    """One line of `kscope doctor`.

    Attributes:
        subject: the component, such as "gpu 0" or "triton".
        state: "ok"; "missing" (`text` names the command that installs it), or "broken": installed, but not working.
        text: one sentence.
    """

    subject: str
    state: State
    text: str


def examine() -> Iterator[Finding]:
    """Check every component.

    Yields:
        Findings, as they are made. Missing and broken components are findings, not exceptions.
    """
    yield Finding("kscope", "ok", f"{__version__}, layout {layout.MAJOR}.{layout.MINOR}")
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.machine()}, {sys.executable}")
    for package in ("numpy", "orjson"):
        yield Finding(package, "ok", metadata.version(package))
    yield _native()
    if ptxas := assembler.describe():
        yield Finding("ptxas", "ok", ptxas)
    else:
        yield Finding("ptxas", "missing", "CUDA C++, CuPy and Numba kernels need it: pip install nvidia-cuda-nvcc")
    yield _disassembler()
    yield from _device()
    for name, entry in registry.table().items():
        yield _frontend(name, entry)


def _native() -> Finding:
    if native.available():
        return Finding("native", "ok", f"compiled loops for decoding and draining: {native.path()}")
    if native.path() is not None:
        return Finding("native", "ok", "KSCOPE_NATIVE=0: numpy decodes and drains")
    text = "numpy decodes and drains, several times slower; reinstall kscope where there is a C compiler"
    return Finding("native", "missing", text)


def _disassembler() -> Finding:
    try:
        return Finding("nvdisasm", "ok", tools.find("nvdisasm"))
    except MissingError:
        text = "regions whose work a compiler moved elsewhere are not reported: pip install nvidia-cuda-nvdisasm"
        return Finding("nvdisasm", "missing", text)


def _device() -> Iterator[Finding]:
    try:
        for subject, text in registry.backend("cuda").describe():
            yield Finding(subject, "ok", text)
    except MissingError as error:
        yield Finding("gpu", "missing", f"{error}; kernels run in the simulator only")
        yield Finding("timer", "missing", "the globaltimer tick is measured on a GPU")
        yield Finding("region", "missing", "the cost of a region is measured on a GPU")
    except KscopeError as error:
        yield Finding("gpu", "broken", str(error))


def _frontend(name: str, entry: registry.Entry) -> Finding:
    """Check a DSL and its hook points by enabling and disabling its frontend."""
    if not registry.installed(entry):
        remedy = install_command(entry.extra) if entry.extra else "reinstall kscope"
        return Finding(name, "missing", f"{entry.dsl} is not installed: {remedy}")
    try:
        import_module(entry.dsl)
        frontend = registry.frontend(name)
        frontend.enable(Recording())
        frontend.disable()
        limitation = frontend.limitation()
    except (KscopeError, ImportError) as error:
        return Finding(name, "broken", str(error))
    version = " ".join(registry.version(entry)).strip()
    return Finding(name, "ok", f"{version and f'{version}, '}all hook points found{limitation and f'; {limitation}'}")
