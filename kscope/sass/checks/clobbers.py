"""Checks that inserted instructions overwrite no value of the function, and read only values that they wrote.
Independent of the code that placed them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Set
from types import MappingProxyType

from ...util.graph_walks import reached, settled
from ..cubin.instructions import BYTES, Function, Instruction
from . import divergence, register_limits
from .hazards import Hazard, successors
from .record_words import implied

_WARP_WIDE = ("UR", "UP")
_BARRIER = re.compile(r"\bB\d+\b")
_OF_THE_CODE = ("BRA", "P2R")
"""Inserted instructions that may read results of the function: branches under its conditions, and saved predicates."""
_Names = frozenset[str]
_Kept = tuple[frozenset[tuple[str, str]], _Names]
"""Predicate -> the register that holds its value; and predicates that were overwritten since, on any path."""


def check(
    function: Function,
    inserted: Collection[int],
    borrowed: Mapping[int, frozenset[str]] = MappingProxyType({}),
    compiled: Set[int] = frozenset(),
) -> tuple[Hazard, ...]:
    """Find registers that inserted instructions and the function's take from each other.

    Args:
        function: the code after insertion.
        inserted: addresses of the inserted instructions.
        borrowed: registers of the function that inserted or replaced instructions may read.
        compiled: inserted instructions that ptxas made. What they do with a register that only some lanes wrote has
            no effect in the others.

    Returns:
        The errors, by address; empty if there are none.
    """
    new = frozenset(inserted) | borrowed.keys()
    by_address = {one.at: one for one in function.instructions}
    own = tuple(one for one in function.instructions if one.at not in new)
    flow = _flow(function)
    live = _live(function, flow, new, borrowed)
    begun = _begun(flow, new)
    whole = divergence.undiverged_addresses(flow, by_address, new)
    held, lost = _held(function, flow, new, live, begun)
    named = frozenset[str]().union(*(one.reads | one.writes | _barriers(one) for one in own))
    counted = {number for one in own if (number := _counting(one)) is not None}
    limits = register_limits.limits(function)
    found = set[Hazard]()
    for one in (one for one in function.instructions if one.at in new and one.at in flow):
        if one.at in begun:  # before, no register has a value that the code needs
            after = frozenset[str]().union(*(live[to] for to in flow[one.at]))
            found |= {
                Hazard(one.at, one.at, f"{name} is overwritten, but the code still needs it")
                for name in (one.writes & after) - held[one.at]
            }
            taken = {name for name in one.writes if name.startswith(_WARP_WIDE)} | _barriers(one)
            found |= {
                Hazard(one.at, one.at, f"{name} belongs to the whole warp, and the code uses it elsewhere")
                for name in taken & named
                if one.at not in whole or name in after
            }
            boards = {one.control.writes, one.control.reads} & counted
            found |= {Hazard(one.at, one.at, f"a DEPBAR counts scoreboard {board}") for board in boards}
        if one.name == "R2UR" and one.at not in whole and one.at not in compiled:
            found.add(Hazard(one.at, one.at, "R2UR takes one lane's value where the lanes may have diverged"))
        limit = limits[one.at]
        for name in one.reads | one.writes:
            if name[0] == "R" and int(name[1:]) >= limit:
                found.add(Hazard(one.at, one.at, f"{name} does not exist: USETMAXREG leaves {limit} registers"))
    found |= lost
    # before, none has a value
    found |= {one for one in _foreign_reads(function, flow, new, borrowed, compiled) if one.at in begun}
    return tuple(sorted(found, key=lambda one: (one.at, one.what)))


def _flow(function: Function) -> dict[int, tuple[int, ...]]:
    """The possible next addresses, for every instruction that can be reached."""
    by_address = {one.at: one for one in function.instructions}
    flow = {at: tuple(to for to in successors(one) if to in by_address) for at, one in by_address.items()}
    return {at: flow[at] for at in reached([0], flow.__getitem__)}


def _live(
    function: Function, flow: Mapping[int, tuple[int, ...]], new: Set[int], borrowed: Mapping[int, _Names]
) -> dict[int, _Names]:
    """Registers that the function's instructions still need, before each instruction."""
    by_address = {one.at: one for one in function.instructions}
    live = dict.fromkeys(flow, frozenset[str]())
    changed = True
    while changed:
        changed = False
        for at in sorted(flow, reverse=True):
            one = by_address[at]
            after = frozenset[str]().union(*(live[to] for to in flow[at]))
            if at in borrowed:
                after |= borrowed[at]
            elif at not in new:
                after = one.reads | (after if one.conditional else after - one.writes)
            if after != live[at]:
                live[at], changed = after, True
    return live


def _held(
    function: Function,
    flow: Mapping[int, tuple[int, ...]],
    new: Set[int],
    live: Mapping[int, _Names],
    begun: Set[int],
) -> tuple[dict[int, _Names], set[Hazard]]:
    """The predicates that may be overwritten before each instruction, because a register holds their values; and
    instructions of the function that run before such a value is restored.
    """
    by_address = {one.at: one for one in function.instructions}

    def onward(at: int, state: _Kept) -> Iterator[tuple[int, _Kept]]:
        one, (held, gone) = by_address[at], state
        if at in new:
            back = {name for name, register in held if _brings_back(one, name, register)}
            if at in begun:  # before, no predicate has a value
                gone = (gone | {name for name in one.writes if name[0] == "P"}) - back
            held = frozenset(pair for pair in held if pair[1] not in one.writes)
            held |= {(name, register) for name, register in _kept(one) if name not in gone}
        else:
            held, gone = frozenset(), gone if one.name == "BRA" and not one.writes else frozenset[str]()
        yield from ((to, (held, gone)) for to in flow[at])

    start: _Kept = (frozenset(), frozenset())
    states = settled({0: start}, onward, lambda one, other: (one[0] & other[0], one[1] | other[1]))
    names = {at: frozenset(name for name, _ in held) for at, (held, _) in states.items()}
    lost = {
        Hazard(at, at, f"{name} was overwritten, and is not restored where the code needs it")
        for at, (_, gone) in states.items()
        if at not in new
        for name in gone & live[at]
    }
    return names, lost


def _kept(one: Instruction) -> Iterator[tuple[str, str]]:
    """A predicate that an instruction saves in a register, and the register."""
    kept = [name for name in one.reads if name[0] == "P"]
    if one.code == "P2R" and not one.conditional and one.operands[1:3] == ("PR", "RZ") and len(kept) == 1:
        yield kept[0], one.operands[0]


def _brings_back(one: Instruction, name: str, register: str) -> bool:
    """True if an instruction restores a predicate from the register with its value."""
    return one.code == "ISETP.NE.U32.AND" and not one.conditional and one.operands == (name, "PT", register, "RZ", "PT")


def _begun(flow: Mapping[int, tuple[int, ...]], new: Set[int]) -> frozenset[int]:
    """Addresses that run after one of the function's instructions."""
    return frozenset(reached((to for at in flow if at not in new for to in flow[at]), flow.__getitem__))


def _foreign_reads(
    function: Function,
    flow: Mapping[int, tuple[int, ...]],
    new: Set[int],
    borrowed: Mapping[int, _Names],
    compiled: Set[int],
) -> Iterator[Hazard]:
    """Inserted instructions that read a result of the function, or a register that nothing wrote."""
    by_address = {one.at: one for one in function.instructions}
    states = _written(flow, by_address, new)
    for at in flow:
        one, before = by_address[at], states.get(at)
        if at in new and before is not None and one.name not in _OF_THE_CODE:
            guard = _ANY if at in compiled else one.guard if one.guard in before else ""
            for name in sorted(one.reads - before[guard] - borrowed.get(at, frozenset())):
                yield Hazard(at, at, f"{name} is read, but no inserted instruction wrote it on every path")


_ANY = "?"
_Written = dict[str, frozenset[str] | None]
"""Registers last written by an inserted instruction: on every path (""), and on every one on which a guard may hold
("@P6", "@!P0"); None for all registers, where it never does; and on every path in some lanes ("?"). "@P6" among the
registers: there, P6 is true.
"""


def _written(
    flow: Mapping[int, tuple[int, ...]], by_address: Mapping[int, Instruction], new: Set[int]
) -> dict[int, dict[str, _Names]]:
    """Registers that inserted instructions may read before each instruction that can be reached, by their guard."""
    guards = {one.guard for at, one in by_address.items() if at in new and re.fullmatch(r"@!?P\d", one.guard)}

    def onward(at: int, before: _Written) -> Iterator[tuple[int, _Written]]:
        one = by_address[at]
        after = _after(one, before, at in new)
        for to in flow[at]:
            way = _taken(one, after, to) if at in new and one.name == "BRA" else after
            if way[""] is not None:  # else never taken
                yield to, way

    start: _Written = dict.fromkeys(("", _ANY, *guards), frozenset[str]())
    states = settled({0: start}, onward, lambda one, way: {name: _both(one[name], some) for name, some in way.items()})
    everything = frozenset[str]().union(*(one.reads for one in by_address.values()))
    return {
        at: {name: everything if some is None else some for name, some in held.items()} for at, held in states.items()
    }


def _both(one: _Names | None, other: _Names | None) -> _Names | None:
    return other if one is None else one if other is None else one & other


def _after(one: Instruction, before: _Written, new: bool) -> _Written:
    """The registers that are written after an instruction."""
    always = before[""]
    assert always is not None
    lost = frozenset(f"{at}{name}" for name in one.writes for at in ("@", "@!"))
    gone = lost if new else lost | one.writes | register_limits.released_registers(one)
    # a new predicate may be true only where all conditions that it implies are; others are unchanged
    names = frozenset(f"@{name}" for name in implied(one))
    known = [always, names, *(before.get(name, frozenset[str]()) for name in names)]
    narrowed = known if new and not one.conditional else [always]
    found: _Written = {}
    for name, some in before.items():
        if name in lost:
            some = _most(*(narrowed if "!" not in name else [always]))
        if some is not None:
            some -= gone
            sure = not one.conditional or name == _ANY or one.guard in {name, *some}
            some |= one.writes if new and sure else frozenset()
        found[name] = some
    return found


def _taken(branch: Instruction, written: _Written, to: int) -> _Written:
    """The registers that are written on one path after a branch of an inserted instruction, where its guard is
    known.
    """
    if not branch.conditional or branch.target == branch.at + BYTES:
        return written
    if branch.second_condition and to != branch.target:
        return written
    contrary = f"@{branch.guard[2:]}" if branch.guard[1] == "!" else f"@!{branch.guard[1:]}"
    holds, fails = (branch.guard, contrary) if to == branch.target else (contrary, branch.guard)
    always = written.get(holds, written[""])
    return {name: None if name == fails else _most(some, always) for name, some in written.items()}


def _most(*known: _Names | None) -> _Names | None:
    """All registers that are written where all of these hold."""
    found = frozenset[str]()
    for some in known:
        if some is None:
            return None
        found |= some
    return found


def _barriers(one: Instruction) -> _Names:
    """Convergence barriers that an instruction names; nvdisasm's table does not have them."""
    return frozenset(_BARRIER.findall(" ".join(one.operands))) if one.name[0] == "B" else frozenset()


def _counting(one: Instruction) -> int | None:
    """The scoreboard that an instruction waits for until some operations are left in flight; None for others."""
    if one.name == "DEPBAR" and one.operands[0].startswith("SB") and one.operands[-1] != "0x0":
        return int(one.operands[0].removeprefix("SB"))
    return None
