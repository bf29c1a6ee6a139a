"""Plain machine code with other registers: a random permutation that keeps pairs and rows of four together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

from kscope.errors import UnsupportedError
from kscope.machine_code import elf
from kscope.sass.cubin import reading
from kscope.sass.cubin.instructions import Function, Instruction, encoded
from kscope.sass.encoding import renaming
from kscope.sass.encoding.renaming import Names

_ROW, _KEPT = 4, 4
"""Registers that stay in a row; R0 to R3 stay, because R1 is the stack's."""
_REGISTER = re.compile(r"(?<![\w.])(U?R)(\d+)")
_SPAN = ("HGMMA", "WARPGROUP", "BMOV", "R2P", "P2R")
"""Instructions with rows of more registers, or that name predicates by a mask."""


def permutation(function: Function, dice: Random) -> Names | None:
    """Other names for what a function uses; None if it has rows of more than four registers."""
    if any(one.name in _SPAN for one in function.instructions):
        return None
    used = {name for one in function.instructions for name in one.reads | one.writes}
    registers = _numbers(used, "R")
    rows = [range(at, at + _ROW) for at in range(_KEPT, max(registers, default=0) + 2 - _ROW, _ROW)]
    whole = _whole(function.instructions)
    table = dict[int, int]()
    for row, to in zip(rows, dice.sample(rows, len(rows)), strict=True):
        table |= _within(row, to, whole, dice)
    predicates = dict(enumerate(dice.sample(range(7), 7)))
    return Names(table, {}, predicates)


def _within(row: range, to: range, whole: set[range], dice: Random) -> dict[int, int]:
    """A row of four at another place; its halves, and the registers of these, may change places."""
    places = list(to)
    if row not in whole:
        if dice.random() < 0.5:
            places = places[2:] + places[:2]
        for half in (0, 2):
            if range(row[half], row[half] + 2) not in whole and dice.random() < 0.5:
                places[half : half + 2] = places[half + 1], places[half]
    return dict(zip(row, places, strict=True))


def _whole(instructions: Iterable[Instruction]) -> set[range]:
    """Pairs and rows of four of which an instruction uses several registers by one name."""
    found = set[range]()
    for one in instructions:
        named = {int(match[2]) for text in one.operands for match in _REGISTER.finditer(text) if match[1] == "R"}
        for number in _numbers(one.reads | one.writes, "R") - named:
            first = max((name for name in named if name < number), default=number)
            wide = 2 if number // 2 == first // 2 else _ROW
            found.add(range(number // wide * wide, number // wide * wide + wide))
            found |= {range(number // _ROW * _ROW, number // _ROW * _ROW + 2)} if wide == _ROW else set()
            found |= {range(number // _ROW * _ROW + 2, number // _ROW * _ROW + 4)} if wide == _ROW else set()
    return found


def _numbers(names: Iterable[str], kind: str) -> set[int]:
    return {int(name[len(kind) :]) for name in names if re.fullmatch(rf"{kind}\d+", name)}


def code(data: bytes, name: str, dice: Random) -> tuple[bytes, bytes] | None:
    """A kernel's code, and the same with other registers, as nvdisasm reads it; None where that is not known."""
    file = elf.read(data)
    (function,) = (one for one in reading.functions(data) if one.name == name)
    names = permutation(function, dice)
    if names is None:
        return None
    try:
        made = encoded(tuple(renaming.renamed(one, names) for one in function.instructions))
    except UnsupportedError:
        return None
    section = file.find(function.section)
    assert section is not None
    (after,) = (one for one in reading.functions(elf.write(file, {function.section: made})) if one.name == name)
    pairs = zip(function.instructions, after.instructions, strict=True)
    return (section.content, made) if all(renaming.same(new, one, names) for one, new in pairs) else None


def exchanged(data: bytes, old: bytes, new: bytes) -> bytes:
    """A cubin with other code in place of a kernel's."""
    file = elf.read(data)
    (section,) = (one for one in file.sections if one.content == old)
    return elf.write(file, {section.name: new})
