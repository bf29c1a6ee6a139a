"""The device code in a file: cubins as they are, fatbins and shared objects that pack them, PTX texts.

What lives here: from a file's bytes to bytes in which notes can be found. What does not: notes (notes.py).

nvcc leaves cubins in a fatbin as they are and packs PTX alone, unless it is told otherwise
(-compress-mode=size). A container is a header of 16 bytes,

    u32 0xBA55ED50   u16 version   u16 bytes of the header   u64 bytes of the entries

and entries: u16 kind (1 PTX, 2 cubin), u16 version, u32 bytes of the entry's header, u64 bytes that
follow it, u32 of them packed; at byte 40 u64 flags, at byte 56 u64 bytes unpacked. NVIDIA does not
document it; this is what nvcc 12.4 and 13.0 write.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from importlib import import_module

from kscope.errors import MissingError

_FATBIN = (0xBA55ED50).to_bytes(4, "little")
_PTX, _LZ4, _ZSTD = 1, 0x2000, 0x8000
_ARRAY = re.compile(rb"\.b8 [\w$]+\[(\d+)\] = \{([\d, ]+)\}")


def cubins(data: bytes) -> Iterator[bytes]:
    """The file itself, in which most cubins are as they are, and cubins that it has packed. Raises MissingError
    where what unpacks them is not installed."""
    yield data
    yield from (_unpacked(*entry) for entry in _entries(data) if entry[0] != _PTX and entry[1] & (_ZSTD | _LZ4))


def texts(data: bytes) -> Iterator[bytes]:
    """The constants of PTX texts, as bytes: of a text itself, or of those in a file. Raises as cubins() does."""
    if data.lstrip().startswith((b"//", b".version")):
        yield _constants(data)
    yield from (_constants(_unpacked(*entry)) for entry in _entries(data) if entry[0] == _PTX)


def _constants(ptx: bytes) -> bytes:
    """Every initialised array of bytes in a PTX text, one after the other; zeros at an array's end are not spelled."""
    return b"".join(bytes(map(int, body.split(b","))).ljust(int(size), b"\0") for size, body in _ARRAY.findall(ptx))


def _entries(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(kind, flags, bytes unpacked, body) of every entry of every container in the file."""
    at = -1
    while (at := data.find(_FATBIN, at + 1)) >= 0:
        if at + 16 > len(data):
            return
        version, header, size = struct.unpack_from("<HHQ", data, at + 4)
        entry, end = at + header, at + header + size
        if version != 1 or header != 16 or end > len(data):
            continue
        while entry + 64 <= end:
            kind, _, head, length = struct.unpack_from("<HHIQ", data, entry)
            if head < 64 or entry + head + length > end:
                break
            flags, _, unpacked = struct.unpack_from("<QQQ", data, entry + 40)
            packed = int.from_bytes(data[entry + 16 : entry + 20], "little")
            body = data[entry + head : entry + head + (packed or length)]
            yield kind, flags, unpacked, body
            entry += head + length


def _unpacked(kind: int, flags: int, size: int, body: bytes) -> bytes:
    return _unzstd(body, size) if flags & _ZSTD else _unlz4(body, size) if flags & _LZ4 else body


def _unzstd(body: bytes, size: int) -> bytes:
    """Inverse of Zstandard, by Python's own module (3.14), or the package."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module = import_module(name)
        except ModuleNotFoundError:
            continue
        if name == "zstandard":
            unpacked: bytes = module.ZstdDecompressor().decompressobj().decompress(body)
        else:
            unpacked = module.ZstdDecompressor().decompress(body)
        return unpacked[:size]
    raise MissingError("the names are in device code that nvcc packed with Zstandard: pip install zstandard")


def _unlz4(body: bytes, size: int) -> bytes:
    """Inverse of an LZ4 block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md)."""
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
        for _ in range(count):
            out.append(out[-offset])
    return bytes(out[:size])
