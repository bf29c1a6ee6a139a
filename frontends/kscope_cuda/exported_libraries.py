"""Shared objects that export the libraries of device code they load, as CuTe DSL's TVM-FFI objects do.

    long long NAME_kscope_library()     loads the library on the current device; returns its CUlibrary, 0 on failure

kscope adds that function to each object that it prepares, one per exported function.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path

from kscope.machine_code.elf import is_elf

SUFFIX = "kscope_library"
_DYNSYM = 11


def handles(path: str, handle: ctypes.CDLL) -> list[int]:
    """The CUlibrary handles that the shared object exports. Raises OSError for its file."""
    found = []
    for name in _exported_names(Path(path).read_bytes()):
        if name.endswith(SUFFIX):
            function = handle[name]
            function.restype = ctypes.c_int64
            found.append(int(function()))
    return found


def _exported_names(data: bytes) -> Iterator[str]:
    """Names that a 64-bit ELF file exports: entries of .dynsym that lie in a section."""
    if not is_elf(data, wide=True):
        return
    table, size, count = *struct.unpack_from("<Q", data, 0x28), *struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQI", data, table + n * size) for n in range(count)]
    for _, kind, _, _, start, length, link in sections:
        if kind == _DYNSYM:
            strings = sections[link][4]
            for name, _, _, section in struct.iter_unpack("<IBBH16x", data[start : start + length]):
                if section:
                    yield data[strings + name : data.index(b"\0", strings + name)].decode(errors="replace")
