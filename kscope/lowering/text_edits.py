"""Replacements in a PTX text, and where its symbols go."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import UnsupportedError
from ..marks.grammar import PREFIX
from ..ptx import cfg

TARGET = re.compile(r"\.target\s+sm_(\d+)\w*(?:\s*,\s*\w+)*[^\S\n]*\n?")
_ADDRESS_SIZE = re.compile(r"\.address_size\s+\d+[^\S\n]*\n?")


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text with replacements (start, end, new) made; start == end inserts."""
    out, at = [], 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        out += [text[at:start], new]
        at = end
    return "".join([*out, text[at:]])


def end_of_head(text: str) -> int:
    """The offset where kscope's symbols go; nothing before it is ever replaced."""
    bare = cfg.bare(text)
    head = _ADDRESS_SIZE.search(bare) or TARGET.search(bare)
    return head.end() if head else 0


def check_all_read(text: str, functions: Iterable[cfg.Function]) -> None:
    """Raise UnsupportedError for a mark outside the statements of a function, which would stay in the text
    unrecorded.
    """
    read = {s.start for function in functions for s in function.statements if s.mark is not None}
    for found in re.finditer(rf"{PREFIX}[^\n]*", cfg.bare(text)):
        if found.start() not in read:
            line = text.count("\n", 0, found.start()) + 1
            raise UnsupportedError(
                f"line {line} of the PTX: the mark {found[0].strip()!r} is within a statement, or in no function, and "
                "cannot be lowered; put it between two statements of a kernel (or report it, if a compiler wrote it)"
            )
