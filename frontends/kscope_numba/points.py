"""The door to numba-cuda: its modules, the names in them that kscope uses, and putting one's own in their place.

numba-cuda ships no types: what comes out of it is Any, and the adapter narrows it. What lives here: importing,
checking, replacing and putting back. What does not: what is put there (the modules named below).
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from kscope.errors import UnsupportedError

cuda: Any = import_module("numba.cuda")
SIMULATED: bool = bool(cuda.config.ENABLE_CUDASIM) if hasattr(cuda, "config") else False
"""NUMBA_ENABLE_CUDASIM=1: kernels run in Python; Numba asks when it is imported."""
OLDEST = (0, 24)
_MISSING = object()


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


class Patches:
    """Attributes that are replaced, and put back as they were: also where they were inherited."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._before)

    def put(self, owner: Any, name: str, new: Any) -> Any:
        """Sets the attribute; returns what stood there, as a lookup would give it."""
        own = vars(owner).get(name, _MISSING)
        found = getattr(owner, name)
        self._before.append((owner, name, own))
        setattr(owner, name, new)
        return found

    def restore(self) -> None:
        """Puts everything back, the latest first."""
        while self._before:
            owner, name, own = self._before.pop()
            if own is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
