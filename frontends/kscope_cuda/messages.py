"""Shared objects that say by themselves which libraries of device code they load: those of CuTe DSL's TVM-FFI.

    long long NAME_kscope_library()     loads the library on the current device, and gives its CUlibrary; 0 if it cannot

kscope has put that function into each object that it prepared, one for each function that was exported.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path

ENDING = "kscope_library"
_ELF, _DYNSYM = b"\x7fELF\x02\x01", 11


def libraries(path: str, handle: ctypes.CDLL) -> list[int]:
    """The handles that the shared object says; none where nothing in it does. Raises OSError for its file."""
    found = []
    for name in _exported(Path(path).read_bytes()):
        if name.endswith(ENDING):
            function = handle[name]
            function.restype = ctypes.c_int64
            found.append(int(function()))
    return found


def _exported(data: bytes) -> Iterator[str]:
    """Names that a 64-bit ELF gives to others: the entries of .dynsym that lie in one of its sections."""
    if not data.startswith(_ELF):
        return
    table, size, count = *struct.unpack_from("<Q", data, 0x28), *struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQI", data, table + n * size) for n in range(count)]
    for _, kind, _, _, start, length, link in sections:
        if kind == _DYNSYM:
            strings = sections[link][4]
            for name, _, _, section in struct.iter_unpack("<IBBH16x", data[start : start + length]):
                if section:
                    yield data[strings + name : data.index(b"\0", strings + name)].decode(errors="replace")
