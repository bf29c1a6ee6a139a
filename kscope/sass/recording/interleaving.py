"""Distributes inserted instructions among the kernel's, so that kernel instructions fill the time which inserted ones
must wait. A record's store must come eight cycles after the clock read at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..cubin.control_codes import control, controlled
from ..cubin.insertion import New
from ..cubin.instructions import Instruction
from . import stall_cycles


def spread(
    code: Sequence[New],
    ahead: Sequence[Instruction],
    arch: int,
    begin: int = 0,
    bounds: Sequence[tuple[int, int]] | None = None,
) -> list[list[New]]:
    """Place instructions in their order.

    Args:
        code: the instructions.
        ahead: the function's instructions that they may follow.
        arch: the architecture, such as 90.
        begin: cycles that must pass before the first one.
        bounds: for each instruction, the least and the most kernel instructions before it; None for any.

    Returns:
        The code before each of `ahead`, and finally the code after all of them. Where these take too few cycles, the
        inserted instructions have the rest.
    """
    groups: list[list[New]] = [[] for _ in range(len(ahead) + 1)]
    line, now, place = stall_cycles.Line(arch), begin and -begin, 0
    for number, new in enumerate(code):
        at = max(line.earliest(new), 0)
        least, most = (0, len(ahead)) if bounds is None else bounds[number]
        while (now < at and place < min(most, len(ahead))) or place < least:
            now += max(1, ahead[place].control.stall)
            place += 1
        if now < at:
            _wait(groups[place], at - now)
            now = at
        line.issue(new, now)
        groups[place].append(_least(new))
        now += stall_cycles.least(new)
    return groups


def _least(new: New) -> New:
    return replace(new, word=controlled(new.word, replace(control(new.word), stall=stall_cycles.least(new))))


def _wait(group: list[New], cycles: int) -> None:
    """Add cycles to the last instruction of a group."""
    if group:
        code = control(group[-1].word)
        more = min(cycles, stall_cycles.LONGEST - code.stall)
        group[-1] = replace(group[-1], word=controlled(group[-1].word, replace(code, stall=code.stall + more)))
        cycles -= more
    group.extend(stall_cycles.nops(cycles))
