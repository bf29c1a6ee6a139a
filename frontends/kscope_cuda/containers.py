"""The device code in a file: cubins as they are, fatbins and shared objects that pack them, PTX texts."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from kscope.errors import FormatError, MissingError

_FATBIN = (0xBA55ED50).to_bytes(4, "little")
_PTX, _LZ4, _ZSTD = 1, 0x2000, 0x8000
_ARRAY = re.compile(rb"\.b8 [\w$]+\[([0-9]{1,9})\] = \{([0-9, ]+)\}")
_NUMBER = re.compile(rb"[0-9]{1,3}")
_MOST = 256 << 20
"""Bytes that a piece of code is unpacked to, at most, whatever it says of itself."""


def device_code(data: bytes, missing: list[MissingError]) -> Iterator[bytes]:
    """Everything in a file in which notes may stand: the file itself, where most cubins are as they are; cubins
    that it has packed; the constants of PTX texts, as bytes, where there is no cubin of the same code.

    missing: gets an error for each piece that is left out, as what unpacks it is not installed. That may be no
    loss: -rdc=true leaves every unit in a library, packed, beside the code that was linked.
    """
    yield data
    if data.lstrip().startswith((b"//", b".version")):
        yield _constants(data)
    for entries in _containers(data):
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
    """The PTX texts that the file keeps for GPUs to come, those that can be unpacked here."""
    for entry in (entry for entries in _containers(data) for entry in entries if entry.kind == _PTX):
        try:
            yield entry.unpacked().decode(errors="replace")
        except (MissingError, FormatError):  # nobody is promised a text: most files keep none
            continue


@dataclass(frozen=True)
class _Entry:
    """One piece of code of a container. size: of what it is unpacked."""

    kind: int
    flags: int
    size: int
    body: bytes

    def unpacked(self) -> bytes:
        """Raises FormatError for a body that is damaged, MissingError."""
        if not self.flags & (_ZSTD | _LZ4):
            return self.body
        if self.size > _MOST:
            raise FormatError(f"device code of {self.size:,} bytes, more than {_MOST:,}: no compiler wrote this")
        return _unzstd(self.body, self.size) if self.flags & _ZSTD else _unlz4(self.body, self.size)


def _constants(ptx: bytes) -> bytes:
    """Every initialised array of bytes in a PTX text, one after the other; zeros at an array's end are not spelled."""
    found = bytearray()
    for array in _ARRAY.finditer(ptx):
        there = bytes(int(number) & 0xFF for number in _NUMBER.findall(array[2]))
        more = int(array[1]) - len(there)
        if len(found) + len(there) + max(more, 0) > _MOST:
            raise FormatError(f"its constants have more than {_MOST:,} bytes: no compiler wrote this")
        found += there + bytes(max(more, 0))
    return bytes(found)


def _containers(data: bytes) -> Iterator[list[_Entry]]:
    """The entries of every container in the file, as far as they make sense."""
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
    """Inverse of Zstandard, by Python's own module (3.14), or the package."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module = import_module(name)
        except ModuleNotFoundError:
            continue
        unpacker = module.ZstdDecompressor()
        try:  # no more than it says: a little may unpack to a lot
            if name == "zstandard":
                unpacked: bytes = unpacker.stream_reader(body).read(size)
            else:
                unpacked = unpacker.decompress(body, max_length=size)
        except module.ZstdError as error:
            raise FormatError(f"device code is damaged: {error}") from error
        return unpacked
    raise MissingError("the names are in device code that nvcc packed with Zstandard: pip install zstandard")


def _unlz4(body: bytes, size: int) -> bytes:
    """Inverse of an LZ4 block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md)."""
    try:
        return bytes(_lz4(body, size)[:size])
    except IndexError:
        raise FormatError("device code is damaged: an LZ4 block refers to what is not there") from None


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
