"""Machine code as text (`nvdisasm -c`, `cuobjdump -sass`): instructions, and those between the two clock reads of a
region.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..capture.model import RowLayout
from ..capture.wire import CLOCK_WORDS

_FUNCTION = re.compile(r"^\s*(?:Function : (?P<dump>\S+)|\.section\s+\.text\.(?P<disasm>[^,\s]+)\s*,)")
_LABEL = re.compile(r"^\s*(?P<label>\.L_[\w.]+):")
_INSTRUCTION = re.compile(
    r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<guard>@!?U?P\w+\s+)?(?P<code>[A-Z][\w.]*)\s*(?P<rest>[^;]*);"
)
_TARGET = re.compile(r"`\(\s*(?P<label>[^)\s]+)\s*\)|(?P<at>0x[0-9a-f]+)")
_REGISTER = re.compile(r"^U?R([0-9]{1,5})(?:\.reuse)?$")
_MOVES = ("MOV", "IMAD.MOV.U32", "IMAD.MOV", "UMOV", "IMAD.U32", "MOV.SPILL", "R2UR")
_BRANCHES = ("BRA", "BRX", "JMP", "JMX", "CALL", "RET", "EXIT", "BRXU", "BREAK", "KILL", "BPT")
_IDLE = ("NOP", "MOV", "IMAD.MOV.U32", "UMOV", "CS2R", "CS2R.32", "S2UR", "S2R")
"""Moves and readings of special registers, such as the clock: no work."""
_NUMBER = re.compile(r"-?0x[0-9a-f]+")
_OR = "0xfc"
"""LOP3's table of `a | b`."""
_FAR = 4096
"""Number of instructions searched backward for a register's value."""


@dataclass(frozen=True)
class Instruction:
    """One instruction: address in bytes, opcode with modifiers, operands, and whether it has a predicate."""

    at: int
    code: str
    operands: tuple[str, ...]
    guarded: bool

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.code.partition(".")[0]


@dataclass(frozen=True)
class Function:
    """A kernel's code in order of address, without padding.

    Attributes:
        name: its name.
        instructions: its instructions.
        targets: addresses of branch targets.
        jumps: target by address of the branch, where the branch names it.
    """

    name: str
    instructions: tuple[Instruction, ...]
    targets: frozenset[int]
    jumps: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """One place of a region in the code.

    Attributes:
        region: its name.
        begin, end: addresses of its clock reads.
        between: number of instructions between them.
        straight: no branch and no branch target among them, so each execution runs exactly these.
    """

    region: str
    begin: int
    end: int
    between: int
    straight: bool


@dataclass(frozen=True)
class Sites:
    """Regions of a function, in order of address.

    Attributes:
        sites: the places of its regions.
        unresolved: regions whose clock reads could not be traced.
        stores: addresses of the stores of records.
    """

    sites: tuple[Site, ...]
    unresolved: tuple[str, ...]
    stores: frozenset[int] = frozenset()


def is_empty(codes: Iterable[str]) -> bool:
    """True if a region with these opcodes between its clock reads, those of nested regions included, has no work."""
    return all(code in _IDLE for code in codes)


def functions(text: str) -> tuple[Function, ...]:
    """The functions of a disassembly; none for other text."""
    found: list[Function] = []
    name, code, labels, targets = "", list[Instruction](), dict[str, int](), list[tuple[int, str]]()
    waiting: list[str] = []

    def close() -> None:
        if name and code:
            jumps = {
                at: labels[one] if one in labels else int(one, 16)
                for at, one in targets
                if one in labels or one[:2] == "0x"
            }
            found.append(Function(name, _without_padding(code), frozenset(jumps.values()), jumps))

    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            close()
            name, code, labels, targets, waiting = match["dump"] or match["disasm"], [], {}, [], []
        elif match := _LABEL.match(line):
            waiting.append(match["label"])
        elif match := _INSTRUCTION.search(line):
            at = int(match["at"], 16)
            labels.update(dict.fromkeys(waiting, at))
            waiting.clear()
            operands = tuple(part.strip() for part in match["rest"].split(",")) if match["rest"].strip() else ()
            code.append(Instruction(at, match["code"], operands, match["guard"] is not None))
            if match["code"].partition(".")[0] in (*_BRANCHES, "BSSY", "BSYNC") and (
                to := _TARGET.search(match["rest"])
            ):
                targets.append((at, to["label"] or to["at"]))
    close()
    return tuple(found)


def sites(function: Function, regions: Mapping[int, str], layouts: Iterable[RowLayout] = ()) -> Sites:
    """The regions of a function.

    A region's end is found by its store: sixteen bytes whose second word is the region's id, a constant; its first and
    third word are the registers of the two clock reads:

        CS2R.32 R4, SR_CLOCKLO        <- begin
        ...                           <- counted
        CS2R.32 R6, SR_CLOCKLO        <- end
        MOV R5, 0xde2adb61            id of "load", anywhere
        STG.E.128 [R8.64], R4         start, id, end, value

    A row with three clocks has them in its first, third and fourth word; its id names a layout of several regions. In a
    loop around one region (ptx/loop_records.py) the id is set before the loop, R5 = R7 | 0xde2adb61 with R7 = 0. A
    reading is copied by a shift by R7, or by a select with the predicate that the lane records.

    Args:
        function: the function.
        regions: names by id word (layout.record_id) of spans.
        layouts: of the rows with three clocks that its module may write.
    """
    code, layouts = function.instructions, tuple(layouts)
    # by id, the region of each record, and the words in which its clocks are
    rows: dict[int, tuple[tuple[str, int, int], ...]] = {number: ((name, 0, 2),) for number, name in regions.items()}
    rows |= {
        about.row_id: tuple(
            (regions[number], CLOCK_WORDS[start], CLOCK_WORDS[end])
            for number, start, end in about.records
            if number in regions
        )
        for about in layouts
        if not about.values
    }
    short = {about.row_id for about in layouts if about.values}  # their records have stores, too
    found, unresolved, stores = list[Site](), list[str](), set[int]()
    jumps = sorted(function.targets)
    for index, one in enumerate(code):
        if one.name != "STG" or ".128" not in one.code or not one.operands:
            continue
        if not (register := _REGISTER.match(one.operands[-1])):
            continue
        quad = int(register[1])
        number = _constant(code, index, f"R{quad + 1}")
        if next(_writers(code, index, f"R{quad + 1}"), None) is None:
            number = _id_behind(code, index, quad + 1, {*rows, *short})
        parts = rows.get(number, ()) if number is not None else ()
        stores |= {one.at} if parts or number in short else set()
        for region, *words in parts:
            begin, end = (_clock(code, index, f"R{quad + word}") for word in words)
            if begin is None or end is None or begin >= end:
                unresolved.append(region)
                continue
            inside = code[begin + 1 : end]
            branches = any(step.name in _BRANCHES for step in inside)
            entered = any(code[begin].at < jump <= code[end].at for jump in jumps)
            found.append(Site(region, code[begin].at, code[end].at, len(inside), not branches and not entered))
    ordered = tuple(sorted(found, key=lambda site: site.begin))
    return Sites(ordered, tuple(unresolved), frozenset(stores))


def _without_padding(code: list[Instruction]) -> tuple[Instruction, ...]:
    """The code without the trailing branch to itself and NOPs."""
    end = len(code)
    while end and code[end - 1].name == "NOP":
        end -= 1
    if end and code[end - 1].name == "BRA" and not code[end - 1].guarded and end > 1:
        end -= 1
    return tuple(code[:end])


def _writers(code: tuple[Instruction, ...], index: int, register: str) -> Iterator[int]:
    """Indices of the instructions before `index` that write the register, nearest first."""
    kind, number = register.rstrip("0123456789"), int(register.lstrip("UR"))
    for at in range(index - 1, max(-1, index - _FAR), -1):
        one = code[at]
        if not one.operands or one.name in ("STG", "STS", "ST", "RED", "REDG", *_BRANCHES):
            continue
        match = _REGISTER.match(one.operands[0])
        if match is None or one.operands[0].startswith("U") != (kind == "UR"):
            continue
        if int(match[1]) <= number < int(match[1]) + _width(one.code):
            yield at


def _width(code: str) -> int:
    """Registers that an instruction writes, at most four."""
    if ".128" in code:
        return 4
    wide = ".64" in code or ".WIDE" in code or (code.startswith("CS2R") and ".32" not in code)
    return 2 if wide else 1


def _clock(code: tuple[Instruction, ...], index: int, register: str, depth: int = 4) -> int | None:
    """Index of the clock read whose low word is in a register at `index`, traced through moves."""
    for at in _writers(code, index, register):
        one = code[at]
        if "SR_CLOCKLO" in one.operands:
            return at
        if one.code in _MOVES and depth and _REGISTER.match(one.operands[-1]):
            return _clock(code, at, one.operands[-1].removesuffix(".reuse"), depth - 1)
        if one.code == "SHF.L.U32" and depth and _REGISTER.match("".join(one.operands[1:2])):
            return _clock(code, at, one.operands[1].removesuffix(".reuse"), depth - 1)
        if one.code == "SEL" and depth and (taken := _taken(one.operands)):
            return _clock(code, at, taken, depth - 1)
        return None
    return None


def _taken(operands: tuple[str, ...]) -> str | None:
    """The register that a select between it and its own destination reads, if there is exactly one."""
    into, *sources = (one.removesuffix(".reuse") for one in operands[:3])
    others = [one for one in sources if one != into and _REGISTER.match(one)]
    return others[0] if len(others) == 1 else None


def _constant(code: tuple[Instruction, ...], index: int, register: str, depth: int = 4) -> int | None:
    """The constant in a register at `index`, or None."""
    for at in _writers(code, index, register):
        one = code[at]
        last = one.operands[-1]
        if one.code in _MOVES and _NUMBER.fullmatch(last):
            return int(last, 16) & 0xFFFFFFFF
        if one.name == "LOP3" and _OR in one.operands:
            return next((int(word, 16) & 0xFFFFFFFF for word in one.operands[1:3] if _NUMBER.fullmatch(word)), None)
        if one.name == "HFMA2" and one.operands[1:3] == ("-RZ", "RZ"):
            return _halves(one.operands[3:])
        if one.code in _MOVES and depth and _REGISTER.match(last):
            return _constant(code, at, last.removesuffix(".reuse"), depth - 1)
        return None
    return None


def _id_behind(code: tuple[Instruction, ...], index: int, register: int, ids: Collection[int]) -> int | None:
    """The only id that instructions behind `index` write to a register: the claim of a kernel recorded in its machine
    code writes ids, and may be behind the kernel's code.
    """
    moves = (one for one in code[index:] if one.code in _MOVES and one.operands[0] == f"R{register}")
    numbers = {int(one.operands[-1], 16) & 0xFFFFFFFF for one in moves if _NUMBER.fullmatch(one.operands[-1])}
    found = numbers & set(ids)
    return found.pop() if len(found) == 1 else None


def _halves(operands: tuple[str, ...]) -> int | None:
    """Two fp16 constants as one word: how ptxas loads some integers."""
    try:
        high, low = (int(np.array(float(one), np.float16).view(np.uint16)) for one in operands)
    except ValueError:
        return None
    return high << 16 | low
