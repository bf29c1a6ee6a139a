"""Source locations of marks: a comment line above each mark in CuTe's PTX, written by the tracer and read back here.

//at 37 /home/me/gemm.py gemm        line, file and the kernel's Python name
"""

from __future__ import annotations

import re
from itertools import dropwhile, pairwise

from kscope.lowering.lowered import SourceInfo
from kscope.marks.grammar import parse, quote, unquote
from kscope.util import thread_stacks

_AT = re.compile(r"^[ \t]*//at (\d+) (\S+) (\S+)[ \t]*\n", re.M)
ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_TRACER = "kernel_wrapper"
"""CuTe's function that calls a kernel's function to trace it."""


def source_comment() -> str:
    """The comment for a mark at the current line outside kscope."""
    ours = ("kscope", __package__)
    frames = list(
        dropwhile(lambda one: one.f_globals.get("__name__", "").partition(".")[0] in ours, thread_stacks.own())
    )
    if not frames:
        return "//"
    traced = (inner.f_code.co_name for inner, outer in pairwise(frames) if outer.f_code.co_name == _TRACER)
    return f"//at {frames[0].f_lineno} {quote(frames[0].f_code.co_filename)} {quote(next(traced, '-'))}"


def source_info(text: str, taken_apart: str = "") -> SourceInfo:
    """The kernel names and region locations in the comments of a PTX text. taken_apart: of SourceInfo."""
    kernels: dict[str, str] = {}
    places: dict[str, str] = {}
    entry, at = "", None
    for line in text.splitlines():
        if (found := ENTRY.search(line)) is not None:
            entry, at = found[1], None
        elif (found := _AT.match(f"{line}\n")) is not None:
            at = found
        elif at is not None:
            mark = parse(line)
            if mark is not None:
                places.setdefault(mark.name, place_of(at[0].rstrip("\n")))
                if at[3] != "-":
                    kernels.setdefault(entry, unquote(at[3]))
            at = None
    return SourceInfo(kernels, places, taken_apart)


def place_of(comment: str) -> str:
    """file:line in a comment; "?" if it has none."""
    found = _AT.match(f"{comment}\n")
    return f"{unquote(found[2])}:{found[1]}" if found else "?"


def without_source_comments(text: str) -> str:
    """The text without these comments."""
    return _AT.sub("", text)
