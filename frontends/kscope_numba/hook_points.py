"""The door to numba-cuda: its modules, and the names in them that kscope uses.

numba-cuda ships no types: what comes out of it is Any, and the adapter narrows it. What lives here: importing and
checking. What does not: what is hooked there (functions.py, pipeline.py, loading.py, located.py, simulated.py).
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from kscope.errors import UnsupportedError

cuda: Any = import_module("numba.cuda")
SIMULATED: bool = bool(cuda.config.ENABLE_CUDASIM) if hasattr(cuda, "config") else False
"""NUMBA_ENABLE_CUDASIM=1: kernels run in Python; Numba asks when it is imported."""
OLDEST = (0, 24)


def version() -> str:
    """The installed numba-cuda. Raises UnsupportedError where Numba's own target is in its place, or it is too old."""
    try:
        found = metadata.version("numba-cuda")
    except metadata.PackageNotFoundError:
        raise UnsupportedError(
            "numba.cuda is the target that was part of Numba; kscope needs the package numba-cuda: "
            "pip install 'numba-cuda[cu13]'"
        ) from None
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        raise UnsupportedError(
            f"numba-cuda {found} is installed; kscope needs 0.24 or later: pip install -U numba-cuda"
        )
    return found


def module(name: str) -> Any:
    """A module of numba.cuda. Raises UnsupportedError where it is not there."""
    try:
        return import_module(f"numba.cuda.{name}")
    except ModuleNotFoundError as error:
        raise lacks(f"numba.cuda.{name}") from error


def check(owner: Any, *names: str) -> None:
    """Raises UnsupportedError for the first of the names that this numba-cuda lacks."""
    for name in names:
        if not hasattr(owner, name):
            raise lacks(f"{owner.__module__ + '.' if isinstance(owner, type) else ''}{owner.__name__}.{name}")


def lacks(point: str) -> UnsupportedError:
    """The error that names a hook point that is not there."""
    return UnsupportedError(
        f"numba-cuda {version()} has no {point}, which kscope needs to prepare kernels; "
        "versions 0.24.0 to 0.30.4 are known to have it"
    )
