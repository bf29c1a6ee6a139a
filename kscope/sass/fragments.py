"""The claim and the end of a slab as machine code: ptxas assembles the texts of kscope/ptx/, in kernels of their own.

So the protocol is written once, and the control codes are those of ptxas. Values come in by a load, and go out by a
store, at an address that nothing else has; both are found in the machine code and replaced by moves.

At the entry of a kernel and at its exits no register is live, so what a fragment computes in keeps its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from .. import ptx
from ..capture import wire
from ..errors import UnsupportedError
from . import elf, forms, info
from .control import SCOREBOARDS, Control, controlled
from .insert import New
from .instructions import Function, Instruction

NAMES = "kscope_claim", "kscope_end"
"""Kernels of the fragments."""
_DOOR = 4096
"""The address of loads and stores that stand for values."""
_DOORS = f"{{ .reg .b64 ks_door; .reg .b32 ks_in0, ks_in1, ks_in2, ks_in3; mov.u64 ks_door, {_DOOR};"
_OUT = "st.volatile.global.v4.u32 [ks_door], {ks_in0, ks_in1, ks_in2, ks_in3};"
_IN = "ld.volatile.global.v4.u32 {ks_in0, ks_in1, ks_in2, ks_in3}, [ks_door];"
_STACK = "R1"
"""The stack's address, which every kernel loads first."""
_SETTLED = 12
"""Cycles after which every result of a move is there."""
LOG2_RECORD = 4
"""log2 of a record's bytes."""
DESCRIPTOR = 60
"""UR60 and UR61 hold the descriptor of global memory in the whole kernel, and before it the address of the control
block."""


@dataclass(frozen=True)
class State:
    """Registers in which a recording lane keeps what it knows, from the entry to the exits.

    Attributes:
        base: low word of its slab's address.
        address: an even register: address of the next record without the head, and the high word, in the one behind.
            The high word is 0 in lanes that do not record.
        offset: 16 times the records so far.
        clocks: what the seal needs of the entry's clocks.
        last: offset of the last place in the slab's ring; None if it is the same in every launch.
        on: predicate: this lane records; None if the kernel leaves none free.
        scoreboard: counts stores until their operands were read.
        spare: a register for a predicate that is saved; None if the kernel leaves predicates free.
    """

    base: int
    address: int
    offset: int
    clocks: int
    last: int | None
    on: int | None
    scoreboard: int
    spare: int | None = None


def claim_text(head: str, kernel: ptx.Kernel) -> str:
    """PTX of a kernel that claims a slab. head: what stands in front of it in its module."""
    control = f"\tld.const.u64 ks_ctl, [{wire.CTL_SYMBOL}];\n"
    entry = ptx.entry(kernel, ())
    assert control in entry
    comes = (
        f"\t{_DOORS} ld.volatile.global.v2.u32 {{ks_in0, ks_in1}}, [ks_door]; mov.b64 ks_ctl, {{ks_in0, ks_in1}}; }}\n"
    )
    last = f"shl.b32 ks_in3, ks_last, {LOG2_RECORD};" if kernel.sized else "mov.u32 ks_in3, 0;"
    goes = f"\t{_DOORS} mov.b64 {{ks_in0, ks_in1}}, ks_base; mov.u32 ks_in2, ks_w; {last}\n\t{_OUT} }}\n"
    return (
        f"{head}.visible .entry {NAMES[0]}()\n{{\n{entry.replace(control, comes)}"
        f"{ptx.attempt(kernel)}{ptx.claim(kernel)}{goes}{ptx.again(kernel)}}}\n"
    )


def end_text(head: str) -> str:
    """PTX of a kernel that closes a slab."""
    return (
        f"{head}.visible .entry {NAMES[1]}()\n{{\n\t.reg .pred ks_on; .reg .b64 ks_base; .reg .b32 ks_n, ks_w;\n"
        f"\t{_DOORS} {_IN} mov.b64 ks_base, {{ks_in0, ks_in1}}; mov.u32 ks_n, ks_in2; mov.u32 ks_w, ks_in3; }}\n"
        f"\tsetp.ne.u64 ks_on, ks_base, 0;\n{ptx.finish()}\tret;\n}}\n"
    )


@dataclass(frozen=True)
class Fragment:
    """A fragment that ptxas assembled.

    Attributes:
        function: its machine code.
        attributes: those of its kernel.
    """

    function: Function
    attributes: tuple[info.Attribute, ...]

    @property
    def registers(self) -> frozenset[int]:
        """Numbers of the registers that it uses."""
        used = (register for one in self.function.instructions for register in one.reads | one.writes)
        return frozenset(int(register[1:]) for register in used if register[0] == "R")

    def listed(self, at: int) -> tuple[int, ...]:
        """Numbers of the attributes that list the instruction at an address, but for those of exits."""
        found = (one.number for one in self.attributes if at in info.addresses(one))
        return tuple(number for number in found if number != info.EXITS)


def read(file: elf.Elf, function: Function) -> Fragment:
    """A fragment from the cubin that ptxas made of its text."""
    own = file.find(f".nv.info.{function.name}")
    return Fragment(function, info.read(own.content) if own is not None else ())


def claim(fragment: Fragment, state: State, control: int) -> tuple[list[New], list[New]]:
    """The claim, for a kernel's entry.

    Args:
        fragment: the machine code of claim_text().
        state: where a lane keeps what it knows from here on.
        control: offset of the control block's address in constant bank 3.

    Returns:
        What stands in front of the kernel, and what stands behind it.
    """

    def doors(one: Instruction) -> list[New] | None:
        if one.code == "LDG.E.64.STRONG.SYS" and _is_door(one):
            (into,) = _numbers(one.operands[0])
            load = forms.word(
                f"ULDC.64 UR{DESCRIPTOR}, c[0x3][{control:#x}]", replace(_waiting(one, 0), stall=_SETTLED)
            )
            moves = (forms.word(f"MOV R{into + n}, UR{DESCRIPTOR + n}", Control(stall=_SETTLED)) for n in (0, 1))
            return [New(load), *map(New, moves)]
        if one.code == "STG.E.128.STRONG.SYS" and _is_door(one):
            (first,) = _numbers(one.operands[-1])
            moved = [(state.base, first), (state.address + 1, first + 1), (state.clocks, first + 2)]
            moved += [] if state.last is None else [(state.last, first + 3)]
            return [
                *(New(forms.word(f"MOV R{into}, R{of}", _waiting(one, n))) for n, (into, of) in enumerate(moved)),
                New(forms.word(f"MOV R{state.offset}, RZ", Control(stall=_SETTLED))),
                *_recording(state),
                New(forms.word(f"ULDC.64 UR{DESCRIPTOR}, {_descriptor(fragment.function)}", Control(stall=_SETTLED))),
            ]
        return None

    return _spliced(fragment, doors, "claim ")


def _recording(state: State) -> list[New]:
    """A lane without a slab has the high word 0."""
    if state.on is None:
        return []
    return [New(forms.word(f"ISETP.NE.U32.AND P{state.on}, PT, R{state.address + 1}, RZ, PT", Control(stall=13)))]


def end(fragment: Fragment, state: State, name: str) -> list[New]:
    """The end of a slab, for an exit of a kernel; `name` tells the exits apart.

    Args:
        fragment: the machine code of end_text().
        state: where a lane keeps what it knows.
        name: a word that no other exit has.
    """

    def doors(one: Instruction) -> list[New] | None:
        if one.code == "LDG.E.128.STRONG.SYS" and _is_door(one):
            (into,) = _numbers(one.operands[0])
            return [
                New(forms.word(f"MOV R{into}, R{state.base}", _waiting(one, 0))),
                New(forms.word(f"MOV R{into + 1}, R{state.address + 1}", Control())),
                New(forms.word(f"SHF.R.U32.HI R{into + 2}, RZ, 0x4, R{state.offset}", Control())),
                New(forms.word(f"MOV R{into + 3}, R{state.clocks}", Control(stall=_SETTLED))),
            ]
        if any(register.startswith("UR") for register in one.reads | one.writes):
            text = re.sub(r"\bUR\d+", f"UR{DESCRIPTOR}", f"{one.guard} {one.code} {', '.join(one.operands)}")
            if one.name not in ("ULDC", "STG"):
                raise UnsupportedError(f"ptxas put {one.code} into the end of a slab: it uses what belongs to the warp")
            return [New(forms.word(text, one.control))]
        return None

    code, behind = _spliced(fragment, doors, f"end {name} ")
    if behind:
        raise UnsupportedError("ptxas put a part of the end of a slab elsewhere")
    return code


Doors = Callable[[Instruction], "list[New] | None"]


def _spliced(fragment: Fragment, doors: Doors, prefix: str) -> tuple[list[New], list[New]]:
    """A fragment's code up to its last exit, which becomes its end, and what lies behind."""
    function = fragment.function
    code = [one for one in function.instructions if one.name != "NOP" and _STACK not in one.writes]
    if any(_STACK in one.reads for one in code):
        raise UnsupportedError(f"ptxas gave {function.name} a stack")
    if code and code[-1].name == "BRA" and code[-1].target == code[-1].at:
        code.pop()
    exits = [n for n, one in enumerate(code) if one.name == "EXIT" and not one.conditional]
    if len(exits) != 1:
        raise UnsupportedError(f"ptxas gave {function.name} {len(exits)} exits; expected one")
    everything = Control(stall=_SETTLED, waits=frozenset(SCOREBOARDS))
    branch = forms.word("BRA `()", Control(stall=5))
    parts = list[New]()
    last = 0
    for number, one in enumerate(code):
        label = f"{prefix}{one.at:x}"
        made = doors(one)
        if number == exits[0]:
            made = [New(forms.word("NOP", everything))]
            last = len(parts) + 1
        elif one.name == "EXIT":
            guarded = branch & ~(0xF << 12) | one.word & 0xF << 12
            made = [New(controlled(guarded, one.control), to=f"{prefix}{code[exits[0]].at:x}")]
        elif made is None:
            to = None if one.target is None else f"{prefix}{one.target:x}"
            made = [New(one.word, to=to, listed=fragment.listed(one.at))]
        parts += [replace(made[0], label=label), *made[1:]]
    return parts[:last], parts[last:]


def _is_door(one: Instruction) -> bool:
    return any(f"+{_DOOR:#x}]" in operand for operand in one.operands)


def _waiting(one: Instruction, number: int) -> Control:
    """The first of the instructions in place of another one waits for what that one waited for."""
    return Control(stall=2, waits=one.control.waits if number == 0 else frozenset())


def _numbers(operand: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"^R(\d+)", operand)))


def _descriptor(function: Function) -> str:
    """The constant with the descriptor of global memory: what ptxas loads for the fragment's own accesses."""
    (found,) = {one.operands[1] for one in function.instructions if one.code == "ULDC.64"}
    return found
