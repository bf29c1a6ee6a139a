"""What a cubin says of registers: how many, how much stack, and whether setmaxnreg is in it.

CuTe DSL has its assembler inside and prints nothing of what `ptxas -v` would say. What lives here: these numbers, from
the ELF. What does not: what follows from them (kscope/lowering/fit.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kscope.lowering.register_budget import Usage

_SVAL, _REGCOUNT, _FRAME_SIZE = 0x04, 0x2F, 0x11  # of .nv.info: a format, and two attributes
_SETMAXREG, _OPCODE = 0x9C8, 0xFFF  # USETMAXREG, sm_90 to sm_100: the low 12 bits of 128


def usage(cubin: bytes, asks: bool) -> Usage:
    """asks: whether the text has a setmaxnreg. spill_bytes is the stack of all functions, arrays of the user's own
    included: what marks add to it are spills."""
    registers, stack = 0, 0
    for attribute, value in _info(dict(sections(cubin)).get(".nv.info", b"")):
        if attribute == _REGCOUNT:
            registers = max(registers, value)
        elif attribute == _FRAME_SIZE:
            stack += value
    return Usage(asks and not any(map(_sets, _code(cubin))), stack, registers)


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section of a 64-bit ELF."""
    table, entry, count, names = *struct.unpack_from("<Q", elf, 0x28), *struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + n * entry) for n in range(count)]
    strings = headers[names][4]
    for name, kind, _, _, offset, size in headers:
        end = elf.index(b"\0", strings + name)
        content = b"" if kind == 8 else elf[offset : offset + size]  # 8 = NOBITS: has no bytes in the file
        yield elf[strings + name : end].decode(), content


def _info(content: bytes) -> Iterator[tuple[int, int]]:
    """(attribute, value) of each entry that is about one function."""
    at = 0
    while at + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form == _SVAL:
            if size == 8:
                yield attribute, struct.unpack_from("<I", content, at + 4)[0]
            at += size


def _code(cubin: bytes) -> Iterator[bytes]:
    return (content for name, content in sections(cubin) if name.startswith(".text."))


def _sets(code: bytes) -> bool:
    return any(word & _OPCODE == _SETMAXREG for (word,) in struct.iter_unpack("<Q8x", code))
