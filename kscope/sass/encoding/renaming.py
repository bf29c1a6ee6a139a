"""Renames the registers of machine code. nvdisasm proves the result, see same()."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...errors import UnsupportedError
from ..cubin.instructions import Instruction
from .forms import Field

_RESULT, _A = 16, 24
_BITS, ZERO = {"R": 8, "UR": 6}, {"R": 255, "UR": 63}
"""Bits of a register's number, and the one that reads as zero."""
_FORM_AT = 9
_WITHOUT_A = ("MOV", "POPC", "FLO", "BREV", "MUFU", "I2F", "F2I", "UMOV", "UFLO", "UPOPC")
_IN_R64, _IN_UR32 = (("R",), 64), (("UR",), 32)
_OPERANDS = {
    1: ((("R",), 32), _IN_R64),
    **dict.fromkeys((2, 3, 4, 5), (_IN_R64,)),
    6: (_IN_UR32, _IN_R64),
    7: (_IN_R64, _IN_UR32),
}
"""Fields of b and c by the opcode's form; in forms 2 to 5, one of them is a constant."""
_OPERANDS_OF_SHUFFLES = _OPERANDS | {2: ((("R",), 32),)}
_GUARD, _MADE, _TESTED = 12, (81, 84), (87, 77, 68)
"""Fields of predicates: the guard, results, and operands in their order."""
_TESTED_BY_COMPARISONS = (87, 68)
_PREDICATE = re.compile(r"(?<![\w.])(U?P)(\d|T)(?!\w)")
_TOKEN = re.compile(r"(?<![\w.])(UR|R)(\d+|Z)(?!\d)")
_DESCRIPTOR = re.compile(r"desc\[")
_LOADS = ("LD", "LDG")
_MEMORY = ("LD", "LDG", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG")
_WIDE = ("IMAD.WIDE", "UIMAD.WIDE")


@dataclass(frozen=True)
class Names:
    """New numbers for registers.

    Attributes:
        registers: for R registers.
        uniform: for UR registers.
        predicates: for P registers.
        warp_predicates: for UP registers.
    """

    registers: Mapping[int, int]
    uniform: Mapping[int, int]
    predicates: Mapping[int, int]
    warp_predicates: Mapping[int, int] = field(default_factory=dict[int, int])

    def of(self, register: str) -> str:
        """The new name of a register, such as "R4" and "P0"."""
        kind, number = re.match(r"(\D+)(\d*)", register).groups()  # type: ignore[union-attr]  # every name fits
        tables = {"R": self.registers, "UR": self.uniform, "P": self.predicates, "UP": self.warp_predicates}
        table = tables.get(kind)
        return register if table is None or not number else f"{kind}{table.get(int(number), int(number))}"


def renamed(one: Instruction, names: Names) -> int:
    """Rename the registers of an instruction.

    The register of an operand is in one of four fields: of the result, and of the operands a, b and c. Three bits of
    the opcode select where b and c are. Predicates have fields for two results and three operands.

    Args:
        one: the instruction.
        names: the new numbers.

    Returns:
        Its 128 bits.

    Raises:
        UnsupportedError: an operand's field is not found.
    """
    word = one.word
    for kind, number, at in _operands(one):
        table = names.registers if kind == "R" else names.uniform
        word = Field(at, _BITS[kind]).put(word, _signed(table.get(number, number), _BITS[kind]))
    for kind, number, at in _predicates(one):
        table = names.predicates if kind == "P" else names.warp_predicates
        word = word & ~(7 << at) | table.get(number, number) << at
    return word


def renamed_operands(one: Instruction, names: Names, code: str = "") -> Instruction:
    """The reads and writes of an instruction after renaming. code: another opcode."""
    reads, writes = (frozenset(map(names.of, some)) for some in (one.reads, one.writes))
    operands = tuple(_text(operand, names) for operand in one.operands)
    return Instruction(one.at, renamed(one, names), _text(one.guard, names), code or one.code, operands, reads, writes)


def same(made: Instruction, one: Instruction, names: Names) -> bool:
    """True if nvdisasm reads the result of renamed() as the instruction with renamed registers and nothing else."""
    return (
        made.guard == _text(one.guard, names)
        and made.code == one.code
        and [_plain(operand) for operand in made.operands]
        == [_plain(_text(operand, names)) for operand in one.operands]
        and made.reads == frozenset(map(names.of, one.reads))
        and made.writes == frozenset(map(names.of, one.writes))
    )


def groups(instructions: tuple[Instruction, ...]) -> Iterator[tuple[int, int]]:
    """Registers that must stay consecutive: the first one's number and how many, for each operand with several."""
    for one in instructions:
        for position, operand in enumerate(one.operands):
            for kind, number, width in widths(one, position, operand):
                if kind == "R" and number != ZERO["R"] and width > 1:
                    yield number, width


def widths(one: Instruction, position: int, operand: str) -> Iterator[tuple[str, int, int]]:
    """Each register of an operand with the number of registers that it denotes."""
    data = {"64": 2, "128": 4}.get(next((part for part in one.code.split(".")[1:] if part in ("64", "128")), ""), 1)
    for match in _TOKEN.finditer(operand):
        kind, number = match[1], ZERO[match[1]] if match[2] == "Z" else int(match[2])
        if "[" in operand:
            yield kind, number, 2 if operand[match.end() :].startswith(".64") else 1
        elif one.name in ("LDG", "STG", "ATOMG", "LDC", "ULDC", "LD", "ST"):
            yield kind, number, data
        elif one.code.startswith(_WIDE):
            yield kind, number, 2 if position in (0, 3) else 1
        elif one.name == "CS2R":
            yield kind, number, 1 if ".32" in one.code else 2
        else:
            yield kind, number, 1


def _operands(one: Instruction) -> Iterator[tuple[str, int, int]]:
    """Each register that an instruction names: its file, its number, and the lowest bit of its field."""
    fields = list(_fields(one))
    for position, operand in enumerate(one.operands):
        if position > 1 or "[" in operand:  # the result is the first operand, or the second one after a predicate
            fields = [field for field in fields if field[1] != _RESULT]
        for match in _TOKEN.finditer(operand):
            kind, number = match[1], ZERO[match[1]] if match[2] == "Z" else int(match[2])
            if kind == "UR" and _DESCRIPTOR.match(operand):
                yield kind, number, _checked(one, kind, number, 32 if one.name in _LOADS else 64)
                continue
            while fields and (kind not in fields[0][0] or Field(fields[0][1], _BITS[kind]).get(one.word) != number):
                fields.pop(0)
            if not fields:
                raise UnsupportedError(f"no field of {one} holds {match[0]}")
            yield kind, number, fields.pop(0)[1]


def _predicates(one: Instruction) -> Iterator[tuple[str, int, int]]:
    """Each predicate that an instruction names: its file, its number, and the lowest bit of its field."""
    if one.guard and not one.guard.endswith("PT"):
        yield one.guard.lstrip("@!")[:-1], int(one.guard[-1]), _GUARD
    made = list(_MADE[: 1 if one.name in ("VOTE", "VOTEU") else 2])
    tested = list(_TESTED_BY_COMPARISONS if one.name in ("ISETP", "UISETP") else _TESTED)
    for position, operand in enumerate(one.operands):
        match = _PREDICATE.search(operand)
        if match is None:
            made = made if position == 0 else []  # results come first
            continue
        number = 7 if match[2] == "T" else int(match[2])
        fields = made if made and operand[0] != "!" else tested
        while fields and one.word >> fields[0] & 7 != number:
            fields.pop(0)
        if not fields:
            raise UnsupportedError(f"no field of {one} holds {match[0]}")
        yield match[1], number, fields.pop(0)


def _fields(one: Instruction) -> Iterator[tuple[tuple[str, ...], int]]:
    """The fields of an instruction in the order of its operands, each with the register files of its operands."""
    yield ("R", "UR"), _RESULT
    if one.name not in _WITHOUT_A:
        yield ("R", "UR"), _A
    if one.name in _MEMORY:
        yield ("R",), 32
    elif one.name == "SHFL":
        yield from ((("R",), at) for at in (32, 64))
    elif one.name.startswith("U"):
        yield from ((("UR",), at) for at in (32, 64))
    else:
        yield from (_OPERANDS_OF_SHUFFLES if one.name == "SHFL" else _OPERANDS).get(one.opcode >> _FORM_AT, ())


def _checked(one: Instruction, kind: str, number: int, at: int) -> int:
    if Field(at, _BITS[kind]).get(one.word) != number:
        raise UnsupportedError(f"no field of {one} holds {kind}{number}")
    return at


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> bits - 1 else number


def _text(operand: str, names: Names) -> str:
    operand = _TOKEN.sub(lambda match: match[0] if match[2] == "Z" else names.of(match[0]), operand)
    return _PREDICATE.sub(lambda match: match[0] if match[2] == "T" else names.of(match[0]), operand)


def _plain(operand: str) -> str:
    """An operand without the parts that depend on the address of the code."""
    return re.sub(r"\.reuse|`\(.*\)", "", operand)
