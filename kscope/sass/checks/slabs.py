"""Checks that a warp stores only into its slab: where a store runs, its address is the one that the claim left.

Between a claim and the look at its answer, other values are in the same registers. Like hazards.py, independent of the
code that placed them.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ..cubin.instructions import Function, Instruction
from .hazards import Hazard, successors
from .record_words import false_behind

_UNIFORM = re.compile(r"^\[R\w+\.U32\+UR(\d+)\+")
_Place = tuple[int, frozenset[str]]
"""An address, and the predicates that are false there."""


def check(function: Function, inserted: Collection[int], slabs: Collection[int]) -> tuple[Hazard, ...]:
    """Where an inserted instruction may store at an address that is not its slab's.

    Args:
        function: the code with what was inserted.
        inserted: addresses of the inserted instructions.
        slabs: those of them that write a word of the slab's address, or that there is none; and branches of warps that
            have one: behind these, there is none.

    Returns:
        What is wrong, by address; empty if nothing is.
    """
    by_address = {one.at: one for one in function.instructions}
    guards = frozenset(one.guard[1:] for at, one in by_address.items() if at in inserted and one.conditional)
    everything = frozenset[str]().union(*(_base(one) for one in function.instructions))
    start: _Place = (0, frozenset())
    states: dict[_Place, frozenset[str]] = {start: frozenset()}
    work = [start]
    while work:
        at, off = place = work.pop()
        one, known = by_address[at], states[place]
        skipped = one.conditional and one.guard[1:] in off
        after = known if skipped else known | one.writes if at in slabs else known - one.writes
        for to in successors(one):
            if to not in by_address or (skipped and to == one.target):
                continue
            way = (to, false_behind(one, off, to) & guards)
            here = everything if at in slabs and one.name == "BRA" and to != one.target else after
            merged = here & states.get(way, here)
            if merged != states.get(way):
                states[way] = merged
                work.append(way)
    found = {
        Hazard(at, at, f"{name} is not of the warp's slab on every path")
        for (at, off), known in states.items()
        if at in inserted and not (by_address[at].conditional and by_address[at].guard[1:] in off)
        for name in _base(by_address[at])
        if name not in known
    }
    return tuple(sorted(found, key=lambda one: (one.at, one.what)))


def _base(one: Instruction) -> tuple[str, ...]:
    """The uniform registers of the address that an instruction stores at."""
    match = _UNIFORM.match(one.operands[0]) if one.name == "STG" else None
    return () if match is None else (f"UR{match[1]}", f"UR{int(match[1]) + 1}")
