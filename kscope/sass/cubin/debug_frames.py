"""Rewrites `.debug_frame`, the unwind tables of debuggers, for moved code."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from ...errors import UnsupportedError

_LONG, _CIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_ADVANCE_4 = 0x04
_NUMBERS = {0x00: 0, 0x05: 2, 0x07: 1, 0x08: 1, 0x09: 2, 0x0A: 0, 0x0B: 0, 0x0C: 2, 0x0D: 1, 0x0E: 1, 0x13: 1}
"""Operations without addresses, and the count of variable-length numbers after each."""
_UNIT = 4
"""ptxas' code alignment factor: advances count words of four bytes."""
_BYTES = 1 << 32
"""ptxas 12.9 writes steps back, too: their bytes wrap around at 32 bits."""


def move_frames(content: bytes, places: Mapping[int, Callable[[int], int]]) -> bytes:
    """Return the section for code with insertions.

    Args:
        content: the section.
        places: where the instruction at an old address is now, by the offset of the word that a frame's relocation
            fills in (its first address).

    Raises:
        UnsupportedError: it has forms that ptxas was not seen to write.
    """
    out, at = bytearray(content), 0
    while at < len(content):
        mark, length, about = struct.unpack_from("<IQQ", content, at)
        end = at + 12 + length
        if mark != _LONG:
            raise UnsupportedError("the cubin's .debug_frame has an unknown form")
        if about == _CIE:
            if content[at + 20 : at + 23] != b"\x03\x00\x04":  # version, no augmentation, _UNIT
                raise UnsupportedError("the cubin's .debug_frame has an unknown form")
        elif place := places.get(at + 20):
            first, size = struct.unpack_from("<QQ", content, at + 20)
            struct.pack_into("<Q", out, at + 28, place(first + size) - place(first))
            _advances(out, at + 36, end, first, place)
        at = end
    return bytes(out)


def _advances(out: bytearray, at: int, end: int, address: int, place: Callable[[int], int]) -> None:
    while at < end:
        if out[at] == _ADVANCE_4:
            after = (address + _UNIT * int.from_bytes(out[at + 1 : at + 5], "little")) % _BYTES
            struct.pack_into("<I", out, at + 1, (place(after) - place(address)) % _BYTES // _UNIT)
            address, at = after, at + 5
        elif out[at] in _NUMBERS:
            numbers, at = _NUMBERS[out[at]], at + 1
            for _ in range(numbers):
                while out[at] & 0x80:
                    at += 1
                at += 1
        else:
            raise UnsupportedError(f"the cubin's .debug_frame has an operation that kscope does not know: {out[at]:#x}")
