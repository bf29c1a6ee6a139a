"""Locates selected lines in a source that a compiler receives: a text, while a selection names a file."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from kscope.instrument.selection.auto import Lines
from kscope.util.python_source import parsed

from .ranges import LineRange

_LINE = re.compile(r'^[ \t]*#[ \t]*(?:line[ \t]+)?(\d+)(?:[ \t]+"([^"\n]*)")?[^\n]*$', re.M)
_CODE = re.compile(r"\n|[;{}]")
"""Text without any of these is not specific enough to search for."""


def locate(source: str, lines: Iterable[Lines], names: Iterable[str]) -> list[LineRange]:
    """The selected lines that are in this source; `names` are its functions.

    The file of a selection may be, in this order:

    * the name of a function of the source: scale:4-6 counts from the text's first line
    * the name in a #line directive of the source
    * a file that contains this text or is a part of it, such as kernels.cu
    * a Python file with such a literal: the lines are those of the Python file
    """
    found = []
    for one in lines:
        place = _by_name(one, names) or _by_directive(one, source) or _by_text(one, source)
        if place is not None:
            found.append(LineRange(one, *place))
    return found


def _by_name(lines: Lines, names: Iterable[str]) -> tuple[int, int] | None:
    return (lines.first, lines.last) if any(map(lines.in_file, names)) else None


def _by_directive(lines: Lines, source: str) -> tuple[int, int] | None:
    """The lines that a #line directive assigns to that file."""
    directives = list(_LINE.finditer(source))
    file = ""
    for at, directive in enumerate(directives):
        file = directive[2] if directive[2] is not None else file
        begin = source.count("\n", 0, directive.end()) + 2
        end = source.count("\n", 0, directives[at + 1].start()) if at + 1 < len(directives) else source.count("\n") + 1
        first = lines.first - int(directive[1]) + begin
        last = lines.last - int(directive[1]) + begin
        if file and lines.in_file(file) and first <= end and last >= begin:
            return max(first, begin), min(last, end)
    return None


def _by_text(lines: Lines, source: str) -> tuple[int, int] | None:
    if not _CODE.search(source.strip()):
        return None
    for path in _paths(lines.file, _imported(), *sys.path[:1]):
        for first, text in _texts(path):
            place = _inside(lines, first, text, source)
            if place is not None:
                return place
    return None


def _inside(lines: Lines, first: int, text: str, source: str) -> tuple[int, int] | None:
    """The lines in the source, if it contains `text` or the reverse; `text` starts at line `first` of its file."""
    if lines.last < first or lines.first > first + text.count("\n"):
        return None
    if not _CODE.search(text.strip()):
        return None
    at = source.find(text.strip("\n"))
    if at >= 0:
        offset = 1 + source.count("\n", 0, at) - first - (len(text) - len(text.lstrip("\n")))
    else:
        at = text.find(source.strip("\n"))
        if at < 0:
            return None
        offset = 1 + (len(source) - len(source.lstrip("\n"))) - first - text.count("\n", 0, at)
    count = source.count("\n") + 1
    begin, end = lines.first + offset, lines.last + offset
    return (begin, end) if end >= 1 and begin <= count else None


def _imported() -> tuple[str, ...]:
    """Files of imported modules."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return tuple(file for file in files if isinstance(file, str))


@lru_cache(16)  # called for every source, and there may be thousands of modules
def _paths(file: str, modules: tuple[str, ...], *program: str) -> tuple[Path, ...]:
    """Candidate files: as typed, in the folders of the program and of imported modules, and the modules themselves."""
    typed = Path(file)
    if typed.is_absolute():
        return (typed,)
    matches = Lines("?", file, 1, 1).in_file
    folders = dict.fromkeys([*program, *map(os.path.dirname, modules)])
    return (typed, *(Path(path) for path in modules if matches(path)), *(Path(folder, typed) for folder in folders))


def _texts(path: Path) -> tuple[tuple[int, str], ...]:
    """The texts of a file with their first lines: the whole file, or a Python file's literals."""
    try:
        changed = path.stat().st_mtime_ns  # first: most candidates do not exist
        return _read(path.resolve(), changed)
    except (OSError, ValueError):  # missing, or not text
        return ()


@lru_cache(64)
def _read(path: Path, changed: int) -> tuple[tuple[int, str], ...]:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return ((1, text),)
    try:
        tree = parsed(text)
    except SyntaxError:
        return ()
    return tuple(_literals(tree, text.splitlines(keepends=True)))


def _literals(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Literals whose lines correspond to lines of the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.end_lineno is not None:
            raw = "".join(lines[node.lineno - 1 : node.end_lineno])
            if node.value in raw:
                yield node.lineno + raw.count("\n", 0, raw.find(node.value)), node.value
            elif node.value.count("\n") == node.end_lineno - node.lineno:
                yield node.lineno, node.value
