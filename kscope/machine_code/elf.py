"""A cubin as sections, symbols and relocations, and the same cubin with other contents of some sections."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import FormatError, UnsupportedError

_MAGIC, _WIDE = b"\x7fELF", b"\x02"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_CUDA, _NOBITS, _SYMTAB, _REL, _RELA, _FUNCTION = 190, 8, 2, 9, 4, 2
_STEP = 128
"""Sections after one that grew move by multiples of it, so every alignment of a cubin is kept."""


@dataclass(frozen=True)
class Section:
    """One section: its name, kind, offset in the file, `link` and `info` words, and content (none for NOBITS)."""

    name: str
    kind: int
    offset: int
    link: int
    info: int
    align: int
    content: bytes


@dataclass(frozen=True)
class Symbol:
    """One symbol: name, number of its section, offset and size there, and whether it is a function."""

    name: str
    section: int
    value: int
    size: int
    function: bool


@dataclass(frozen=True)
class Relocation:
    """One relocation: its place in the section, and the symbol's number."""

    at: int
    symbol: int


@dataclass(frozen=True)
class Elf:
    """A cubin. data: the file. flags: the header's word with architecture and options."""

    data: bytes
    flags: int
    sections: tuple[Section, ...]

    def find(self, name: str) -> Section | None:
        """The section of this name, or None."""
        return next((one for one in self.sections if one.name == name), None)

    def number(self, name: str) -> int:
        """The number of the section of this name."""
        return next(number for number, one in enumerate(self.sections) if one.name == name)

    @property
    def table(self) -> Section:
        """The table of symbols. Raises FormatError if there is none."""
        found = next((one for one in self.sections if one.kind == _SYMTAB), None)
        if found is None:
            raise FormatError("damaged cubin: it has no table of symbols")
        return found

    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols, in the order of their numbers. Raises FormatError if they are damaged."""
        table = self.table
        try:
            names = self.sections[table.link].content
            return tuple(
                Symbol(_text(names, name), section, value, size, info & 15 == _FUNCTION)
                for name, info, _, section, value, size in _SYMBOL.iter_unpack(table.content)
            )
        except (struct.error, IndexError, ValueError) as error:
            raise FormatError(f"damaged cubin: {error}") from None

    def with_symbols(self, places: Mapping[int, tuple[int, int]]) -> bytes:
        """The table of symbols with other values and sizes, by number of the symbol."""
        table = bytearray(self.table.content)
        for number, place in places.items():
            struct.pack_into("<QQ", table, number * _SYMBOL.size + 8, *place)
        return bytes(table)

    def relocations(self, section: str) -> tuple[tuple[Section, tuple[Relocation, ...]], ...]:
        """The sections that relocate a section, each with its entries in the order of the file."""
        number = self.number(section)
        found = [one for one in self.sections if one.kind in (_REL, _RELA) and one.info == number]
        return tuple((one, tuple(_entries(one))) for one in found)


def with_places(relocations: Section, places: list[int]) -> bytes:
    """The content of a section of relocations, each at another place."""
    content, step = bytearray(relocations.content), _RELOCATION.size if relocations.kind == _RELA else 16
    for number, place in enumerate(places):
        struct.pack_into("<Q", content, number * step, place)
    return bytes(content)


def is_elf(data: bytes, *, wide: bool = False) -> bool:
    """True if a file that begins with these bytes is an ELF. wide: one of 64 bits."""
    return data.startswith(_MAGIC + _WIDE if wide else _MAGIC)


def read(data: bytes) -> Elf:
    """Read a cubin.

    Args:
        data: a 64-bit ELF for NVIDIA's GPUs.

    Returns:
        Its parts.

    Raises:
        FormatError: it is not a cubin, or damaged.
    """
    if not is_elf(data, wide=True):
        raise FormatError("not a cubin: expected a 64-bit ELF")
    try:
        header = _HEADER.unpack_from(data)
        if header[2] != _CUDA:
            raise FormatError(f"not a cubin: the ELF is for machine {header[2]}; expected NVIDIA's GPUs ({_CUDA})")
        raw = [_SECTION.unpack_from(data, header[6] + n * _SECTION.size) for n in range(header[12])]
        strings = data[raw[header[13]][4] :]
        sections = tuple(
            Section(
                _text(strings, name),
                kind,
                offset,
                link,
                info,
                align,
                b"" if kind == _NOBITS else _cut(data, offset, size),
            )
            for name, kind, _, _, offset, size, link, info, align, _ in raw
        )
        _cut(data, header[5], header[10] * _SEGMENT.size)
        return Elf(data, header[7], sections)
    except (struct.error, IndexError, ValueError) as error:
        raise FormatError(f"damaged cubin: {error}") from None


def write(elf: Elf, contents: Mapping[str, bytes], infos: Mapping[str, int] | None = None) -> bytes:
    """The cubin with other contents, and other `info` words, of the sections with these names.

    Raises:
        UnsupportedError: two sections of the file share bytes.
    """
    header = _HEADER.unpack_from(elf.data)
    changed = sorted(
        (one for one in elf.sections if one.name in contents and contents[one.name] != one.content),
        key=lambda one: one.offset,
    )
    out, done, moves = bytearray(), 0, list[tuple[int, int]]()
    for one in changed:
        content, end = contents[one.name], one.offset + len(one.content)
        if one.offset < done:
            raise UnsupportedError(f"the cubin's section {one.name} shares bytes with another one")
        grown = -(-(len(content) - len(one.content)) // _STEP) * _STEP
        out += elf.data[done : one.offset] + content + bytes(grown + len(one.content) - len(content))
        done = end
        moves.append((end, grown))
    out += elf.data[done:]

    def moved(at: int) -> int:
        return at + sum(by for end, by in moves if at >= end)

    for number, one in enumerate(elf.sections):
        at = moved(header[6]) + number * _SECTION.size
        fields = list(_SECTION.unpack_from(out, at))
        fields[4] = moved(fields[4])
        if one.name in contents and one.kind != _NOBITS:
            fields[5] = len(contents[one.name])
        fields[7] = (infos or {}).get(one.name, fields[7])
        _SECTION.pack_into(out, at, *fields)
    for number in range(header[10]):
        at = moved(header[5]) + number * _SEGMENT.size
        kind, flags, offset, virtual, physical, size, memory, align = _SEGMENT.unpack_from(out, at)
        grown = sum(
            len(contents[one.name]) - len(one.content) for one in changed if offset <= one.offset < offset + size
        )
        _SEGMENT.pack_into(out, at, kind, flags, moved(offset), virtual, physical, size + grown, memory + grown, align)
    _HEADER.pack_into(out, 0, *header[:5], moved(header[5]), moved(header[6]), *header[7:])
    return bytes(out)


def _entries(section: Section) -> list[Relocation]:
    form = _RELOCATION if section.kind == _RELA else struct.Struct("<QQ")
    return [Relocation(at, info >> 32) for at, info, *_ in form.iter_unpack(section.content)]


def _cut(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise FormatError("damaged cubin: a part of it would be past its end")
    return data[offset : offset + size]


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()
