"""Checks that each record is stored with the words that its own marks wrote for it.

Records share registers, and a value may be in its register long before its mark. Like hazards.py, independent of the
code that chose the registers and the places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .hazards import Hazard, successors
from .instructions import Function, Instruction

_STORE = "STG.E.128"


@dataclass(frozen=True)
class Word:
    """Whose word an instruction writes.

    Attributes:
        record: name and kind of the record.
        kind: "once" for one record; "held" for a value or a predicate that waits for it; "always" for all of them.
    """

    record: tuple[str, str]
    kind: Literal["once", "held", "always"] = "once"


_State = dict[str, Word]
"""Register -> what wrote it last, if that is the same on every path, and no store has read it since."""


def check(function: Function, words: Mapping[int, Word]) -> tuple[Hazard, ...]:
    """Where a record is stored with a word that is not of it, or not of this time.

    Args:
        function: the code with what was inserted.
        words: address of each instruction that works for a record -> what it writes.

    Returns:
        What is wrong, by address; empty if nothing is.
    """
    by_address = {one.at: one for one in function.instructions}
    states: dict[int, _State] = {0: {}}
    work = [0]
    while work:
        at = work.pop()
        state = _after(by_address[at], states[at], words)
        for to in successors(by_address[at]):
            before = states.get(to)
            merged = state if before is None else dict(before.items() & state.items())
            if to in by_address and merged != before:
                states[to] = merged
                work.append(to)
    found = {hazard for at, state in states.items() for hazard in _wrong(by_address[at], state, words)}
    return tuple(sorted(found, key=lambda one: (one.at, one.what)))


def _after(one: Instruction, before: _State, words: Mapping[int, Word]) -> _State:
    state = {name: word for name, word in before.items() if name not in one.writes}
    if one.at not in words:
        return state
    for name in _stored(one):
        if name in state and state[name].kind != "always":
            del state[name]
    return state | dict.fromkeys(one.writes, words[one.at])


def _wrong(one: Instruction, state: _State, words: Mapping[int, Word]) -> Iterator[Hazard]:
    if one.at not in words:
        return
    word = words[one.at]
    for name in _stored(one):
        if name not in state or state[name].record != word.record:
            yield Hazard(one.at, one.at, f"{name} of record {word.record[0]!r} was not written by its marks alone")
    if word.kind == "held":
        for name in one.writes & state.keys():
            if state[name] == word:
                yield Hazard(one.at, one.at, f"{name} of record {word.record[0]!r} is written again before its store")


def _stored(one: Instruction) -> tuple[str, ...]:
    """The words that an instruction stores, if it stores a record."""
    if one.code != _STORE:
        return ()
    first = int(one.operands[1][1:])
    return tuple(f"R{number}" for number in range(first, first + 4))
