"""Maps statements of a module's PTX to lines of the user's source."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .pairing import Fault

_ASSEMBLY = re.compile(r"// begin inline asm\n.*?// end inline asm", re.S)
_LOC = re.compile(r"^[ \t]*\.loc[ \t][^\n]*\n", re.M)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', re.M)


def without_assembly_lines(text: str) -> str:
    """The text without line information inside of inline assembly.

    LLVM counts the lines of an inline assembly from that of its statement on: the load in a `tl.load` in line 53 would
    be in line 57, and with it what follows up to the next line information.
    """
    return _ASSEMBLY.sub(lambda found: _LOC.sub("", found[0]), text)


def files(text: str) -> dict[int, str]:
    """The paths of a module's files, by their numbers."""
    return {int(number): _path(first, second) for number, first, second in _FILE.findall(text)}


def where(source: tuple[int, int], files: Mapping[int, str]) -> str | None:
    """file:line of a statement's (file, line); None if its line is unknown."""
    return f"{files.get(source[0], '?')}:{source[1]}" if source[1] else None


def of_fault(fault: Fault, files: Mapping[int, str], places: Mapping[str, str]) -> str:
    """ " (file:line)" of a fault, where the frontend's places of regions come first; empty if it is unknown."""
    found = places.get(fault.name) or where(fault.source, files)
    return f" ({found})" if found else ""


def _path(first: str, second: str) -> str:
    """A file's path in PTX: one path, or a folder and a name."""
    return f"{first}/{second}" if second and not second.startswith("/") else second or first
