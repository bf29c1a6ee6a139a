"""Sections and functions of cubins."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import FormatError

_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTION_TYPE = 2


@dataclass(frozen=True)
class Symbol:
    """A function: its number in the symbol table, its name, and its code's address and size in bytes."""

    number: int
    name: str
    at: int
    size: int


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section of a 64-bit ELF."""
    table, entry, count, names = *struct.unpack_from("<Q", elf, 0x28), *struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + n * entry) for n in range(count)]
    strings = headers[names][4]
    for name, kind, _, _, offset, size in headers:
        end = elf.index(b"\0", strings + name)
        content = b"" if kind == 8 else elf[offset : offset + size]  # 8 = NOBITS: not in the file
        yield elf[strings + name : end].decode(), content


def functions(cubin: bytes) -> list[Symbol]:
    """The functions in a cubin's symbol table.

    Raises:
        FormatError: it is no cubin, or damaged.
    """
    try:
        found = dict(sections(cubin))
        table, strings = found[".symtab"], found[".strtab"]
        rows = [_SYMBOL.unpack_from(table, at) for at in range(0, len(table), _SYMBOL.size)]
        return [
            Symbol(number, strings[name : strings.index(b"\0", name)].decode("utf-8", "replace"), at, size)
            for number, (name, kind, _, _, at, size) in enumerate(rows)
            if kind & 15 == _FUNCTION_TYPE
        ]
    except (KeyError, ValueError, IndexError, struct.error) as error:
        raise FormatError(f"its module is no cubin that kscope can read ({error})") from None
