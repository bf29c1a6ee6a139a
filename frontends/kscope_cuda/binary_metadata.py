"""Reads module metadata from the notes in a binary, and rejects names that collide."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta
from kscope.errors import MissingError, UsageError
from kscope.machine_code.fatbin import device_code
from kscope.marks.names import format_name
from kscope.marks.strategies import Elected

from .binary_notes import EXPLICIT, KERNEL, SLOTS, Note, find

FRONTEND = "cuda"


def describe(data: bytes, source: str = "the module") -> tuple[ModuleMeta, ...]:
    """Metadata of the kernels in a cubin, fatbin, shared object, executable or PTX text.

    Args:
        data: the file's bytes.
        source: its name, for messages.

    Returns:
        One ModuleMeta per set of recording options; empty if the file was built without kscope.

    Raises:
        UsageError: two names have one hash, or one name has two value types; the message names both places.
        MissingError: the code is compressed, and its decompressor is not installed.
    """
    missing: list[MissingError] = []
    notes = [note for code in device_code(data, missing) for note in find(code)]
    if missing and not notes:
        raise missing[0]
    regions = tuple(_regions([note for note in notes if note.kind != KERNEL], source))
    kernels = sorted({_options(note): None for note in notes if note.kind == KERNEL}, key=lambda one: one[0])
    return tuple(
        ModuleMeta(FRONTEND, tuple(kernel for _, kernel in group), regions, *options)
        for options, group in groupby(kernels, key=lambda one: one[0])
    )


def describe_file(path: str | os.PathLike[str]) -> tuple[ModuleMeta, ...]:
    """describe() of a file. Also raises OSError."""
    return describe(Path(path).read_bytes(), os.fspath(path))


def _options(note: Note) -> tuple[tuple[str, str, str], KernelMeta]:
    return (note.clock, note.fill, note.strategy or Elected().spec), KernelMeta(
        name(note.text), note.id, note.log2_records
    )


def name(signature: str) -> str:
    """A kernel's name in its signature: without result and parameters, with template arguments.

    >>> name("void ns::softmax(T *, int) [with T = float; int N = 4]")
    'ns::softmax<T = float, int N = 4>'
    """
    declared, _, arguments = signature.partition(" [with ")
    found = re.match(r"(?:.*?[\s*&])?((?:[\w~]|::|\(anonymous namespace\)|<unnamed>)+)\(", declared)
    short = found[1] if found else declared
    return f"{short}<{arguments.removesuffix(']').replace('; ', ', ')}>" if arguments else short


def _regions(notes: Iterable[Note], source: str) -> Iterator[RegionMeta]:
    """Each name once. Makes the checks that the compiler, which sees one name at a time, cannot."""
    first: dict[str, Note] = {}
    hashes: dict[int, Note] = {}
    slots: dict[int, Note] = {}
    types: dict[str, Note] = {}
    for note in sorted(notes, key=lambda note: (note.file, note.line)):
        first.setdefault(note.text, note)
        _require_unique(hashes, note.id, note, source, "have the same 28-bit hash")
        if note.kind == EXPLICIT:
            _require_unique(slots, note.id % SLOTS, note, source, "share one register of KSCOPE_ENTER")
        if note.type is not None:
            other = types.setdefault(note.text, note)
            if other.type != note.type:
                raise UsageError(
                    f"{source}: {format_name(note.text)} has a value of type {other.type} ({_at(other)}) and of type "
                    f"{note.type} ({_at(note)}); give it one type everywhere, or use two names"
                )
    for text, note in sorted(first.items()):
        yield RegionMeta(text, types[text].type if text in types else None, _at(note))


def _require_unique(seen: dict[int, Note], key: int, note: Note, source: str, fault: str) -> None:
    other = seen.setdefault(key, note)
    if other.text != note.text:
        raise UsageError(
            f"{source}: the names {format_name(other.text)} ({_at(other)}) and {format_name(note.text)} ({_at(note)}) "
            f"{fault}: rename one of them"
        )


def _at(note: Note) -> str:
    return f"{note.file}:{note.line}"
