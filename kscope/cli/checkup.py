"""What this machine has of what kscope needs: looked at and measured now.

What lives here: the questions, and their answers as values. What does not: printing them (cli/doctor.py),
driver calls (the runtime's probe), hook points (frontends, which name what they miss).
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Literal

from .._version import __version__
from ..capture import layout
from ..errors import KscopeError, MissingError
from ..instrument import registry
from ..instrument.recording import Recording
from ..util.text import installs

State = Literal["ok", "missing", "broken"]


@dataclass(frozen=True)
class Finding:
    """One answer. ok: works. missing: is not there, and `text` says what to do. broken: is there, and does not work."""

    what: str
    state: State
    text: str


def examine() -> Iterator[Finding]:
    """Every finding, as it is made; never raises for what a machine lacks."""
    yield Finding("kscope", "ok", f"{__version__}, layout {layout.MAJOR}.{layout.MINOR}")
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.machine()}, {sys.executable}")
    for package in ("numpy", "orjson"):
        yield Finding(package, "ok", metadata.version(package))
    yield from _device()
    for name, entry in registry.table().items():
        yield _frontend(name, entry)


def _device() -> Iterator[Finding]:
    try:
        backend = registry.backend("cuda")
        package = registry.BACKENDS["cuda"].partition(":")[0]
        for what, text in import_module(f"{package}.probe").probe(backend):
            yield Finding(what, "ok", text)
    except MissingError as error:
        yield Finding("gpu", "missing", f"{error}; kernels run in the simulator only")
        yield Finding("timer", "missing", "the tick of globaltimer is measured on a GPU")
        yield Finding("region", "missing", "the cost of a region is measured on a GPU")
    except KscopeError as error:
        yield Finding("gpu", "broken", str(error))


def _frontend(name: str, entry: registry.Entry) -> Finding:
    """Whether the DSL is there and has every place that the frontend hooks into: by hooking in, and out again."""
    if not registry.installed(entry):
        cure = installs(entry.extra) if entry.extra else "install kscope again"
        return Finding(name, "missing", f"{entry.dsl} is not installed: {cure}")
    try:
        import_module(entry.dsl)
        found = registry.frontend(name)
        found.enable(Recording())
        found.disable()
        lacking = found.lacks()
    except (KscopeError, ImportError) as error:  # a DSL that is installed and cannot be loaded is a finding too
        return Finding(name, "broken", str(error))
    return Finding(name, "ok", f"{_version(entry)}all hook points found{lacking and f'; {lacking}'}")


def _version(entry: registry.Entry) -> str:
    """`triton 3.9.0, `, or nothing for a DSL that is part of kscope or has no version."""
    try:
        version = metadata.version(entry.dsl)
    except metadata.PackageNotFoundError:  # cupy comes as cupy-cuda13x
        version = getattr(sys.modules.get(entry.dsl), "__version__", "")
    return f"{entry.dsl} {version}, " if version else ""
