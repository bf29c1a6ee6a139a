"""KSCOPE_ENTER and KSCOPE_EXIT in code that nvcc has compiled: do they pair on every path?

A cubin does not say where they were. The PTX does that a library may keep beside it, for GPUs to come: there the
statements that remember a start and store a record stand for the marks, and are followed as marks are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from kscope.capture.model import Problem
from kscope.lowering import cfg, pairing
from kscope.marks.grammar import Act, Mark, format_name
from kscope.ptx import inline

from .containers import device_code, ptx_texts
from .notes import EXPLICIT, SLOTS, Note, find


def problems(data: bytes, what: str) -> tuple[Problem, ...]:
    """One for each name that does not pair in a kernel of this library; none where no text says it."""
    notes = {note.id % SLOTS: note for code in device_code(data, []) for note in find(code) if note.sort == EXPLICIT}
    if not notes:
        return ()
    return tuple(dict.fromkeys(one for text in ptx_texts(data) for one in _problems(text, notes, what)))


def _problems(text: str, notes: Mapping[int, Note], what: str) -> list[Problem]:
    text = _marked(text, notes)
    places = {note.text: f"{note.file}:{note.line}" for note in notes.values()}
    found = []
    for function in cfg.functions(text):
        if not any(True for _ in function.marks):
            continue
        for fault in pairing.check(function, cfg.blocks(function)).faults:
            said = (
                f"{what}: kernel {function.name}: region {format_name(fault.name)} ({places[fault.name]}) {fault.text}"
            )
            cure = "its durations mean nothing; enter it and exit it on the same path, once each"
            found.append(Problem("pairing", f"{said}: {cure}"))
    return found


def _marked(text: str, notes: Mapping[int, Note]) -> str:
    """The text with a mark behind each statement that stands for one."""

    def marked(act: Act, found: re.Match[str]) -> str:
        note = notes.get(int(found[1]))
        return found[0] if note is None else f"{found[0]}\n{Mark(act, note.text, how='call').comment()}\n"

    return inline.LEFT.sub(partial(marked, "exit"), inline.ENTERED.sub(partial(marked, "enter"), text))
