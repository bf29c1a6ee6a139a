"""What the tracer knows of a mark and CuTe's PTX does not say: a comment line above it.

    //at 37 /home/me/gemm.py gemm        line, file, and what the user called the kernel

CuTe names no source lines in PTX unless a user asks for them, and calls a kernel by its arguments too, over hundreds
of letters. What lives here: this line, and reading it back. What does not: marks (kscope/marks.py).
"""

from __future__ import annotations

import inspect
import re

from kscope.lowering.plan import Told
from kscope.marks.grammar import parse, quote, unquote

_AT = re.compile(r"^[ \t]*//at (\d+) (\S+) (\S+)[ \t]*\n", re.M)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_TRACER = "kernel_wrapper"
"""CuTe's function that calls a kernel's to trace it."""


def comment() -> str:
    """The line for the mark that is placed now by the code outside of kscope."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("kscope", __package__):
        frame = frame.f_back
    if frame is None:
        return "//"
    line, file, kernel = frame.f_lineno, frame.f_code.co_filename, "-"
    while frame.f_back is not None:
        if frame.f_back.f_code.co_name == _TRACER:
            kernel = frame.f_code.co_name
            break
        frame = frame.f_back
    return f"//at {line} {quote(file)} {quote(kernel)}"


def told(text: str) -> Told:
    """What the lines of a module's text say."""
    kernels: dict[str, str] = {}
    places: dict[str, str] = {}
    entry, at = "", None
    for line in text.splitlines():
        if (found := _ENTRY.search(line)) is not None:
            entry, at = found[1], None
        elif (found := _AT.match(f"{line}\n")) is not None:
            at = found
        elif at is not None:
            mark = parse(line)
            if mark is not None:
                places.setdefault(mark.name, f"{unquote(at[2])}:{at[1]}")
                if at[3] != "-":
                    kernels.setdefault(entry, unquote(at[3]))
            at = None
    return Told(kernels, places)


def untold(text: str) -> str:
    """The text without these lines."""
    return _AT.sub("", text)
