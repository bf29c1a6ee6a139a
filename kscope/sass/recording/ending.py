"""The end of a slab, to which recording threads jump instead of the kernel's exits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ...capture import layout, wire
from ...errors import UnsupportedError
from ..checks import hazards
from ..cubin import insert
from ..cubin.control_codes import SCOREBOARDS, Control
from ..cubin.insertion import New
from ..cubin.instructions import BYTES, Function, Instruction
from ..placing import basic_blocks
from . import fragments, registers, stall_cycles
from .lane_state import State

_END = "end"
"""Label of the end."""
_READERS = basic_blocks.LANDMARKS | {"LDL", "STL"}
"""Memory instructions that read registers, also those of local memory, which are no landmarks."""


def read_before(function: Function, at: int, state: State, replaced: Collection[int]) -> dict[int, Control]:
    """Add scoreboards to stores before exits, so that the end of the slab can wait for them; ptxas counts none there.

    Memory instructions read their operands in order, so the last one counts for all; `replaced` ones no longer access
    memory.
    """
    number = at // BYTES - 1
    while number >= 0 and function.instructions[number].name not in hazards.CONTROL_FLOW:
        one = function.instructions[number]
        if one.at not in replaced and one.name in _READERS and any(register[0] == "R" for register in one.reads):
            now = one.control
            counted = now.reads is not None or now.writes is not None
            return {} if counted else {one.at: replace(now, reads=state.scoreboard)}
        number -= 1
    return {}


def jump_to_end(function: Function, leaves: Instruction, state: State) -> Iterator[New]:
    """At an exit: jump to the end of the slab in threads that record."""
    if leaves.second_condition:
        raise UnsupportedError(f"{function.name} leaves by two predicates at {leaves.at:#x}")
    if leaves.conditional:
        # the others continue; these leave by a separate exit, because their predicate may be overwritten
        guard = leaves.guard[2:] if leaves.guard.startswith("@!") else f"!{leaves.guard[1:]}"
        if leaves.guard.lstrip("@!").startswith("U"):
            raise UnsupportedError(f"{function.name} leaves by a uniform predicate at {leaves.at:#x}")
        code = Control(stall=5, waits=leaves.control.waits)
        yield state.new(f"@{guard} BRA `()", code, to=insert.label_of(leaves.at), borrowed=guard.lstrip("!"))
    on = state.on
    if on is None:  # at an exit, no predicate has a value for those that leave
        on = 0
        yield state.new(f"ISETP.NE.U32.AND P{on}, PT, R{state.lane}, RZ, PT", Control(stall=hazards.GUARD))
    yield state.new(f"@P{on} BRA `()", Control(stall=5), to=_END)
    if leaves.conditional:
        yield state.new("EXIT", Control(stall=5))


def end(state: State, last: str) -> list[New]:
    """The end of the slab, after the kernel's code, see ptx.finish(). At an exit, only the state has a value.

    Only lanes with a slab come here. The anchor is not 2^32 cycles wide. last: the offset of the last place in the
    slab's ring.
    """
    clock, time, again, some, row, limit, seal = _free(state, 4, 2, 1, 1, 4, 1, 1)
    own, clocks = clock + 3, f"R{seal}" if state.uniform else state.clocks
    step, most = wire.WIDTH_CYCLES.bit_length() - 1, (1 << wire.WIDTH_BITS) - 2
    texts = (
        f"CS2R R{clock}, SR_CLOCKLO",
        f"CS2R R{time}, SR_GLOBALTIMERLO",
        f"CS2R.32 R{again}, SR_CLOCKLO",
        *_overflowed(state, last, row, limit),
        *((f"MOV R{seal}, {state.clocks}",) if state.uniform else ()),
        f"LOP3.LUT R{some}, {clocks}, 0xff, RZ, 0xc0, !PT",
        f"SHF.R.U32.HI R{own}, RZ, 0x10, {clocks}",
        f"IMAD.IADD R{again}, R{again}, 0x1, -R{clock}",
        f"SHF.R.U32.HI R{again}, RZ, {step:#x}, R{again}",
        f"VIMNMX.U32 R{again}, R{again}, {most:#x}, PT",
        f"VIADD R{again}, R{again}, 0x1",
        f"VIMNMX.U32 R{again}, R{again}, R{some}, !PT",
        f"PRMT R{some}, R{time + 1}, 0x4040, R{clock + 1}",
        f"PRMT R{again}, R{again}, 0x7650, {clocks}",
        f"IMAD.IADD R{some}, R{some}, 0x1, -R{own}",
        f"SHF.R.W.U32 R{clock + 1}, R{time}, {wire.TIME_SHIFT:#x}, R{time + 1}",
        f"SHF.R.U32.HI R{clock + 2}, RZ, {fragments.LOG2_RECORD:#x}, R{state.offset}",
        *(() if state.uniform else (f"MOV R{state.address}, {state.base}",)),
        f"PRMT R{own}, R{again}, 0x5410, R{some}",
        f"STG.E.128 {state.place(wire.HEAD_BYTES // 2, 'RZ')}, R{clock}",
        "EXIT",
    )
    waits = Control(waits=frozenset(SCOREBOARDS))  # read by the kernel's last stores
    first, *rest = texts
    return stall_cycles.with_least_stalls(
        [state.new(first, waits, label=_END), *(_new(state, one) for one in rest)], state.arch
    )


def highest(code: Sequence[New]) -> int:
    """The highest number of a register that instructions write."""
    names = {name for one in code if one.seen is not None for name in one.seen.writes}
    return max(int(name[1:]) for name in names if name[0] == "R")


def _overflowed(state: State, last: str, row: int, limit: int) -> tuple[str, ...]:
    """In a kernel with rows: one more row if the ring overflowed, with the number of records beyond the rows."""
    if state.extra is None:
        return ()
    in_register = last[0] in "RU"
    over = next(f"P{number}" for number in range(2) if number != state.on)
    # more rows than places: the offset is at least two beyond the last place's
    least = f"{2 * layout.RECORD_BYTES + (0 if in_register else int(last, 16)):#x}"
    return (
        *((f"MOV R{limit}, {last}", f"IADD3 R{limit}, R{limit}, {least}, RZ") if in_register else ()),
        f"MOV R{row}, RZ",
        f"MOV R{row + 1}, {wire.EXTRA_ID:#x}",
        f"MOV R{row + 2}, RZ",
        f"MOV R{row + 3}, R{state.extra}",
        f"ISETP.GE.U32.AND {over}, PT, R{state.offset}, {f'R{limit}' if in_register else least}, PT",
        f"@{over} LOP3.LUT R{state.address}, R{state.offset}, {last}, RZ, 0xc0, !PT",
        *(() if state.uniform else (f"@{over} IADD3 R{state.address}, R{state.address}, {state.base}, RZ",)),
        f"@{over} STG.E.128 {state.place(wire.HEAD_BYTES)}, R{row}",
        f"@{over} IADD3 R{state.offset}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ",
    )


def _new(state: State, text: str) -> New:
    """An instruction of the end; the address of the row is read when the head's is computed."""
    waits = state.extra is not None and text.startswith(f"MOV R{state.address},")
    board = frozenset({state.scoreboard}) if waits else frozenset[int]()
    code = Control(waits=board, reads=state.scoreboard if "STG" in text and text[0] == "@" else None)
    return state.new(text, code)


def _free(state: State, *rows: int) -> Iterator[int]:
    """The first registers of consecutive groups of these lengths that hold no state."""
    busy = {0, 1, *state.registers}
    for many in rows:
        first = next(n for n in range(0, registers.NUMBERS, many) if not busy & set(range(n, n + many)))
        busy |= set(range(first, first + many))
        yield first
