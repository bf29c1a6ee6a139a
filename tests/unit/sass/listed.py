"""Functions from a list of instructions, for rules that are about their order alone."""

from __future__ import annotations

from dataclasses import replace

from kscope.sass.cubin import control_codes
from kscope.sass.cubin.control_codes import Control
from kscope.sass.cubin.instructions import BYTES, Function, Instruction
from kscope.sass.encoding import writing

Line = str | tuple[str, Control]


def listed(*lines: Line, **targets: int) -> Function:
    """A function of these instructions.

    Args:
        lines: texts, with control codes where they matter; "BRA `(over)" branches to what `over` says.
        targets: the numbers of instructions.
    """
    return Function("listed", ".text.listed", tuple(_one(n, line, targets) for n, line in enumerate(lines)))


def _one(number: int, line: Line, targets: dict[str, int]) -> Instruction:
    text, code = (line, Control()) if isinstance(line, str) else line
    name = next((name for name in targets if f"`({name})" in text), None)
    target = None if name is None else targets[name] * BYTES
    return replace(writing.parsed(text), at=number * BYTES, word=control_codes.controlled(0, code), target=target)


def inserted(function: Function, *own: int) -> frozenset[int]:
    """The addresses of all instructions but those with these numbers."""
    return frozenset(one.at for number, one in enumerate(function.instructions) if number not in own)
