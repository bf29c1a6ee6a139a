"""Records of operations on barriers: any lane may execute one, and the record has the barrier and the number of lanes.

operand    [first: | one: | each:] ADDRESS [| PARITY]
ADDRESS    the instruction's operand in brackets: [generic:] register or symbol [+ offset]
"""

from __future__ import annotations

import re

from ..marks import operations
from .kernel import Kernel, Slot
from .record import clock

_ADDRESS = re.compile(r"(generic:)?([%\w$.]+)(?:\+(-?\w+))?")
NO_ADDRESS = "0"
"""The operand of a commit, which has no barrier."""
_LANES, _PARITY = operations.LANES_SHIFT, operations.PARITY_SHIFT
_KEPT = operations.ADDRESS_MASK | operations.BLOCK_MASK
WIDE = "wide:"
"""Prefix of the register of a 64-bit address."""
FIRST, ONE, EACH = "first:", "one:", "each:"
"""Prefixes of an operand: lane 0 alone executes it; one lane does; lanes may have different addresses, and one lane
records for each.
"""


def declared(slot: Slot) -> str:
    """Declare ks_t<i> for a slot of waits, at the top of the entry: the lane waits for the barrier in ks_v<i>."""
    return (
        f"\t.reg .pred ks_t{slot.index}; setp.ne.u64 ks_t{slot.index}, ks_ctl, ks_ctl; mov.b32 ks_v{slot.index}, 0;\n"
    )


def point(kernel: Kernel, slot: Slot, operand: str, when: str | None, barrier: bool = True) -> str:
    """Before an operation: its barrier, the number of lanes that execute it, and a clock; the first lane records.

    Args:
        kernel: the kernel.
        slot: the registers.
        operand: of the mark.
        when: the predicate of the instruction.
        barrier: the operand is a barrier; else a number, and lanes are not counted.
    """
    value, held = f"ks_v{slot.index}", f"ks_w{slot.index}"
    how, operand = executing_lanes(operand)
    what = _barrier(operand, value) if barrier else f"mov.b32 {value}, {operand};"
    read = f"\t{clock(kernel, f'ks_s{slot.index}')} mov.b64 ks_e{slot.index}, ks_s{slot.index};\n"
    if how == FIRST and when is None:  # a commit that the warp executes as one
        return f"\tmov.u32 {value}, {operand};\n{read}"
    if how in (FIRST, ONE) and when is not None:
        return f"\t{what} {_copied(held, when)}\n{read}"
    guard = f"@{when} " if when is not None else ""
    lanes = f" {guard}match.any.sync.b32 ks_k, {value}, ks_k;" if barrier and how == EACH else ""
    if barrier:
        lanes += (
            " popc.b32 ks_x, ks_k; sub.u32 ks_x, ks_x, 1; and.b32 ks_x, ks_x, 31;"
            f" mad.lo.u32 {value}, ks_x, {1 << _LANES}, {value};"
        )
    ballot = f" vote.sync.ballot.b32 ks_k, {when}, ks_k;" if when is not None else ""
    first = f"setp.eq.and.u32 {held}, ks_x, 0, {when};" if when is not None else f"setp.eq.u32 {held}, ks_x, 0;"
    return (
        f"\t{{ .reg .b32 ks_k, ks_x; activemask.b32 ks_k;{ballot}\n"
        f"\t{what}{lanes}\n"
        f"\tmov.u32 ks_x, %lanemask_lt; and.b32 ks_x, ks_k, ks_x; {first} }}\n"
        f"{read}"
    )


def executing_lanes(operand: str) -> tuple[str, str]:
    """FIRST, ONE, EACH or nothing, and the operand after it."""
    found = next((how for how in (FIRST, ONE, EACH) if operand.startswith(how)), "")
    return found, operand.removeprefix(found)


def address(operand: str) -> str:
    """The operand in brackets of a mark's instruction, whichever lanes execute it."""
    return executing_lanes(operand)[1]


def _copied(held: str, when: str) -> str:
    return f"not.pred {held}, {when[1:]};" if when.startswith("!") else f"mov.pred {held}, {when};"


def begin(kernel: Kernel, slot: Slot, operand: str) -> str:
    """Before a loop that waits: the barrier, the parity, and a clock.

    Args:
        kernel: the kernel.
        slot: the registers.
        operand: of the mark.
    """
    n = slot.index
    return f"\t{{ .reg .b32 ks_x; {_awaited(operand, f'ks_v{n}', 'ks_x')} }}\n\t{clock(kernel, f'ks_s{n}')}\n"


def drain(kernel: Kernel, slot: Slot, left: str) -> str:
    """Before a wait for groups: the lane, the number that may stay in flight, and a clock."""
    value = f"ks_v{slot.index}"
    how, left = executing_lanes(left)
    lane = f"mov.u32 {value}, %laneid; mad.lo.u32 {value}, {value}, {1 << operations.BLOCK_SHIFT}, {left};"
    lane = f"mov.u32 {value}, {left};" if how == FIRST else lane
    return f"\t{lane}\n\t{clock(kernel, f'ks_s{slot.index}')}\n"


# if this is no repetition: start = clock, what = barrier and parity
def attempt(kernel: Kernel, slot: Slot, operand: str) -> str:
    """Before an instruction that waits: repeated attempts are one wait."""
    n = slot.index
    return (
        "\t{ .reg .b32 ks_x, ks_y; .reg .pred ks_q;\n"
        f"\t{_awaited(operand, 'ks_x', 'ks_y')}\n"
        f"\tsetp.ne.or.u32 ks_q, ks_x, ks_v{n}, !ks_t{n};\n"
        f"\t@ks_q {clock(kernel, f'ks_s{n}')} mov.b32 ks_v{n}, ks_x; }}\n"
    )


# if over: end = clock
def success(kernel: Kernel, slot: Slot, over: str) -> str:
    """After an instruction that waits. over: the predicate that it sets."""
    n = slot.index
    return f"\tnot.pred ks_t{n}, {over}; mov.pred ks_w{n}, {over};\n\t{clock(kernel, f'ks_e{n}')}\n"


def _awaited(operand: str, into: str, scratch: str) -> str:
    """Set a 32-bit register to a barrier and a parity."""
    address, _, parity = operand.partition("|")
    return (
        f"{_barrier(address, into)} and.b32 {scratch}, {parity}, 1;"
        f" mad.lo.u32 {into}, {scratch}, {1 << _PARITY}, {into};"
    )


def _barrier(operand: str, into: str) -> str:
    """Set a 32-bit register to the block and the address of a barrier."""
    found = _ADDRESS.fullmatch(operand.removeprefix(WIDE))
    assert found is not None, operand
    generic, base, offset = found.groups()
    add = f" add.u32 {into}, {into}, {offset};" if offset else ""
    if operand == NO_ADDRESS:
        return f"mov.u32 {into}, %laneid; shl.b32 {into}, {into}, {operations.BLOCK_SHIFT};"
    if generic:
        load = f"{{ .reg .b64 ks_g1; cvta.to.shared.u64 ks_g1, {base}; cvt.u32.u64 {into}, ks_g1; }}"
    elif operand.startswith(WIDE):
        load = f"cvt.u32.u64 {into}, {base};"
    else:
        load = f"mov.b32 {into}, {base};"
    return f"{load}{add} and.b32 {into}, {into}, {_KEPT};"
