"""Where a mark stands in the source: a comment line before it, which becomes a `.loc` while marks are lowered.

CuTe's PTX names no source lines unless a user asks for them, and lowering says with each region where it stands.

    //at 37 /home/me/gemm.py        as it travels through the compiler, one line above the mark
    .loc 1 37 0                     for kscope.plan, and gone again afterwards

What lives here: these three spellings. What does not: marks (kscope/marks.py).
"""

from __future__ import annotations

import inspect
import re

from kscope.marks import quote, unquote

_AT = re.compile(r"^[ \t]*//at (\d+) (\S+)[ \t]*\n", re.M)
_LOC = re.compile(r"^[ \t]*\.loc\b", re.M)
_OURS = re.compile(r'^\.file \d+ "[^"\n]*" // kscope\n|^\.loc \d+ \d+ 0 // kscope\n', re.M)
_ADDRESS_SIZE = re.compile(r"^\s*\.address_size\s+64[^\n]*\n", re.M)


def comment() -> str:
    """The line of the code outside of kscope that is running now, as the line to put above its mark."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("kscope", __package__):
        frame = frame.f_back
    return f"//at {frame.f_lineno} {quote(frame.f_code.co_filename)}" if frame is not None else "//"


def told(text: str) -> str:
    """The module's text with places as plan.lower() reads them. A text that has line information keeps its own."""
    if _LOC.search(text):
        return _AT.sub("", text)
    files: dict[str, int] = {}
    lines = _AT.sub(lambda at: f".loc {files.setdefault(at[2], len(files) + 1)} {at[1]} 0 // kscope\n", text)
    head = _ADDRESS_SIZE.search(lines)
    at = head.end() if head else 0
    named = "".join(f'.file {number} "{_path(token)}" // kscope\n' for token, number in files.items())
    return lines[:at] + named + lines[at:]


def untold(text: str) -> str:
    """Inverse of told(), of a lowered text."""
    return _OURS.sub("", text)


def _path(token: str) -> str:
    return unquote(token).replace('"', "'").replace("\n", " ")
