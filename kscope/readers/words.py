"""The words of a buffer: an array, a tensor, bytes, or a file."""

from __future__ import annotations

import math
import os
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
import numpy.lib.format as npy
import numpy.typing as npt

from ..errors import FormatError, UsageError
from ..util import bounded_reading
from ..util.arrays import Bytes
from .columns import Notes

Names = Sequence[str] | Mapping[int, str] | None
MOST_DEVICE = (1 << 20) - 1
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
"""Readers of a .npy file's header, by version."""
_DAMAGED = (ArithmeticError, EOFError, LookupError, RecursionError, SyntaxError, TokenError, TypeError, ValueError)
"""Errors that numpy raises for a file that is not an array."""


def words(call: str, buffer: Any, device: object, notes: Notes) -> npt.NDArray[np.uint64]:
    """The words of a buffer: 64-bit (n,). Notes trailing bytes that are not a whole word.

    Args:
        call: the reader's name.
        buffer: numpy, torch or CuPy array, bytes, or the path of a .npy file or a file of plain bytes.
        device: the GPU's number.
        notes: takes the problems.

    Raises:
        UsageError: a buffer of another type, or no number of a GPU.
        FormatError: an invalid .npy file.
        OSError: the file cannot be read.
    """
    numbered(call, device)
    data = _bytes(buffer)
    whole = len(data) // 8 * 8
    notes.count("cut", len(data) - whole, "byte", "the buffer ends in the middle of a word")
    return np.frombuffer(data[:whole].tobytes() if not data.flags.aligned else data[:whole], "<u8")


def _bytes(buffer: Any) -> Bytes:
    if isinstance(buffer, (str, os.PathLike)):
        return _file(Path(buffer))
    if isinstance(buffer, (bytes, bytearray, memoryview)):
        return np.frombuffer(buffer, np.uint8)
    for leave in ("detach", "cpu", "get"):  # torch, then CuPy
        if not isinstance(buffer, np.ndarray) and callable(getattr(buffer, leave, None)):
            buffer = getattr(buffer, leave)()
    try:
        array = np.asarray(buffer)
    except (TypeError, ValueError) as error:
        raise UsageError(f"a buffer of {type(buffer).__name__} cannot be read ({error}): expected an array") from None
    if array.dtype.kind not in "iufV" or array.dtype.hasobject:
        raise UsageError(f"a buffer of {array.dtype}: expected integers, such as the int64 that the kernel wrote to")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _file(path: Path) -> Bytes:
    size, most = path.stat().st_size, bounded_reading.memory_budget()
    if size > most:  # it may be sparse: its size costs nothing
        raise FormatError(f"{path}: a buffer of {size:,} bytes exceeds the limit of {most:,} for this machine")
    if path.suffix != ".npy":
        return np.fromfile(path, np.uint8)
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # files of Python 2 are read as well
            return _bytes(_array(file, size))
    except _DAMAGED as error:
        reason = textwrap.shorten(str(error), 200)  # it may quote the whole header
        raise FormatError(f"{path} is not a numpy array ({reason}): save it with numpy.save(path, buffer)") from None


def _array(file: BinaryIO, size: int) -> npt.NDArray[Any]:
    """The array in a .npy file of that many bytes. numpy trusts the header: elements of zero bytes would end the
    process. Raises numpy's errors, and ValueError.
    """
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]}")
    try:
        shape, fortran, dtype = _HEADERS[version](file)
    except MemoryError:  # Python's parser ran out of stack
        raise ValueError("its header nests too deeply") from None
    if dtype.hasobject or dtype.subdtype is not None or not dtype.itemsize:
        raise ValueError(f"elements of {dtype}")
    if not all(type(length) is int and 0 <= length <= size for length in shape):
        raise ValueError(f"a shape of {shape}")
    promised, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if promised > there:
        raise ValueError(f"{promised:,} bytes are declared, but the file has {there:,}")
    flat = np.fromfile(file, dtype, math.prod(shape))
    return flat.reshape(shape[::-1]).transpose() if fortran else flat


def ranged(call: str, name: str, number: object, least: int, most: int) -> None:
    """Raise UsageError unless the argument is a number in that range."""
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise UsageError(f"{call}({name}={number!r}): expected a number, {least} to {most:,}")


def numbered(call: str, device: object) -> None:
    """Raise UsageError unless `device` is a GPU's number."""
    ranged(call, "device", device, 0, MOST_DEVICE)


def named(names: Names, noun: str) -> dict[int, str]:
    """Names by id. Raises UsageError unless they are texts."""
    if names is None:
        return {}
    if isinstance(names, (str, bytes)) or not isinstance(names, (Sequence, Mapping)):
        raise UsageError(f"names={names!r}: expected names in order of their {noun}s, or a dict from {noun} to name")
    found = dict(names.items()) if isinstance(names, Mapping) else dict(enumerate(names))
    wrong = [key for key, name in found.items() if not isinstance(key, int) or not isinstance(name, str)]
    if wrong:
        raise UsageError(f"names[{wrong[0]!r}] = {found[wrong[0]]!r}: expected a name for that {noun}, a text")
    return found
