"""Operands of barrier instructions: barrier, parity, executing lanes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import UnsupportedError
from ..cubin.instructions import Instruction
from .basic_blocks import Machine

_ADDRESS = re.compile(r"\[(?:(R\d+|RZ)(?:\+(?=U|-?0))?)?(?:(UR\d+|URZ)(?:\+(?=-?0))?)?(-?0x[0-9a-f]+)?\]")
_COPIES = re.compile(r"\[UR(\d+)\]")
_PARITY_BIT = re.compile(
    r"U?SHF\.L\.U32 \S+, \S+, 0x1f, U?RZ|(?:IMAD|USHF)\.SHL\.U32 \S+, \S+, 0x80000000, RZ"
    r"|IMAD(?:\.U32)? \S+, \S+, -?0x80000000, RZ"
)
_COPY = re.compile(r"(?:IMAD(?:\.MOV)?\.U32 \S+, RZ, RZ|MOV \S+), (U?R\d+)")


@dataclass(frozen=True)
class Source:
    """Where the value of a record of a pipeline comes from.

    Attributes:
        at: the instruction with the operands.
        register, uniform: their sum, and `offset`, is the barrier's address; empty if there is none.
        offset: see there.
        parity: the register whose highest bit is the parity; empty if there is none.
        masked: the parity's register may have other bits, too.
        fixed: added to it.
        guard: the predicate of the lanes that execute the operation; empty if all of them do.
        voted: one lane of the warp with the predicate is enough.
    """

    at: int
    register: str = ""
    uniform: str = ""
    offset: int = 0
    parity: str = ""
    masked: bool = False
    fixed: int = 0
    guard: str = ""
    voted: bool = False

    @property
    def read(self) -> frozenset[str]:
        """The registers of the value, but for the predicate."""
        return frozenset(one for one in (self.register, self.uniform, self.parity) if one)

    @property
    def constant(self) -> bool:
        """True if the value is the same in every record."""
        return not self.read


def address(one: Instruction) -> tuple[str, str, int]:
    """The registers and the offset of the barrier in an instruction.

    Raises:
        UnsupportedError: the operand has an unknown form.
    """
    if one.name == "UTMALDG":
        found = _COPIES.fullmatch(one.operands[0])
        if found is None:
            raise UnsupportedError(f"{one.code} at {one.at:#x} has an unknown operand")
        return "", f"UR{int(found[1]) + 1}", 0
    named = next((operand for operand in one.operands if operand.startswith("[")), "")
    match = _ADDRESS.fullmatch(named)
    if match is None or not (match[1] or match[2]):
        raise UnsupportedError(f"{one.code} at {one.at:#x} has an unknown operand: {named}")
    register, uniform = (name if name and not name.endswith("Z") else "" for name in match.group(1, 2))
    return register, uniform, int(match[3] or "0", 16)


def parity(one: Instruction, code: Machine) -> tuple[str, bool]:
    """The register with the parity that an instruction waits for, and True if it may have other bits than the highest.

    Args:
        one: the instruction.
        code: the function.
    """
    register = one.operands[-1].removesuffix(".reuse")
    if not re.fullmatch(r"R\d+", register):
        raise UnsupportedError(f"{one.code} at {one.at:#x} waits for an unknown parity: {register}")
    (block,) = [n for n, some in enumerate(code.blocks) if some[0].at <= one.at <= some[-1].at]
    return register, not _is_bit(register, code, block, one.at, set())


def _is_bit(register: str, code: Machine, block: int, at: int, seen: set[tuple[str, int]]) -> bool:
    """True if only the highest bit of a register can be set before an instruction.

    Args:
        register: the register.
        code: the function.
        block: the instruction's block.
        at: its address.
        seen: registers and blocks that were examined already, at the end of the block.
    """
    made = next((one for one in reversed(code.blocks[block]) if one.at < at and register in one.writes), None)
    if made is not None:
        text = f"{made.code} {', '.join(made.operands)}".replace(".reuse", "")
        copied = _COPY.fullmatch(text)
        if made.conditional or not copied:
            return not made.conditional and _PARITY_BIT.fullmatch(text) is not None
        return _is_bit(copied[1], code, block, made.at, seen)
    ahead = [one for one in code.flow.predecessors[block] if (register, one) not in seen]
    seen.update((register, one) for one in ahead)
    last = code.function.size
    return block != 0 and all(_is_bit(register, code, one, last, seen) for one in ahead)
