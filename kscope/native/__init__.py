"""Compiled loops over columns, where numpy needs many passes. Optional: without them numpy gives the same results."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["available", "call", "path"]

_FOLDER = Path(__file__).parent


def available() -> bool:
    """True if the compiled functions are there, and KSCOPE_NATIVE=0 does not turn them off."""
    return os.environ.get("KSCOPE_NATIVE") != "0" and _library() is not None


def path() -> str | None:
    """The library that was built beside this file; None if there is none that this machine can load."""
    library = _library()
    return None if library is None else library._name


def call(name: str, *arguments: npt.NDArray[np.generic] | int | float) -> int:
    """Call a compiled function without the interpreter's lock.

    Args:
        name: of the function, without its prefix ks_.
        arguments: arrays are passed as pointers; int as int64_t, float as double.

    Returns:
        A number that depends on the function, never negative.

    Raises:
        MemoryError: the function returned -1.
    """
    library = _library()
    assert library is not None
    function = getattr(library, f"ks_{name}")
    function.restype = ctypes.c_int64
    found: int = function(*map(_passed, arguments))
    if found == -1:
        raise MemoryError(f"no memory for {name}")
    return found


def _passed(argument: npt.NDArray[np.generic] | int | float) -> ctypes.c_void_p | ctypes.c_int64 | ctypes.c_double:
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_int64(argument) if isinstance(argument, int) else ctypes.c_double(argument)


@cache
def _library() -> ctypes.CDLL | None:
    for path in sorted(_FOLDER.glob("_native*.so"), key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # of another machine
            continue
        return library
    return None
