"""Compiled loops over columns, where numpy needs many passes, and a Python type that records launches. Optional:
without them numpy and Python give the same results, except that numpy rounds times near damaged clocks more coarsely.
"""

from __future__ import annotations

import ctypes
import os
import sys
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    _Argument = npt.NDArray[np.generic] | memoryview | int | float

__all__ = ["available", "call", "call_briefly", "digest", "module", "one_thread", "path", "threads"]

_FOLDER = Path(__file__).parent
_most_threads, _LEFT = 12, 2
"""Threads of a call, and cores that it leaves to the program."""
_begin_of: Callable[[Any], ctypes.Array[ctypes.c_char]] = (ctypes.c_char * 0).from_buffer


def available() -> bool:
    """True if the compiled functions exist, and KSCOPE_NATIVE=0 does not turn them off."""
    return os.environ.get("KSCOPE_NATIVE") != "0" and _loaded() is not None


def path() -> Path | None:
    """The library built from the sources beside this file; None if there is none that this machine can load."""
    found = _loaded()
    return None if found is None else found[0]


def digest() -> str:
    """The CRC-32 of the C sources. A library built from other sources may expect other arguments, and is not used."""
    sources = sorted([*_FOLDER.glob("*.c"), *_FOLDER.glob("*.h")])
    return f"{zlib.crc32(b''.join(source.read_bytes() for source in sources)):08x}"


def module() -> ModuleType | None:
    """The library as a module of Python, with the type Places; None if it is not available(), or was built without
    Python's headers.
    """
    return _module() if available() else None


def call(name: str, *arguments: _Argument) -> int:
    """Call a compiled function without the interpreter's lock.

    Args:
        name: of the function, without its prefix ks_.
        arguments: arrays and memory are passed as pointers; read-only arrays that are not contiguous are copied;
            int as int64_t, float as double.

    Returns:
        A number that depends on the function, never negative.

    Raises:
        MemoryError: the function returned -1.
    """
    loaded = _loaded()
    assert loaded is not None
    return _call(loaded[1], name, arguments)


def call_briefly(name: str, *arguments: _Argument) -> int:
    """Same as call(), but with the interpreter's lock: for functions of microseconds, after which it would wait
    longer.
    """
    return _call(_with_lock(), name, arguments)


def _call(library: ctypes.CDLL, name: str, arguments: Iterable[_Argument]) -> int:
    function = getattr(library, f"ks_{name}")
    function.restype = ctypes.c_int64
    found: int = function(*[_passed(one) for one in arguments])
    if found == -1:
        raise MemoryError(f"no memory for {name}")
    return found


@cache
def threads() -> int:
    """Threads for a function that takes their number: two at least, if there are so many cores."""
    cores = len(os.sched_getaffinity(0))
    return min(_most_threads, max(cores - _LEFT, min(cores, 2)))


def one_thread() -> None:
    """Let functions work in the calling thread from now on."""
    global _most_threads
    _most_threads = 1
    threads.cache_clear()


def _passed(argument: _Argument) -> ctypes.Array[ctypes.c_char] | ctypes.c_void_p | ctypes.c_int64 | ctypes.c_double:
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    if isinstance(argument, float):
        return ctypes.c_double(argument)
    if isinstance(argument, memoryview):
        return ctypes.c_void_p(_address(argument))
    try:
        return _begin_of(argument)  # a third of the time that argument.ctypes takes
    except (TypeError, ValueError):
        return _read_only(argument)


def _read_only(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    """A pointer to an array that is not written, or to a copy if the array stores its only value once."""
    import numpy as np  # callers with an array have already imported numpy

    assert not array.flags.writeable or array.flags.c_contiguous
    return np.ascontiguousarray(array).ctypes.data_as(ctypes.c_void_p)


class _Buffer(ctypes.Structure):
    """Py_buffer: ctypes itself gives no address of memory that is read-only."""

    _fields_ = (
        ("address", ctypes.c_void_p), ("owner", ctypes.c_void_p), ("bytes", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("dimensions", ctypes.c_int),
        ("pointers", ctypes.c_void_p * 5),
    )  # fmt: skip


def _address(memory: memoryview) -> int:
    """The address of contiguous memory; 0, which is NULL, if it is empty. Raises BufferError for other memory."""
    found = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(memory), ctypes.byref(found), 0)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))
    return found.address if found.bytes else 0


@cache
def _loaded() -> tuple[Path, ctypes.CDLL] | None:
    expected = digest().encode()
    for path in sorted(_FOLDER.glob("_native*.so")):
        try:
            library = ctypes.CDLL(str(path))
            library.ks_digest.restype = ctypes.c_char_p
            if library.ks_digest() == expected:
                return path, library
        except (OSError, AttributeError):  # of another machine, or older than digests
            continue
    return None


@cache
def _with_lock() -> ctypes.PyDLL:
    return ctypes.PyDLL(str(path()))


@cache
def _module() -> ModuleType | None:
    from importlib.util import module_from_spec, spec_from_file_location  # few processes launch kernels

    spec = spec_from_file_location(f"{__name__}._native", path())
    if spec is None or "t" in sys.abiflags:  # free-threaded Python has other object layouts
        return None
    try:
        return module_from_spec(spec)
    except ImportError:  # no PyInit__native
        return None
