"""Warps that also run the plain kernel's code: an instruction that is not modeled writes a digest of its operands.

So a wrong register changes what the kernel stores. Each thread has its own shared and local memory, because no test
passes values between threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from kscope.sass.cubin.instructions import BYTES, Instruction

from .machine import Lane, Warp, size_of
from .ops import UNMODELED
from .values import M32, Registers, following

_IMMEDIATE = 32
"""The lowest bit of an instruction's constant."""
_PART = re.compile(r"(UR\d+|URZ|R\d+|RZ|-?0x[0-9a-f]+)(?:\.X(\d+))?")


@dataclass(eq=False)
class KernelWarp(Warp):
    """A warp of a whole kernel. private: words of shared and local memory, by lane, space and address."""

    private: dict[tuple[int, str, int], int] = field(default_factory=dict)

    def _step(self, one: Instruction, here: Sequence[Lane]) -> None:
        if one.name not in UNMODELED or one.name in ("LDS", "STS"):
            super()._step(one, here)
            return
        active = [lane for lane in here if lane.registers.holds(one.guard)]
        for lane in here:
            lane.at += BYTES
        self._unknown(one, active)

    def _unknown(self, one: Instruction, active: Sequence[Lane]) -> None:
        for lane in active:
            if one.name == "HFMA2" and one.operands[1:3] == ("-RZ", "RZ"):
                lane.registers.put(one.operands[0], one.word >> _IMMEDIATE & M32)
                continue
            read = {name: lane.registers.get(name) for name in sorted(one.reads)}
            for name in sorted(one.writes):  # an accumulator's element does not depend on other elements
                values = [item for item in read.items() if item[0] == name or item[0] not in one.writes]
                lane.registers.put(name, crc32(f"{one.code} {values} {name}".encode()))

    def _shfl(self, one: Instruction, active: Sequence[Lane]) -> None:
        if one.code == "SHFL.IDX":
            super()._shfl(one, active)
        else:
            self._unknown(one, active)

    def _vote(self, one: Instruction, active: Sequence[Lane]) -> None:
        if one.code == "VOTE.ANY":
            super()._vote(one, active)
        else:
            self._unknown(one, active)

    def _voteu(self, one: Instruction, active: Sequence[Lane]) -> None:
        if len(one.operands) == 2:  # true if any lane's predicate is
            found = any(lane.registers.value(one.operands[1]) for lane in active)
            active[0].registers.put(one.operands[0], found)
        else:
            super()._voteu(one, active)

    def _load(self, one: Instruction, active: Iterable[Lane]) -> None:
        for lane in active:
            at = _place(one.operands[1], lane.registers)
            for n in range(max(1, size_of(one) // 4)):
                key = lane.thread.lane, one.name[-1], at + 4 * n
                lane.registers.put(following(one.operands[0], n), self.private.get(key, crc32(str(key).encode())))

    def _store(self, one: Instruction, active: Iterable[Lane]) -> None:
        for lane in active:
            at = _place(one.operands[0], lane.registers)
            for n in range(max(1, size_of(one) // 4)):
                value = lane.registers.get(following(one.operands[1], n))
                self.private[lane.thread.lane, one.name[-1], at + 4 * n] = value

    _lds = _ldl = _load
    _sts = _stl = _store


def _place(text: str, registers: Registers) -> int:
    """An address of 32 bits, such as [R4.X4+UR6+0x10]."""
    return sum(registers.value(one[1]) * int(one[2] or 1) for one in _PART.finditer(text)) & M32
