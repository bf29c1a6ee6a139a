"""The control code of an instruction: 21 bits for stall cycles and scoreboards."""

from __future__ import annotations

from dataclasses import dataclass

SCOREBOARDS = range(6)
_NONE, _LONG = 7, 12
_AT = 105
"""Lowest bit of the control code in the instruction's 128 bits."""
_MASK = (1 << 21) - 1


@dataclass(frozen=True)
class Control:
    """A control code.

    The assembler, not the hardware, keeps results and uses apart. An instruction of fixed latency is followed by at
    least `stall` cycles until the next one is issued. One of variable latency (memory, special registers) names one of
    six counters, the scoreboards: `writes` counts it until its result is ready, `reads` until its operands have been
    read. A later instruction waits until the scoreboards in `waits` are zero.

    Attributes:
        stall: cycles until the next instruction of the warp may be issued, 0 to 15.
        stay: the scheduler may continue with this warp; if not set, it prefers another one. No code has it with a
            stall of 12 cycles or more, and controlled() clears it there.
        writes: scoreboard that counts this instruction until it has written its result, or None.
        reads: scoreboard that counts it until it has read its operands, or None.
        waits: scoreboards that must be zero before it is issued.
        reuse: one bit for each operand whose register stays in the operand cache for the next instruction.
    """

    stall: int = 1
    stay: bool = True
    writes: int | None = None
    reads: int | None = None
    waits: frozenset[int] = frozenset()
    reuse: int = 0

    def __str__(self) -> str:
        waits = "".join(str(one) if one in self.waits else "-" for one in SCOREBOARDS)
        marks = ("-" if one is None else str(one) for one in (self.writes, self.reads))
        return f"B{waits} W{next(marks)} R{next(marks)} {'-' if self.stay else 'Y'} S{self.stall:02d}"


def control(word: int) -> Control:
    """The control code of an instruction of 128 bits."""
    code = word >> _AT
    writes, reads = code >> 5 & 7, code >> 8 & 7
    return Control(
        code & 15,
        bool(code >> 4 & 1),
        None if writes == _NONE else writes,
        None if reads == _NONE else reads,
        frozenset(one for one in SCOREBOARDS if code >> 11 + one & 1),
        code >> 17 & 15,
    )


def controlled(word: int, code: Control) -> int:
    """The instruction with another control code."""
    bits = (
        code.stall
        | (code.stay and code.stall < _LONG) << 4
        | (_NONE if code.writes is None else code.writes) << 5
        | (_NONE if code.reads is None else code.reads) << 8
        | sum(1 << one for one in code.waits) << 11
        | code.reuse << 17
    )
    return word & ~(_MASK << _AT) | bits << _AT


def without_control(word: int) -> int:
    """The instruction with all bits of its control code cleared."""
    return word & ~(_MASK << _AT)
