"""The end of a slab: recording threads go there in place of the kernel's exits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import UnsupportedError
from . import claim_registers, code, fragments, hazards, insert, registers, timing, writing
from .control import SCOREBOARDS, Control
from .fragments import Fragment
from .insert import New
from .instructions import BYTES, Function, Instruction
from .registers import DESCRIPTOR, State
from .renaming import Names

_END = "end"
"""Label of the end."""


def read_before(function: Function, at: int, state: State) -> dict[int, Control]:
    """ptxas counts no store right in front of an exit. With a scoreboard, the end of the slab can wait for it.

    The instructions of memory read their operands in order, so the last one counts for all.
    """
    number = at // BYTES - 1
    while number >= 0 and function.instructions[number].name not in hazards.CONTROL_FLOW:
        one = function.instructions[number]
        if one.name in code.LANDMARKS and any(register[0] == "R" for register in one.reads):
            now = one.control
            counted = now.reads is not None or now.writes is not None
            return {} if counted else {one.at: replace(now, reads=state.scoreboard)}
        number -= 1
    return {}


def leaves(function: Function, leaves: Instruction, state: State) -> Iterator[New]:
    """In front of an exit: recording threads that leave go to the end of the slab instead."""
    if leaves.conditional:
        # the others pass it by; these leave by an exit of their own, because their predicate may be overwritten
        guard = leaves.guard[2:] if leaves.guard.startswith("@!") else f"!{leaves.guard[1:]}"
        if leaves.guard.lstrip("@!").startswith("U"):
            raise UnsupportedError(f"{function.name} leaves by a uniform predicate at {leaves.at:#x}")
        code = Control(stall=5, waits=leaves.control.waits)
        yield writing.new(f"@{guard} BRA `()", code, to=insert.own(leaves.at), borrowed=guard.lstrip("!"))
    on = state.on
    if on is None:  # at an exit, no predicate has a value for those that leave
        on = 0
        yield writing.new(f"ISETP.NE.U32.AND P{on}, PT, R{state.address + 1}, RZ, PT", Control(stall=hazards.GUARD))
    yield writing.new(f"@P{on} BRA `()", Control(stall=5), to=_END)
    if leaves.conditional:
        yield writing.new("EXIT", Control(stall=5))


def end(end: Fragment, state: State) -> list[New]:
    """Behind the kernel: the end of the slab."""
    waits = Control(waits=frozenset(SCOREBOARDS))
    code = [writing.new("NOP", label=_END), writing.new("NOP", waits), *_closing(end, state, f"{_END} ")]
    return timing.tight([*code, writing.new("EXIT", Control(stall=5))])


def _closing(end: Fragment, state: State, prefix: str) -> list[New]:
    """The end of a slab. At an exit, only the state has a value."""

    def comes(name: str, number: int) -> list[New]:
        text = {
            "base lo": f"MOV R{number}, R{state.base}",
            "base hi": f"MOV R{number}, R{state.address + 1}",
            "count": f"SHF.R.U32.HI R{number}, RZ, {fragments.LOG2_RECORD:#x}, R{state.offset}",
            "clocks": f"MOV R{number}, R{state.clocks}",
        }[name]
        return [writing.new(text)]

    if len(uniform := sorted(end.used("UR"))) > 2 or end.used("UP"):
        raise UnsupportedError("ptxas put into the end of a slab what belongs to the warp")
    busy = state.registers
    numbers = claim_registers.blocks(end, [one for one in range(2, registers.NUMBERS) if one not in busy], {})
    names = Names(numbers, dict(zip(uniform, (DESCRIPTOR, DESCRIPTOR + 1), strict=False)), {})
    made, behind = fragments.spliced(
        end, (fragments.END, ()), names, fragments.every_board(), comes, lambda *_: [], prefix
    )
    if behind:
        raise UnsupportedError("ptxas put a part of the end of a slab elsewhere")
    return made
