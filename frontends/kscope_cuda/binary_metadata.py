"""From the notes in a file to what its modules would say of themselves, and what is wrong with their names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta
from kscope.errors import MissingError, UsageError
from kscope.marks.grammar import format_name

from .containers import device_code
from .notes import EXPLICIT, KERNEL, SLOTS, Note, find

FRONTEND = "cuda"


def describe(data: bytes, what: str = "the module") -> tuple[ModuleMeta, ...]:
    """What the bytes of a cubin, fatbin, shared object, executable or PTX text say of their kernels, one
    ModuleMeta for each set of options in it; empty where there is nothing of kscope.

    Raises UsageError for two names with one hash, or one name with two types of value, naming both places;
    MissingError where the bytes are packed and what unpacks them is not installed.
    """
    missing: list[MissingError] = []
    notes = [note for code in device_code(data, missing) for note in find(code)]
    if missing and not notes:
        raise missing[0]
    regions = tuple(_regions([note for note in notes if note.sort != KERNEL], what))
    kernels = sorted({_options(note): None for note in notes if note.sort == KERNEL}, key=lambda one: one[0])
    return tuple(
        ModuleMeta(FRONTEND, tuple(kernel for _, kernel in group), regions, *options)
        for options, group in groupby(kernels, key=lambda one: one[0])
    )


def describe_file(path: str | os.PathLike[str]) -> tuple[ModuleMeta, ...]:
    """describe() of a file. Raises OSError as well."""
    return describe(Path(path).read_bytes(), os.fspath(path))


def _options(note: Note) -> tuple[tuple[str, str, str], KernelMeta]:
    return (note.clock, note.fill, note.strategy or "warp"), KernelMeta(name(note.text), note.id, note.log2_records)


def name(spelled: str) -> str:
    """A kernel's name from how the compiler spells it: without result and parameters, with template arguments.

    >>> name("void ns::softmax(T *, int) [with T = float; int N = 4]")
    'ns::softmax<T = float, int N = 4>'
    """
    declared, _, arguments = spelled.partition(" [with ")
    found = re.match(r"(?:.*?[\s*&])?((?:[\w~]|::|\(anonymous namespace\)|<unnamed>)+)\(", declared)
    short = found[1] if found else declared
    return f"{short}<{arguments.removesuffix(']').replace('; ', ', ')}>" if arguments else short


def _regions(notes: Iterable[Note], what: str) -> Iterator[RegionMeta]:
    """Each name once; the checks that the compiler cannot make, as it sees one name at a time."""
    first: dict[str, Note] = {}
    hashes: dict[int, Note] = {}
    slots: dict[int, Note] = {}
    types: dict[str, Note] = {}
    for note in sorted(notes, key=lambda note: (note.file, note.line)):
        first.setdefault(note.text, note)
        _differ(hashes, note.id, note, what, "have the same 28-bit hash")
        if note.sort == EXPLICIT:
            _differ(slots, note.id % SLOTS, note, what, "share one register of KSCOPE_ENTER")
        if note.type is not None:
            other = types.setdefault(note.text, note)
            if other.type != note.type:
                raise UsageError(
                    f"{what}: {format_name(note.text)} has a value of type {other.type} ({_at(other)}) and of type "
                    f"{note.type} ({_at(note)}); give it one type everywhere, or use two names"
                )
    for text, note in sorted(first.items()):
        yield RegionMeta(text, types[text].type if text in types else None, _at(note))


def _differ(seen: dict[int, Note], key: int, note: Note, what: str, fault: str) -> None:
    other = seen.setdefault(key, note)
    if other.text != note.text:
        raise UsageError(
            f"{what}: the names {format_name(other.text)} ({_at(other)}) and {format_name(note.text)} ({_at(note)}) "
            f"{fault}: rename one of them"
        )


def _at(note: Note) -> str:
    return f"{note.file}:{note.line}"
