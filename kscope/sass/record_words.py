"""Checks that each record is stored with the words that its own marks wrote.

Records share registers, and a value may be in its register long before its mark. Like hazards.py, independent of the
code that chose the registers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from .hazards import Hazard, successors
from .instructions import Function

_STORE = "STG.E.128"


def check(function: Function, records: Mapping[int, Hashable]) -> tuple[Hazard, ...]:
    """Where a record is stored with a word of another one.

    Args:
        function: the code with what was inserted.
        records: address of each instruction that works for a record -> which record.

    Returns:
        What is wrong, by address; empty if nothing is.
    """
    by_address = {one.at: one for one in function.instructions}
    # register -> the record that wrote it last, if that is the same on every path
    states: dict[int, dict[str, Hashable]] = {0: {}}
    work = [0]
    while work:
        at = work.pop()
        one, state = by_address[at], dict(states[at])
        for name in one.writes:
            state.pop(name, None)
            if at in records:
                state[name] = records[at]
        for to in successors(one):
            before = states.get(to)
            merged = state if before is None else dict(before.items() & state.items())
            if to in by_address and merged != before:
                states[to] = merged
                work.append(to)
    return tuple(sorted(_mixed(function, records, states), key=lambda one: (one.at, one.what)))


def _mixed(
    function: Function, records: Mapping[int, Hashable], states: Mapping[int, dict[str, Hashable]]
) -> Iterator[Hazard]:
    for one in function.instructions:
        if one.code != _STORE or one.at not in records or one.at not in states:
            continue
        first = int(one.operands[1][1:])
        for name in (f"R{number}" for number in range(first, first + 4)):
            if states[one.at].get(name) != records[one.at]:
                yield Hazard(one.at, one.at, f"{name} of record {records[one.at]!r} was not written by its marks alone")
