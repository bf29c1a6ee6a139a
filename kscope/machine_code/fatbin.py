"""The device code in a file: a cubin, a PTX text, or the entries of a fatbin, executable or shared object."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from ..errors import FormatError, MissingError
from .elf import is_elf

_FATBIN = (0xBA55ED50).to_bytes(4, "little")
_CUDA = (190).to_bytes(2, "little")
"""The machine in an ELF file's header."""
_PTX, _LZ4, _ZSTD = 1, 0x2000, 0x8000
_ARRAY = re.compile(rb"\.b8 [\w$]+\[([0-9]{1,9})\] = \{([0-9, ]+)\}")
_NUMBER = re.compile(rb"[0-9]{1,3}")
_MAX_BYTES = 256 << 20
"""Limit of unpacked code: the size in the file is not trusted."""


def device_code(data: bytes, missing: list[MissingError]) -> Iterator[bytes]:
    """All bytes of a file that may contain notes.

    These are the file itself, which contains most cubins uncompressed; compressed cubins; and the constants of PTX
    texts of which there is no cubin.

    Args:
        data: the file.
        missing: receives an error for each entry that is skipped because its decompressor is not installed. Such an
            entry may be redundant: -rdc=true leaves every unit in a library, compressed, beside the linked code.
    """
    yield data
    if data.lstrip().startswith((b"//", b".version")):
        yield _constants(data)
    for entries in _fatbins(data):
        compiled = any(entry.kind != _PTX for entry in entries)
        for entry in entries:
            if (entry.kind == _PTX and compiled) or (entry.kind != _PTX and not entry.flags & (_ZSTD | _LZ4)):
                continue
            try:
                unpacked = entry.unpacked()
            except MissingError as error:
                missing.append(error)
            else:
                yield _constants(unpacked) if entry.kind == _PTX else unpacked


def ptx_texts(data: bytes) -> Iterator[str]:
    """The PTX texts in a file that can be unpacked here."""
    for entry in (entry for entries in _fatbins(data) for entry in entries if entry.kind == _PTX):
        try:
            yield entry.unpacked().decode(errors="replace")
        except (MissingError, FormatError):  # PTX is optional: most files have none
            continue


def cubins(data: bytes) -> Iterator[bytes]:
    """The cubins in a file that can be unpacked here: itself, or entries of its fatbins."""
    if is_elf(data) and data[18:20] == _CUDA:
        yield data
    for entry in (entry for entries in _fatbins(data) for entry in entries if entry.kind != _PTX):
        try:
            yield entry.unpacked()
        except (MissingError, FormatError):  # another entry may have the same code
            continue


@dataclass(frozen=True)
class _Entry:
    """One entry of a fatbin; size is that of the unpacked code."""

    kind: int
    flags: int
    size: int
    body: bytes

    def unpacked(self) -> bytes:
        """Raises FormatError for a damaged body, MissingError without a decompressor."""
        if not self.flags & (_ZSTD | _LZ4):
            return self.body
        if self.size > _MAX_BYTES:
            raise FormatError(f"device code of {self.size:,} bytes exceeds the limit of {_MAX_BYTES:,}: is it damaged?")
        return _unzstd(self.body, self.size) if self.flags & _ZSTD else _unlz4(self.body, self.size)


def _constants(ptx: bytes) -> bytes:
    """The initialized byte arrays of a PTX text, concatenated; PTX omits trailing zeros."""
    found = bytearray()
    for array in _ARRAY.finditer(ptx):
        written = bytes(int(number) & 0xFF for number in _NUMBER.findall(array[2]))
        zeros = max(int(array[1]) - len(written), 0)
        if len(found) + len(written) + zeros > _MAX_BYTES:
            raise FormatError(f"constants of a PTX text exceed the limit of {_MAX_BYTES:,} bytes: is it damaged?")
        found += written + bytes(zeros)
    return bytes(found)


def _fatbins(data: bytes) -> Iterator[list[_Entry]]:
    """The valid entries of every fatbin in the file."""
    at = -1
    while (at := data.find(_FATBIN, at + 1)) >= 0:
        if at + 16 > len(data):
            return
        version, header, size = struct.unpack_from("<HHQ", data, at + 4)
        entry, end, found = at + header, at + header + size, list[_Entry]()
        if version != 1 or header != 16 or end > len(data):
            continue
        while entry + 64 <= end:
            kind, _, head, length, packed = struct.unpack_from("<HHIQI", data, entry)
            if head < 64 or entry + head + length > end:
                break
            flags, _, unpacked = struct.unpack_from("<QQQ", data, entry + 40)
            found.append(_Entry(kind, flags, unpacked, data[entry + head : entry + head + (packed or length)]))
            entry += head + length
        yield found


def _unzstd(body: bytes, size: int) -> bytes:
    """Decompress Zstandard with Python's module (3.14) or the package."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module = import_module(name)
        except ModuleNotFoundError:
            continue
        unpacker = module.ZstdDecompressor()
        try:  # bounded: few bytes may unpack to many
            if name == "zstandard":
                unpacked: bytes = unpacker.stream_reader(body).read(size)
            else:
                unpacked = unpacker.decompress(body, max_length=size)
        except module.ZstdError as error:
            raise FormatError(f"device code is damaged: {error}") from error
        return unpacked
    raise MissingError("the names are in device code that nvcc compressed with Zstandard: pip install zstandard")


def _unlz4(body: bytes, size: int) -> bytes:
    """Decompress an LZ4 block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md)."""
    try:
        return bytes(_lz4(body, size)[:size])
    except IndexError:
        raise FormatError("device code is damaged: an LZ4 block refers to bytes outside it") from None


def _lz4(body: bytes, size: int) -> bytearray:
    out, at = bytearray(), 0

    def length(start: int) -> int:
        nonlocal at
        total = start
        while start == 15:
            total += body[at]
            at += 1
            if body[at - 1] != 255:
                break
        return total

    while at < len(body) and len(out) < size:
        token = body[at]
        at += 1
        literals = length(token >> 4)
        out += body[at : at + literals]
        at += literals
        if at + 2 > len(body):
            break
        offset = int.from_bytes(body[at : at + 2], "little")
        at += 2
        count = length(token & 15) + 4
        for _ in range(min(count, size - len(out))):
            out.append(out[-offset])
    return out
