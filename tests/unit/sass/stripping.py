"""Machine code without what was inserted into it."""

from __future__ import annotations

import re
from functools import cache

from kscope.sass.cubin import reading
from kscope.sass.cubin.control_codes import control, without_control
from kscope.sass.cubin.instructions import Function, Instruction

_LINE = re.compile(r'//## File "([^"]*)", line (\d+)')
_AT = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/")


@cache
def _text(data: bytes) -> str:
    """Code and lines: each call of nvdisasm takes half a second."""
    text = reading.disassembly(data, "-c", "-hex", "-g")
    assert text is not None
    return text


def printed(data: bytes, name: str) -> Function:
    """A function of a cubin as nvdisasm prints it, without its registers: quick."""
    text = _text(data)
    (found,) = [one for one in reading.parse(text) if one.name == name]
    return found


def stripped(function: Function, inserted: frozenset[int]) -> list[tuple[object, ...]]:
    """Its instructions but those at the inserted addresses, as what does not depend on where they are.

    Targets are numbers of instructions; the operand cache is left out, because what is inserted ends it.
    """
    kept = [one for one in function.instructions if one.at not in inserted]
    numbers = {one.at: number for number, one in enumerate(kept)}
    return [_told(one, _number(one, kept, numbers)) for one in kept]


def _number(one: Instruction, kept: list[Instruction], numbers: dict[int, int]) -> int | None:
    """A branch to something that was inserted leads to the next instruction that was not."""
    if one.target is None:
        return None
    return next((numbers[other.at] for other in kept if other.at >= one.target), len(kept))


def _told(one: Instruction, target: int | None) -> tuple[object, ...]:
    code = control(one.word)
    operands = tuple(re.sub(r"\.reuse|`\(.*\)", "", operand) for operand in one.operands)
    word = without_control(one.word) if target is None else None
    return one.guard, one.code, operands, word, target, code.stall, code.stay, code.writes, code.reads, code.waits


def lines(data: bytes) -> dict[int, tuple[str, str]]:
    """File and line of each instruction of a cubin of one kernel."""
    text, found, here = _text(data), dict[int, tuple[str, str]](), ("", "")
    for line in text.splitlines():
        if match := _LINE.search(line):
            here = (match[1], match[2])
        elif match := _AT.match(line):
            found[int(match[1], 16)] = here
    return found
