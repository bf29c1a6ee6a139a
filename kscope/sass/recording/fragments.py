"""Machine code of the protocol: ptxas assembles the texts of kscope/ptx/ in separate kernels. Values enter and leave by
placeholder accesses, loads and stores at reserved addresses; these are removed, and the rest gets other registers, see
renaming.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ... import ptx
from ...capture import wire
from ...errors import UnsupportedError
from ...machine_code import elf
from ...marks.strategies import AllThreads
from ..cubin import attributes
from ..cubin.attributes import Attribute
from ..cubin.control_codes import Control, controlled
from ..cubin.insertion import New
from ..cubin.instructions import BYTES, Function, Instruction
from ..encoding import forms, renaming, writing
from .liveness import live

NAME = "kscope_claim"
"""The kernel of the claim."""
_IN, _OUT, _STEP, _FENCE = 4096, 8192, 4, 64
"""Addresses of the placeholder accesses; the one that keeps a fence."""
_DOOR = re.compile(r"\+(0x[0-9a-f]+)\]")
_STACK = "R1"
"""The stack's address, which every kernel loads first."""
_UNIFORM_OPERANDS = 90
"""The first architecture on which inserted code keeps values in uniform registers."""
LOG2_RECORD = 4
"""log2 of a record's bytes."""
STATE = ("base lo", "base hi", "clocks", "last")
"""Values of a claim: the address of the slab, the entry's clocks as the seal needs them, and the offset of the last
place in the slab's ring.
"""
_PAIRS = {"ctl": "ks_ctl", "c": "ks_c", "g": "ks_g", "base": "ks_base"}


def passed_values(kernel: ptx.Kernel) -> tuple[str, ...]:
    """The values that the claim takes from the begin."""
    clocks = "c lo", "c hi", "g lo", "g hi", "d"
    return ("epoch", "stripes", "warps", "sampled", "ctl lo", "ctl hi", *clocks, *(["last"] * kernel.sized))


def text(kernel: ptx.Kernel) -> str:
    """PTX of the claim's kernel, without the head of a module."""
    last = f"shl.b32 ks_last, ks_last, {LOG2_RECORD};" if kernel.sized else ""
    units = "\tmov.u32 ks_units, 0;\n" if kernel.sized else ""  # ptxas may read it early
    # a lane without a slab has the high word 0
    goes = (
        f"\t{last} .reg .b32 ks_clocks; mov.u32 ks_clocks, ks_w;\n"
        "\t{ .reg .b32 ks_x, ks_y; mov.b64 {ks_x, ks_y}, ks_base; selp.b32 ks_y, ks_y, 0, ks_on;"
        " mov.b64 ks_base, {ks_x, ks_y}; }\n"
        f"{_out(STATE if kernel.sized else STATE[:-1])}"
    )
    return (
        f".visible .entry {NAME}()\n{{\n{ptx.declarations(kernel, ())}\t.reg .b32 ks_d;\n{_in(passed_values(kernel))}"
        f"{_begun()}{units}{ptx.attempt(kernel, True)}{ptx.claim(kernel, True)}{goes}{ptx.again(kernel)}}}\n"
    )


def is_one_lane(kernel: ptx.Kernel) -> bool:
    """True if at most one lane of a warp records, lane 0, so that its state may be in uniform registers."""
    return kernel.arch >= _UNIFORM_OPERANDS and AllThreads().spec not in kernel.specs and not kernel.late


def _begun() -> str:
    """The entry's clocks as the seal needs them, see ptx.entry(): the anchor is not 2^32 cycles wide."""
    step, most = wire.WIDTH_CYCLES.bit_length() - 1, (1 << wire.WIDTH_BITS) - 2
    return (
        "\t{ .reg .b32 ks_x, ks_y, ks_z; mov.b64 {ks_x, ks_y}, ks_g; mov.b64 {ks_w, ks_z}, ks_c;\n"
        f"\tsub.u32 ks_d, ks_d, ks_w; shr.u32 ks_d, ks_d, {step}; min.u32 ks_d, ks_d, {most}; add.u32 ks_d, ks_d, 1;"
        " prmt.b32 ks_y, ks_y, ks_z, 0x4040; prmt.b32 ks_w, ks_d, ks_y, 0x7610; }\n"
    )


def _in(names: tuple[str, ...]) -> str:
    """Loads of these values: one for those that a begin has in consecutive registers, so that they may stay there."""
    text = f"\t{{ .reg .b64 ks_door; .reg .b32 ks_x0, ks_x1, ks_x2, ks_x3; mov.u64 ks_door, {_IN};\n"
    for row in rows(names):
        into = [f"ks_x{place}" if " " in name else f"ks_{name}" for place, name in enumerate(row)]
        many, words = f".v{len(row)}" if row[1:] else "", f"{{{', '.join(into)}}}" if row[1:] else into[0]
        text += f"\tld.volatile.global{many}.u32 {words}, [ks_door+{_STEP * names.index(row[0])}];\n"
        if " " in row[0]:
            text += f"\tmov.b64 {_PAIRS[row[0].partition(' ')[0]]}, {{ks_x0, ks_x1}};\n"
    # a clock is a fence: no placeholder follows it, where its registers have been used. It is removed like one
    fence = f"mov.u64 ks_fence, %clock64; st.volatile.global.u64 [ks_door+{_OUT - _IN + _STEP * _FENCE}], ks_fence;"
    return f"{text}\t.reg .b64 ks_fence; {fence}\n\t}}\n"


def rows(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The values between begin and claim in consecutive registers: the gate's first words, and pairs."""
    number = 0
    while number < len(names):
        many = 4 if names[number] == "epoch" else 2 if names[number].endswith(" lo") else 1
        yield names[number : number + many]
        number += many


def _out(names: tuple[str, ...]) -> str:
    """Stores of these values."""
    text = f"\t{{ .reg .b64 ks_door; .reg .b32 ks_lo, ks_hi; mov.u64 ks_door, {_OUT};\n"
    for number, name in enumerate(names):
        word, _, half = name.partition(" ")
        if half:
            text += f"\tmov.b64 {{ks_lo, ks_hi}}, {_PAIRS[word]};\n"
        value = f"ks_{half}" if half else f"ks_{word}"
        text += f"\tst.volatile.global.u32 [ks_door+{_STEP * number}], {value};\n"
    return f"{text}\t}}\n"


@dataclass(frozen=True)
class Fragment:
    """A fragment that ptxas assembled.

    Attributes:
        instructions: its machine code up to the padding.
        attributes: those of its kernel.
        name: its kernel's.
        comes: incoming placeholders: the value's number, by address.
        goes: outgoing placeholders: the value's number, by address.
        zeros: instructions that only compute addresses of placeholders, and the fence after them.
        arch: the architecture that it is for.
    """

    instructions: tuple[Instruction, ...]
    attributes: tuple[Attribute, ...]
    name: str
    comes: Mapping[int, int]
    goes: Mapping[int, int]
    zeros: frozenset[int]
    arch: int = 90

    @property
    def code(self) -> tuple[Instruction, ...]:
        """The instructions without placeholders and their addresses."""
        gone = {*self.comes, *self.goes, *self.zeros}
        return tuple(one for one in self.instructions if one.at not in gone)

    def used(self, kind: str) -> frozenset[int]:
        """Numbers of the registers of a file ("R", "UR", "P", "UP") that its code uses."""
        return frozenset(
            int(name[len(kind) :])
            for one in self.code
            for name in one.reads | one.writes
            if name.startswith(kind) and name[len(kind) :].isdigit()
        )

    def register(self, at: int) -> int:
        """The register of the placeholder at an address."""
        one = next(one for one in self.instructions if one.at == at)
        operand = one.operands[0] if at in self.comes else one.operands[-1]
        return int(operand.removesuffix(".reuse")[1:])

    def enters(self, at: int) -> Iterator[tuple[int, int]]:
        """The values that a placeholder loads, by number, and the register of each."""
        one = next(one for one in self.instructions if one.at == at)
        many = next((many for part, many in (("128", 4), ("64", 2)) if part in one.code.split(".")), 1)
        return ((self.comes[at] + n, self.register(at) + n) for n in range(many))

    def listed(self, at: int) -> tuple[int, ...]:
        """Numbers of the attributes that list the instruction at an address, but for those of exits."""
        found = (one.number for one in self.attributes if at in attributes.addresses(one))
        return tuple(number for number in found if number != attributes.EXITS)

    @property
    def stack(self) -> tuple[Attribute, ...]:
        """The attribute with the size of its stack."""
        return tuple(one for one in self.attributes if one.number == attributes.STACK)


def read(file: elf.Elf, function: Function) -> Fragment:
    """A fragment from the cubin that ptxas made of its text.

    Raises:
        UnsupportedError: ptxas gave it a stack.
    """
    own = file.find(f".nv.info.{function.name}")
    code = [one for one in function.instructions if one.name != "NOP" and _STACK not in one.writes]
    if any(_STACK in one.reads for one in code):
        raise UnsupportedError(f"ptxas gave {function.name} a stack")
    if code and code[-1].name == "BRA" and code[-1].target == code[-1].at:
        code.pop()
    comes = {one.at: number for one in code if (number := _door(one, "LDG", _IN)) is not None}
    goes = {one.at: number for one in code if (number := _door(one, "STG", _OUT)) is not None}
    fences = {one.at for one in code if one.operands[1:] == ("SR_CLOCKLO",) or goes.get(one.at) == _FENCE}
    goes = {at: number for at, number in goes.items() if at not in fences}
    zeros = _zeros(code, {*comes, *goes, *fences}) | fences
    listed = attributes.read(own.content) if own is not None else ()
    return Fragment(tuple(code), listed, function.name, comes, goes, zeros, function.arch)


def _door(one: Instruction, name: str, first: int) -> int | None:
    """The number of a placeholder's value; None for other instructions."""
    if one.name != name or ".STRONG.SYS" not in one.code:
        return None
    found = _DOOR.search(one.operands[-1 if name == "LDG" else 0])
    number = (int(found[1], 16) - first) // _STEP if found else -1
    return number if 0 <= number < (_OUT - _IN) // _STEP else None


def _zeros(code: list[Instruction], doors: set[int]) -> frozenset[int]:
    """The instructions whose results are only used for addresses of placeholders."""

    def reads(one: Instruction) -> frozenset[str]:
        """The registers that an instruction reads, without a placeholder's address."""
        if one.at not in doors:
            return one.reads
        return frozenset({one.operands[-1].removesuffix(".reuse")} if one.name == "STG" else ())

    needed = live(code, reads)
    return frozenset(
        one.at
        for one in code
        if one.code == "CS2R" and one.operands[-1] == "SRZ" and not one.writes & needed.get(one.at + BYTES, frozenset())
    )


Door = Callable[[str, int], "list[New]"]
"""Code that replaces a placeholder, by the value's name and its register."""


def spliced(
    fragment: Fragment,
    values: tuple[tuple[str, ...], tuple[str, ...]],
    names: renaming.Names,
    boards: Mapping[int, int],
    comes: Door,
    goes: Door,
    prefix: str,
) -> tuple[list[New], list[New]]:
    """Return a fragment's code up to its last exit, which becomes its end, and the code after that. Cycles include the
    placeholders; timing.with_least_stalls() recomputes them.

    Args:
        fragment: the fragment.
        values: names of the incoming and outgoing values.
        names: other registers.
        boards: other scoreboards.
        comes: code for a placeholder of an incoming value.
        goes: code for a placeholder of an outgoing value.
        prefix: begins the labels; no other code uses it.
    """
    code = fragment.instructions
    exits = [one.at for one in code if one.name == "EXIT" and not one.conditional]
    if len(exits) != 1:
        raise UnsupportedError(f"ptxas gave {fragment.name} {len(exits)} exits; expected one")
    gone = {*fragment.comes, *fragment.goes, *fragment.zeros}
    aimed = {one.target for one in code if one.target is not None}
    targets = {f"{prefix}{at:x}" for at in (*aimed, exits[0])}
    counted = set[int]()
    straight = True
    parts, waiting, alias, last = list[New](), list[str](), dict[str, str](), 0
    for one in code:
        label = f"{prefix}{one.at:x}"
        straight = straight and one.at not in aimed
        own = one.control
        waits = frozenset(boards[board] for board in own.waits if not straight or board in counted)
        code_here = replace(
            own,
            waits=waits,
            writes=None if own.writes is None else boards[own.writes],
            reads=None if own.reads is None else boards[own.reads],
            reuse=0,
        )
        if one.at in fragment.comes or one.at in fragment.goes:
            if one.at in fragment.comes:
                made = [
                    new
                    for value, number in fragment.enters(one.at)
                    for new in comes(values[0][value], names.registers.get(number, number))
                ]
            else:
                number = fragment.register(one.at)
                made = goes(values[1][fragment.goes[one.at]], names.registers.get(number, number))
        elif one.at in fragment.zeros:
            made = []
        elif one.at == exits[0]:
            everything = frozenset(boards[board] for board in counted)
            made = [writing.new("NOP", Control(waits=everything), arch=fragment.arch)]
        elif one.name == "EXIT":
            branch = forms.word("BRA `()", Control(stall=5), fragment.arch)
            guarded = branch & ~(0xF << 12) | renaming.renamed(one, names) & 0xF << 12
            made = [
                New(
                    controlled(guarded, code_here),
                    to=f"{prefix}{exits[0]:x}",
                    seen=renaming.renamed_operands(one, names, "BRA"),
                )
            ]
        else:
            counted |= {board for board in (own.writes, own.reads) if board is not None}
            to = None if one.target is None else f"{prefix}{one.target:x}"
            seen, proof = renaming.renamed_operands(one, names), partial(renaming.same, one=one, names=names)
            made = [New(controlled(seen.word, code_here), to, listed=fragment.listed(one.at), proof=proof, seen=seen)]
        if one.at in fragment.goes:  # the target registers may have been in use until here
            waits |= {boards[board] for board in counted}
        if one.at in gone and waits:
            made = [writing.new("NOP", Control(waits=waits), arch=fragment.arch), *made]
        waiting.append(label)
        if made:
            alias |= dict.fromkeys(waiting, label)
            named = label if any(name in targets for name in waiting) else ""
            parts += [replace(made[0], label=named), *made[1:]]
            waiting = []
        if one.at == exits[0]:
            last = len(parts)
    parts = [replace(one, to=alias[one.to]) if isinstance(one.to, str) and one.to in alias else one for one in parts]
    return parts[:last], parts[last:]


def descriptor(fragment: Fragment) -> str:
    """The constant with the descriptor of global memory, which ptxas loads for the placeholders."""
    door = next(one for one in fragment.instructions if one.at in fragment.goes)
    found = re.search(r"desc\[(UR\d+)\]", door.operands[0])
    assert found is not None
    return next(
        one.operands[1] for one in fragment.instructions if one.code == "ULDC.64" and one.operands[0] == found[1]
    )


def groups(fragment: Fragment) -> Iterator[tuple[int, int]]:
    """Registers of the code, without placeholders, that must stay consecutive: the first one's number, and how many."""
    yield from renaming.groups(fragment.code)
