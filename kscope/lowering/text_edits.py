"""Replacements in a PTX text, and where its symbols go."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def behind_head(text: str) -> int:
    """The offset where kscope's symbols go; nothing before it is ever replaced."""
    bare = cfg.bare(text)
    head = _ADDRESS_SIZE.search(bare) or TARGET.search(bare)
    return head.end() if head else 0
