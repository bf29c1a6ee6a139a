"""An instruction of 16 bytes, and a function of a cubin as a sequence of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from .control_codes import Control, control

BYTES = 16
BRANCHES = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "EXIT", "KILL", "BREAK", "RTT"})
"""Opcodes after which the next instruction need not follow."""
ALWAYS = ("@PT", "@UPT")
_PREDICATE = re.compile(r"!?U?P\d")
_OF_THE_WARP = frozenset({"BRA.DIV", "BRA.CONV"})
"""Branches that also depend on which lanes of the warp are together."""


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        at: its address in the function's section.
        word: its 128 bits.
        guard: its predicate as nvdisasm prints it, such as "@!P0"; empty without one.
        code: opcode and modifiers, such as "STG.E.128".
        operands: as nvdisasm prints them.
        reads, writes: registers, such as "R4", "P0", "UR4" and "UP1"; a conditional instruction may leave what it
            writes.
        target: address that its operand names, for branches and BSSY; None without one.
    """

    at: int
    word: int
    guard: str
    code: str
    operands: tuple[str, ...]
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    target: int | None = None

    @cached_property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.code.partition(".")[0]

    @cached_property
    def control(self) -> Control:
        return control(self.word)

    @property
    def opcode(self) -> int:
        """The lowest 12 bits, which distinguish instructions with different kinds of operands."""
        return self.word & 0xFFF

    @property
    def conditional(self) -> bool:
        """True if only some threads execute it."""
        return bool(self.guard) and self.guard not in ALWAYS

    @cached_property
    def second_condition(self) -> str:
        """What a branch or exit depends on beside its guard, such as "!UP2"; empty for nothing. It is taken where both
        hold, so the guard may also hold where it is not taken.
        """
        first = self.operands[0] if self.name in BRANCHES and self.operands else ""
        return first if self.code in _OF_THE_WARP or _PREDICATE.fullmatch(first) else ""

    def __str__(self) -> str:
        text = " ".join(filter(None, (self.guard, self.code, ", ".join(self.operands))))
        return f"{self.at:04x} {self.control} {text}"


@dataclass(frozen=True)
class Function:
    """A section of code: one kernel, and the functions that the assembler put after it.

    Attributes:
        name: the kernel's name.
        section: name of its section.
        instructions: all of them, with the padding at the end.
        unknown: addresses in operands that are no branch targets, in words; code with these cannot be moved.
        arch: compute capability, such as 90.
    """

    name: str
    section: str
    instructions: tuple[Instruction, ...]
    unknown: tuple[str, ...] = ()
    arch: int = 90

    @property
    def targets(self) -> frozenset[int]:
        """Addresses of branch targets."""
        return frozenset(one.target for one in self.instructions if one.target is not None)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.instructions) * BYTES


def encoded(words: tuple[int, ...]) -> bytes:
    """The code of instructions of 128 bits."""
    return b"".join(word.to_bytes(BYTES, "little") for word in words)


def words(code: bytes) -> tuple[int, ...]:
    """The instructions of a section of code, 128 bits each."""
    return tuple(int.from_bytes(code[at : at + BYTES], "little") for at in range(0, len(code), BYTES))
