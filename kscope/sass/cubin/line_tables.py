"""Line tables (DWARF 2; DWARF 3 since ptxas 13.5): reads the source line of each instruction, and rewrites tables for
moved code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...errors import UnsupportedError

_COPY, _ADVANCE, _LINE, _FILE, _COLUMN, _STATEMENT, _BLOCK, _CONSTANT, _FIXED = range(1, 10)
_SET_ISA = 12
_FIRST_SPECIAL = {2: 10, 3: 13}
"""The first special opcode (it changes address and line at once), by version: 3 has three more standard opcodes."""
_END, _ADDRESS, _INLINED = 1, 2, 0x90
_EXTENDED = 0

Place = Callable[[int], int]


@dataclass(frozen=True)
class Row:
    """A row of a table: from `at` on, code comes from this line of the file with this number.

    Attributes:
        sequence: number of the sequence, one per function.
        at: address.
        file, line: the source; file is the number in the table's header, 0 at the end of a sequence.
    """

    sequence: int
    at: int
    file: int
    line: int


@dataclass(frozen=True)
class _Op:
    """An opcode: its bytes, its advance of the address, and whether it sets the address (a sequence begins)."""

    at: int
    code: bytes
    advance: int = 0
    starts: bool = False
    plain: bool = False  # nothing but an advance


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value


@dataclass(frozen=True)
class _Unit:
    """One table: from `begin` (its length word) over `program` (its first opcode) to `end`."""

    begin: int
    program: int
    end: int
    step: int
    base: int
    range: int
    first: int


def _units(content: bytes) -> Iterator[_Unit]:
    at = 0
    while at < len(content):
        length, version, prologue, step, _, base, span, first = struct.unpack_from("<IHIBBbBB", content, at)
        if first != _FIRST_SPECIAL.get(version) or not span:
            raise UnsupportedError(f"the cubin's line table is DWARF {version}; expected ptxas's DWARF 2 or 3")
        yield _Unit(at, at + 10 + prologue, at + 4 + length, step, base, span, first)
        at += 4 + length


def _ops(content: bytes, unit: _Unit) -> Iterator[_Op]:
    reader = _Reader(content, unit.program)
    while (at := reader.at) < unit.end:
        op, advance, starts, plain = reader.byte(), 0, False, False
        if op >= unit.first:
            advance = (op - unit.first) // unit.range * unit.step
        elif op == _ADVANCE:
            advance, plain = reader.number() * unit.step, True
        elif op == _CONSTANT:
            advance = (255 - unit.first) // unit.range * unit.step
        elif op == _FIXED:
            advance, plain = reader.byte() | reader.byte() << 8, True
        elif op in (_LINE, _FILE, _COLUMN, _SET_ISA):
            reader.number()
        elif op == _EXTENDED:
            end = reader.number() + reader.at
            kind = reader.byte()
            if kind not in (_END, _ADDRESS, _INLINED):
                raise UnsupportedError(f"the cubin's line table has an opcode that kscope does not know: 0:{kind:#x}")
            starts, reader.at = kind == _ADDRESS, end
        yield _Op(at, content[at : reader.at], advance, starts, plain)


def rows(content: bytes) -> Iterator[Row]:
    """The rows of a section of line tables, in the order of the file."""
    sequence = -1
    for unit in _units(content):
        at, file, line = 0, 1, 1
        for op in _ops(content, unit):
            reader, at = _Reader(op.code, 1), at + op.advance
            kind = op.code[0]
            if kind == _LINE:
                line += reader.number(signed=True)
            elif kind == _FILE:
                file = reader.number()
            elif kind == _EXTENDED:
                reader.number()
                what = reader.byte()
                if what == _ADDRESS:
                    at, sequence = int.from_bytes(op.code[-8:], "little"), sequence + 1
                elif what == _END:
                    yield Row(sequence, at, 0, line)
                    file, line = 1, 1
            elif kind >= unit.first:
                line += unit.base + (kind - unit.first) % unit.range
            if kind == _COPY or kind >= unit.first:
                yield Row(sequence, at, file, line)


def move_lines(content: bytes, places: Mapping[int, Place]) -> tuple[bytes, dict[int, int]]:
    """The tables of code with insertions.

    Only the advances of the address differ: an additional one precedes a row if more code lies before it.

    Args:
        content: the section.
        places: the new addresses of instructions, by the offset of the word that a sequence's relocation fills in;
            sequences without one stay.

    Returns:
        The section, and the new offsets of these words.
    """
    out, words = bytearray(), dict[int, int]()
    for unit in _units(content):
        begin = len(out)
        out += content[unit.begin : unit.program]
        at, place = 0, None
        for op in _ops(content, unit):
            if op.starts:
                word = op.at + len(op.code) - 8
                words[word] = len(out) + len(op.code) - 8
                at, place = int.from_bytes(op.code[-8:], "little"), places.get(word)
            more = place(at + op.advance) - place(at) - op.advance if place and op.advance else 0
            at += op.advance
            if more % unit.step or more < 0:
                raise UnsupportedError("the cubin's line table cannot be moved by these steps")
            if more and op.plain:
                out += bytes((_ADVANCE,)) + _uleb((op.advance + more) // unit.step)
            else:
                out += (bytes((_ADVANCE,)) + _uleb(more // unit.step) if more else b"") + op.code
        struct.pack_into("<I", out, begin, len(out) - begin - 4)
    return bytes(out), words


def _uleb(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
