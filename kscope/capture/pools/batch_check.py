"""The checksum of a batch of slabs in a pool file: the CRC-32 of the CRC-32s of its parts, which threads compute."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

PART = 1 << 18
"""Bytes of a part; the last one may have fewer."""


def check(batch: memoryview) -> int:
    """The checksum of a batch.

    Args:
        batch: its bytes.
    """
    return of_parts(zlib.crc32(batch[at : at + PART]) for at in range(0, len(batch), PART))


def of_parts(parts: Iterable[int]) -> int:
    """The checksum of a batch.

    Args:
        parts: the CRC-32 of each part.
    """
    return zlib.crc32(b"".join(struct.pack("<I", part) for part in parts))
