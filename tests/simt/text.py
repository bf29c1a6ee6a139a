"""Reduces compiler output to the PTX that ptxvm's parser accepts."""

from __future__ import annotations

import re

from ptxvm.parser import parse_module
from ptxvm.syntax import Module

_BOUNDS = re.compile(r"\.(?:maxntid|reqntid|minnctapersm|maxnreg)[^\n]*\n")
_META = re.compile(r"^\s*(?:\.visible|\.weak)?\s*\.(?:global|const)[^;]*kscope_meta[^;]*;", re.M)
_NOTE = re.compile(r"\.pragma[^;]*;")
_SHARED = re.compile(r"^[ \t]+\.shared [^;]*;", re.M)


def parse(text: str) -> Module:
    """The module of a text: without debug sections, launch bounds and kscope's description, and with the variables that
    functions declare in shared memory as the module's."""
    text = re.split(r"(?m)^\s*\.section", text)[0]
    text = _NOTE.sub("", _META.sub("", _BOUNDS.sub("\n", text)))
    inside = [found.strip() for found in _SHARED.findall(text)]
    head, line, rest = re.split(r"(\.address_size[^\n]*\n)", _SHARED.sub("", text), maxsplit=1)
    return parse_module("\n".join([head, line, *inside, rest]))
