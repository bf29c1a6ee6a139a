"""The control block's address in machine code that records: two moves for each kernel, 0 in a cubin as it is built and
cached; patched() makes the copy that a context loads. Their places are at the end of the string table:

    \\0kscope control {"kernel": "k", "moves": [16, 48]}\\0       the low word's, the high word's
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from ..capture import wire
from ..errors import FormatError, UnsupportedError
from ..util.json_values import dump_json
from . import elf

UNPATCHED = 1
"""In the constant `kscope_ctl` of such a cubin: its kernels do not read it. A patched copy has the address."""
_MARK, _STRINGS, _BANK = b"\0kscope control ", ".strtab", ".nv.constant3"
_NUMBER_AT = 4
"""Offset of a move's number in its 16 bytes."""
_WORD, _ADDRESS = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True)
class Moves:
    """The moves of a kernel: their addresses in its code."""

    kernel: str
    low: int
    high: int


def offset(file: elf.Elf) -> int:
    """Offset of the control block's address in constant bank 3. Raises UnsupportedError without it."""
    for one in file.symbols():
        if one.name == wire.CTL_SYMBOL and file.sections[one.section].name == _BANK:
            return one.value
    raise UnsupportedError(f"the cubin has no {wire.CTL_SYMBOL} in {_BANK}")


def noted(cubin: bytes, moves: Moves) -> bytes:
    """The cubin with a note about the moves of one of its kernels."""
    file = elf.read(cubin)
    strings = file.find(_STRINGS)
    if strings is None:
        raise UnsupportedError(f"the cubin has no {_STRINGS}")
    note = _MARK + dump_json({"kernel": moves.kernel, "moves": [moves.low, moves.high]}) + b"\0"
    return elf.write(file, {_STRINGS: strings.content + note, _BANK: _constants(file, UNPATCHED)})


def moves(cubin: bytes) -> tuple[Moves, ...]:
    """The moves of each kernel; none in other code. Raises FormatError if the notes are damaged."""
    if _MARK not in cubin:
        return ()
    return tuple(_moves(elf.read(cubin)))


def patched(cubin: bytes, address: int) -> bytes:
    """The cubin with an address in each kernel's moves, and in the constant; other code comes back unchanged.

    Raises:
        FormatError: the notes are damaged.
    """
    found = moves(cubin)
    if not found:
        return cubin
    file = elf.read(cubin)
    code = dict[str, bytearray]()
    for one in found:
        name = f".text.{one.kernel}"
        section = file.find(name)
        if section is None:
            raise FormatError(f"damaged cubin: no code of {one.kernel}")
        content = code.setdefault(name, bytearray(section.content))
        for at, word in ((one.low, address & 0xFFFFFFFF), (one.high, address >> 32)):
            if at + 16 > len(content):
                raise FormatError(f"damaged cubin: {one.kernel} has no instruction at {at:#x}")
            _WORD.pack_into(content, at + _NUMBER_AT, word)
    return elf.write(file, {name: bytes(one) for name, one in code.items()} | {_BANK: _constants(file, address)})


def _constants(file: elf.Elf, address: int) -> bytes:
    section = file.find(_BANK)
    content, at = bytearray(section.content if section is not None else b""), offset(file)
    _ADDRESS.pack_into(content, at, address)
    return bytes(content)


def _moves(file: elf.Elf) -> Iterator[Moves]:
    strings = file.find(_STRINGS)
    for text in strings.content.split(_MARK)[1:] if strings is not None else []:
        try:
            found = orjson.loads(text.partition(b"\0")[0])
            low, high = (int(at) for at in found["moves"])
            yield Moves(str(found["kernel"]), low, high)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"damaged cubin: {error}") from None
