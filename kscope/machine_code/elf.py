"""Sections of cubins."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section of a 64-bit ELF."""
    table, entry, count, names = *struct.unpack_from("<Q", elf, 0x28), *struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + n * entry) for n in range(count)]
    strings = headers[names][4]
    for name, kind, _, _, offset, size in headers:
        end = elf.index(b"\0", strings + name)
        content = b"" if kind == 8 else elf[offset : offset + size]  # 8 = NOBITS: not in the file
        yield elf[strings + name : end].decode(), content
