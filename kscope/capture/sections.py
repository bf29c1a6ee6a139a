"""Sections at the end of a capture file: data that only some captures have."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from ..errors import FormatError
from . import sample_section
from .capture_data import CaptureData
from .head_values import list_of

SAMPLES = "samples"
_DAMAGED = "copy it again, or record again"


@dataclass(frozen=True)
class Section:
    """A section to write: its name, its packed bytes, and their unpacked size."""

    name: str
    data: bytes
    size: int


@dataclass(frozen=True)
class Announced:
    """A section as the head of a file announces it."""

    name: str
    stored: int
    crc: int
    size: int


def pack(capture: CaptureData) -> tuple[Section, ...]:
    """The sections of a capture."""
    if capture.samples is None:
        return ()
    data = sample_section.to_bytes(capture.samples)
    return (Section(SAMPLES, zlib.compress(data), len(data)),)


def head_entry(sections: Sequence[Section]) -> dict[str, Any]:
    """The sections' entry in the head; empty without any, so files without sections do not change."""
    rows = [[one.name, len(one.data), zlib.crc32(one.data), one.size] for one in sections]
    return {"sections": rows} if rows else {}


def entries_of_head(head: dict[str, Any]) -> tuple[Announced, ...]:
    """The sections that a head announces. Raises FormatError."""
    found = []
    for row in list_of({"sections": [], **head}, "sections"):
        match row:
            case [str(name), int(stored), int(crc), int(size)] if 0 < stored < 1 << 50 and 0 < size < 1 << 50:
                found.append(Announced(name, stored, crc, size))
            case _:
                raise FormatError(f"invalid head: a section is {str(row)[:60]}")
    return tuple(found)


def unpack(sections: Sequence[Announced], file: BinaryIO) -> dict[str, Any]:
    """The fields of CaptureData in the sections, which begin at the file's position; those of unknown names are left
    out. Raises FormatError.
    """
    found: dict[str, Any] = {}
    for section in sections:
        data = file.read(section.stored)
        if section.name != SAMPLES:  # of a newer kscope
            continue
        if len(data) != section.stored or zlib.crc32(data) != section.crc:
            raise FormatError(f"the samples are damaged (wrong checksum): {_DAMAGED}")
        content = inflated(data, section.size, "the samples are", "wrong size")
        found[SAMPLES] = sample_section.from_bytes(content)
    return found


def inflated(data: bytes, size: int, what: str, wrong_size: str) -> bytes:
    """The data unpacked to exactly `size` bytes, never more. Raises FormatError: "the data is" damaged, and why."""
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, size)
        ended = unpacker.eof or (not unpacker.decompress(unpacker.unconsumed_tail, 1) and unpacker.eof)
    except zlib.error as error:
        raise FormatError(f"{what} damaged ({error}): {_DAMAGED}") from None
    if len(found) != size or not ended:
        raise FormatError(f"{what} damaged ({wrong_size}): {_DAMAGED}")
    return found
