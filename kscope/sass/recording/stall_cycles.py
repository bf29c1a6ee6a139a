"""Computes the least stall cycles between inserted instructions. hazards.py checks the result independently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..cubin.control_codes import Control, control, controlled
from ..cubin.insertion import New
from ..cubin.instructions import Instruction
from ..encoding import writing

LONGEST = 15
_COUNTED = 2
"""Cycles after which a scoreboard counts an instruction."""
_MOVES = frozenset({"BRA", "BSSY", "BSYNC", "EXIT", "WARPSYNC", "CALL", "RET"})
_MEMORY = frozenset({"LDG", "STG", "ATOMG", "REDG", "LD", "ST", "ATOM", "RED", "SHFL", "LDL", "STL", "CCTL", "MEMBAR"})
_COMPUTES = frozenset(
    {"CS2R", "FMNMX", "FADD", "FFMA", "FMUL", "IADD3", "IABS", "IMAD", "IMNMX", "ISETP", "LEA", "LOP3", "MOV", "PLOP3"}
    | {"PRMT", "SEL", "SHF", "SGXT", "VIADD", "VIADDMNMX", "VIMNMX"}
)
"""Instructions that read their operands soon; others, such as VOTE, are assumed to be as slow as memory accesses."""
_MULTIPLIERS = frozenset({"FADD", "FFMA", "FMUL", "IMAD", "VIADD"})
"""Instructions of another pipe; a result takes one more cycle from one pipe to the other."""
_GUARD, _UNIFORM, _UNIFORM_OF_MEMORY = 13, 6, 12
_ALU = 4
_SLOW = {"HFMA2": 6, "IMAD.WIDE": 5, "R2UR": 13, "VOTE": 13, "PRMT": 4}
"""Cycles from an instruction to the first that reads its result; one more if that one accesses memory."""
_CLOCK, _CLOCK_32, _CLOCK_OF_MEMORY = 6, {90: 4}, 8
"""The same of CS2R; a clock of 32 bits takes 8 cycles where it is not known better."""


def with_least_stalls(code: Sequence[New], arch: int) -> list[New]:
    """The same instructions with the fewest cycles between them that their results need on an architecture.

    The machine code of a fragment has the cycles of its placeholder accesses, which were removed, and code from text
    has no suitable ones. Instructions that only wait are dropped; the order stays.
    """
    line = Line(arch)
    for new in code:
        line.add(new)
    return line.finished()


class Line:
    """Instructions in a row with the times at which they are issued."""

    def __init__(self, arch: int) -> None:
        self.arch = arch
        self.made = list[New]()
        self.times = list[int]()
        self.results = dict[str, tuple[int, Instruction]]()
        self.counted = dict[int, int]()
        self.waits = frozenset[int]()

    def add(self, new: New) -> None:
        """Add the next instruction, as early as possible."""
        one, code = _about(new), control(new.word)
        if one.name == "NOP" and not new.label and not new.listed:
            self.waits |= code.waits
            return
        new = replace(new, word=controlled(new.word, replace(code, waits=code.waits | self.waits)))
        self.waits = frozenset()
        self.issue(new, self.earliest(new))

    def earliest(self, new: New) -> int:
        """The earliest time of an instruction after those before."""
        one, code = _about(new), control(new.word)
        at = self.times[-1] + least(self.made[-1]) if self.times else 0
        for board in code.waits:
            at = max(at, self.counted.get(board, -_COUNTED) + _COUNTED)
        for register in one.reads:
            if register in self.results:
                issued, producer = self.results[register]
                at = max(at, issued + _takes(producer, one, register, self.arch))
        if one.name in _MEMORY or code.writes is not None:  # whose result must not come before the one that it replaces
            at = max([at, *(self._there(register) for register in one.writes)])
        if new.label or one.name in _MOVES:
            at = max([at, *(self._there(register) for register in self.results)])
        return at

    def _there(self, register: str) -> int:
        if register not in self.results:
            return 0
        issued, producer = self.results[register]
        return issued + _takes(producer, None, register, self.arch)

    def issue(self, new: New, at: int) -> None:
        """Issue an instruction at a time."""
        one, code = _about(new), control(new.word)
        self.made.append(new)
        self.times.append(at)
        self.counted |= {board: at for board in (code.writes, code.reads) if board is not None}
        for register in one.writes:
            if code.writes is None and one.name not in _MEMORY:
                self.results[register] = at, one
            else:
                self.results.pop(register, None)

    def finished(self) -> list[New]:
        """Return all instructions; after the last one, every result is ready."""
        end = max([self.times[-1] + least(self.made[-1]), *map(self._there, self.results)]) if self.made else 0
        end = max([end, *(at + _COUNTED for at in self.counted.values())])  # what follows may wait for any of them
        found = list[New]()
        for new, at, then in zip(self.made, self.times, [*self.times[1:], *[end] * bool(self.made)], strict=True):
            stall = min(then - at, LONGEST)
            found.append(replace(new, word=controlled(new.word, replace(control(new.word), stall=stall))))
            found += nops(then - at - stall)
        return [*found, *([_nop(1, self.waits)] if self.waits else [])]


def _about(new: New) -> Instruction:
    assert new.seen is not None, "an instruction whose registers are not known"
    return new.seen


def nops(cycles: int) -> Iterator[New]:
    while cycles > 0:
        yield _nop(min(cycles, LONGEST))
        cycles -= LONGEST


def _nop(cycles: int, waits: frozenset[int] = frozenset()) -> New:
    return writing.new("NOP", Control(stall=cycles, waits=waits))  # the same on all architectures


def least(new: New) -> int:
    """Least cycles until any next instruction can be issued: ptxas's, if ptxas assembled it."""
    one = _about(new)
    return max(2 if one.code == "CS2R" or one.name == "STG" else 1, control(new.word).stall)


def clock_cycles(arch: int) -> int:
    """Cycles until a clock of 32 bits can be read by what computes."""
    return _CLOCK_32.get(arch, _CLOCK_OF_MEMORY)


def _takes(producer: Instruction, reader: Instruction | None, register: str, arch: int) -> int:
    """Cycles until a result can be read; without a reader, until any instruction can read it."""
    memory = reader is None or reader.name not in _COMPUTES
    if register.startswith(("P", "UP")):
        guard = reader is None or reader.guard.lstrip("@!") == register
        return _GUARD if memory or guard or producer.name == "VOTE" else _ALU
    if register.startswith("UR"):
        slow = _SLOW.get(producer.name, _UNIFORM)
        return max(slow, _UNIFORM_OF_MEMORY) if memory else slow
    if producer.name == "CS2R":
        soon = clock_cycles(arch) if ".32" in producer.code else _CLOCK
        return _CLOCK_OF_MEMORY if memory else soon
    name = "IMAD.WIDE" if producer.code.startswith("IMAD.WIDE") else producer.name
    elsewhere = reader is not None and (reader.name in _MULTIPLIERS) != (producer.name in _MULTIPLIERS)
    return _SLOW.get(name, _ALU) + (memory or elsewhere)
