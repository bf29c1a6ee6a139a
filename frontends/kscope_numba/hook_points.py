"""Access to numba-cuda's modules, and the errors for a version that lacks a name kscope hooks.

numba-cuda ships no types: what comes out of it is Any.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from kscope.errors import UnsupportedError

cuda: Any = import_module("numba.cuda")
SIMULATED: bool = bool(cuda.config.ENABLE_CUDASIM) if hasattr(cuda, "config") else False
"""NUMBA_ENABLE_CUDASIM=1: kernels run in Python. Numba reads the variable at import."""
OLDEST = (0, 24)


def version() -> str:
    """The installed numba-cuda version.

    Raises:
        UnsupportedError: numba-cuda is missing (numba.cuda is Numba's built-in target) or too old.
    """
    try:
        installed = metadata.version("numba-cuda")
    except metadata.PackageNotFoundError:
        raise UnsupportedError(
            "numba.cuda is Numba's built-in CUDA target; kscope needs the package numba-cuda: "
            "pip install 'numba-cuda[cu13]'"
        ) from None
    if tuple(int(part) for part in installed.split(".")[:2]) < OLDEST:
        raise UnsupportedError(
            f"numba-cuda {installed} is installed; kscope needs 0.24 or later: pip install -U numba-cuda"
        )
    return installed


def module(name: str) -> Any:
    """A module of numba.cuda. Raises UnsupportedError if it is missing."""
    try:
        return import_module(f"numba.cuda.{name}")
    except ModuleNotFoundError as error:
        raise missing(f"numba.cuda.{name}") from error


def check(owner: Any, *names: str) -> None:
    """Raises UnsupportedError for the first of the names that this numba-cuda lacks."""
    for name in names:
        if not hasattr(owner, name):
            raise missing(f"{owner.__module__ + '.' if isinstance(owner, type) else ''}{owner.__name__}.{name}")


def missing(point: str) -> UnsupportedError:
    """The error that names a missing hook point."""
    return UnsupportedError(
        f"numba-cuda {version()} has no {point}, which kscope needs; versions 0.24.0 to 0.30.4 have it"
    )
