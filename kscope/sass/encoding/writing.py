"""Makes instructions to insert from text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..cubin.control_codes import Control
from ..cubin.insertion import New
from ..cubin.instructions import Instruction
from . import forms, renaming

_TEXT = re.compile(r"^(@!?U?P\w+)?\s*([A-Z][\w.]*)\s*(.*)$")
_ADD, _LEAST = re.compile(r"^(@!?P\w+ )?VIADD (.*)$"), re.compile(r"^(@!?P\w+ )?VIMNMX(?=\.)")
_NEW_NAMES = 90
"""The first architecture with these names."""
_STORES = frozenset({"STG", "REDG"})
_NOTHING = frozenset({"NOP", "BRA", "EXIT", "BSSY", "BSYNC"})
_CARRIES = frozenset({"ISETP", "PLOP3", "IADD3", "LEA", "LOP3"})
"""Instructions whose second operand may be a predicate that they write."""
_PREDICATE = re.compile(r"(?<![\w.])U?P\d\b")
_ALL_PREDICATES = 7


def new(
    text: str,
    code: Control | None = None,
    to: int | str | None = None,
    label: str = "",
    borrowed: str = "",
    arch: int = 90,
) -> New:
    """Make an instruction to insert.

    Args:
        text: the instruction in the spelling of sm_90, see forms.word().
        code: its control code.
        to: target of a branch, see New.
        label: its label.
        borrowed: a register of the function that it may read.
        arch: the architecture that it is for.
    """
    text = spelled(text, arch)
    seen = parsed(text)
    lent = frozenset({borrowed} & (seen.reads | seen.writes))
    return New(forms.word(text, code, arch), to, label, borrowed=lent, seen=seen)


def spelled(text: str, arch: int) -> str:
    """The spelling of an sm_90 instruction on another architecture."""
    if arch >= _NEW_NAMES:
        return text
    text = _ADD.sub(r"\1IADD3 \2, RZ", text)
    return _LEAST.sub(r"\1IMNMX", text)


def parsed(text: str) -> Instruction:
    """The reads and writes of an instruction, from its text."""
    match = _TEXT.match(text.strip())
    assert match is not None
    guard, code, rest = match[1] or "", match[2], match[3]
    operands = tuple(part.strip() for part in rest.split(",")) if rest else ()
    one = Instruction(0, 0, guard, code, operands)
    reads = {guard.lstrip("@!")} if guard else set[str]()
    writes = set[str]()
    carries = one.name in _CARRIES and any(re.fullmatch(r"P[\dT]", second) for second in operands[1:2])
    results = 0 if one.name in _STORES | _NOTHING else 2 if carries else 1
    for position, operand in enumerate(operands):
        (writes if position < results else reads).update(_names(one, position, operand))
    return Instruction(0, 0, guard, code, operands, frozenset(reads), frozenset(writes))


def _names(one: Instruction, position: int, operand: str) -> Iterator[str]:
    for kind, number, width in renaming.widths(one, position, operand):
        if number != renaming.ZERO[kind]:
            yield from (f"{kind}{number + n}" for n in range(width))
    yield from _PREDICATE.findall(operand)
    if one.name == "P2R" and operand == "PR":
        yield from (f"P{number}" for number in range(_ALL_PREDICATES) if int(one.operands[-1], 0) >> number & 1)
