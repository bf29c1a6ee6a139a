"""Checks that KSCOPE_ENTER and KSCOPE_EXIT pair on every path in code that nvcc compiled. A cubin has no marks, so the
check uses the PTX in a library, where the statements that save a start and store a record represent the marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from kscope.capture.model import Problem
from kscope.lowering import pairing
from kscope.machine_code.fatbin import device_code, ptx_texts
from kscope.marks.grammar import Act, Mark
from kscope.marks.names import format_name
from kscope.ptx import cfg, inline

from .binary_notes import EXPLICIT, SLOTS, Note, find


def problems(data: bytes, source: str) -> tuple[Problem, ...]:
    """One for each name that does not pair in a kernel of the file; none if the file contains no PTX."""
    notes = {note.id % SLOTS: note for code in device_code(data, []) for note in find(code) if note.kind == EXPLICIT}
    if not notes:
        return ()
    return tuple(dict.fromkeys(one for text in ptx_texts(data) for one in _problems(text, notes, source)))


def _problems(text: str, notes: Mapping[int, Note], source: str) -> list[Problem]:
    text = _marked(text, notes)
    places = {note.text: f"{note.file}:{note.line}" for note in notes.values()}
    found = []
    for function in cfg.functions(text):
        for fault in pairing.check(function, cfg.blocks(function)).faults if any(function.marks) else ():
            region = f"{format_name(fault.name)} ({places[fault.name]})"
            remedy = "its durations are invalid; enter and exit it once on every path"
            found.append(
                Problem("pairing", f"{source}: kernel {function.name}: region {region} {fault.text}: {remedy}")
            )
    return found


def _marked(text: str, notes: Mapping[int, Note]) -> str:
    """The text with a mark after each statement that represents one."""

    def marked(act: Act, found: re.Match[str]) -> str:
        note = notes.get(int(found[1]))
        return found[0] if note is None else f"{found[0]}\n{Mark(act, note.text, how='call').comment()}\n"

    return inline.LEFT.sub(partial(marked, "exit"), inline.ENTERED.sub(partial(marked, "enter"), text))
