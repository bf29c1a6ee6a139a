"""The registry of frontends and backends, which are loaded by name when they are needed. Third parties add a DSL with
an entry point in the group ``kscope.frontends``: name = "package:Frontend".
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import MissingError, UsageError
from ..util.text import install_command

if TYPE_CHECKING:
    from .backend import Backend, Simulator
    from .frontend import Demo, Frontend

GROUP = "kscope.frontends"
COMPILER = "triton"
"""The frontend whose DSL passes a context (`_semantic`) to builtins. The others detect when they trace."""


@dataclass(frozen=True)
class Entry:
    """Location of a frontend, and the import that makes it active.

    Attributes:
        dsl: module of the DSL; the frontend is active once it is in ``sys.modules``.
        target: "package:attribute" of the Frontend class.
        extra: the pip extra that installs the DSL; empty if there is none.
        distribution: has the DSL's version, if its module has none; for a third party's, the one that announces the
            frontend.
    """

    dsl: str
    target: str
    extra: str
    distribution: str = ""


TABLE: dict[str, Entry] = {
    "triton": Entry("triton", "kscope_triton:TritonFrontend", "triton"),
    "cupy": Entry("cupy", "kscope_cuda.cupy:CupyFrontend", "cupy"),
    "cuda": Entry("kscope_cuda.frontend", "kscope_cuda:CudaFrontend", "cuda"),
    "cuda.core": Entry("cuda.core", "kscope_cuda.core:CoreFrontend", "core"),
    "cute": Entry("cutlass.cute", "kscope_cute:CuteFrontend", "cute", "nvidia-cutlass-dsl"),
    "numba": Entry("numba.cuda", "kscope_numba:NumbaFrontend", "numba", "numba-cuda"),
    "sim": Entry("kscope_sim", "kscope_sim:SimFrontend", ""),
}
BACKENDS: dict[str, str] = {"cuda": "kscope_runtime:CudaBackend", "sim": "kscope_sim:SimBackend"}

_frontends: dict[str, Frontend] = {}
_backends: dict[str, Backend] = {}


def table() -> dict[str, Entry]:
    """Built-in frontends and those of installed distributions (entry point group ``kscope.frontends``).

    A third party's DSL counts as imported once its frontend's package is.
    """
    return {**_announced(tuple(sys.path)), **TABLE}


@cache
def _announced(path: tuple[str, ...]) -> dict[str, Entry]:
    """Frontends of the distributions on `path`. Cached: a session reads it three times, 8 ms each."""
    from importlib import metadata  # slow to import

    points = metadata.entry_points(group=GROUP)
    return {
        point.name: Entry(point.value.partition(":")[0], point.value, "", point.dist.name if point.dist else "")
        for point in points
    }


def installed(entry: Entry) -> bool:
    """True if the DSL is installed, without importing it."""
    try:
        return find_spec(entry.dsl) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


@cache
def version(entry: Entry) -> tuple[str, str]:
    """Name and version of an imported DSL: ("triton", "3.9.0"), ("numba-cuda", "0.30.4"); ("", "") without."""
    from importlib import metadata  # slow to import

    found = getattr(sys.modules.get(entry.dsl), "__version__", None)
    if isinstance(found, str):
        return entry.dsl, found
    try:
        return (entry.distribution, metadata.version(entry.distribution)) if entry.distribution else ("", "")
    except metadata.PackageNotFoundError:
        return "", ""


def _made(target: str, failed: str, remedy: str) -> Any:
    """An instance of the class that `target`, package:name, refers to. Raises MissingError."""
    package, _, attribute = target.partition(":")
    try:
        return getattr(import_module(package), attribute)()
    except MissingError:  # its message already names the missing package
        raise
    except ImportError as error:
        raise MissingError(f"{failed} ({error}): {remedy}") from error


def frontend(name: str) -> Frontend:
    """The frontend `name`, loaded on first use.

    Raises:
        UsageError: no frontend has that name.
        MissingError: its DSL, or something that the DSL needs, is not installed.
    """
    if name not in _frontends:
        known = table()
        if name not in known:
            raise UsageError(f"frontend {name!r}: known ones are {', '.join(sorted(known))}")
        entry = known[name]
        remedy = install_command(entry.extra) if entry.extra else f"check {entry.target}"
        made = _made(entry.target, f"the {name} frontend cannot be loaded", remedy)
        _frontends.setdefault(name, made)  # another thread may have been faster
    return _frontends[name]


def backend(name: str) -> Backend:
    """The backend `name`, loaded on first use. Raises MissingError if its driver is not installed."""
    if name not in _backends:
        made = _made(BACKENDS[name], "recording on a GPU needs cuda-bindings", install_command("cuda"))
        _backends.setdefault(name, made)  # another thread may have been faster
    return _backends[name]


def simulator() -> Simulator:
    """The backend that records launches of other DSLs' interpreters."""
    return cast("Simulator", backend("sim"))


def demo(name: str) -> Demo:
    """The demo of a built-in frontend. Raises ImportError if its DSL cannot be imported."""
    return cast("Demo", import_module(f"{TABLE[name].target.partition(':')[0]}.demo"))


def folder(name: str) -> Path | None:
    """The folder of a built-in frontend's package, which is not imported; None without it."""
    spec = find_spec(TABLE[name].target.partition(":")[0])
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def imported() -> Iterator[str]:
    """Names of the frontends whose DSL this process has imported."""
    return (name for name, entry in table().items() if entry.dsl in sys.modules)


def loaded() -> tuple[Frontend, ...]:
    """The frontends in use. A copy: a simulated kernel's threads may load others meanwhile."""
    return tuple(_frontends.values())
