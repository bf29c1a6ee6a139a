"""Checks that each record is stored with the words that its own marks wrote for it, and that records of rows are
counted once. Independent of the code that chose the registers and places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...capture import wire
from ...util.graph_walks import settled
from ..cubin.insertion import Word
from ..cubin.instructions import Function, Instruction
from .hazards import Hazard, successors

_STORE = "STG.E.128"
_BOTH = {"0x80": "", "0x20": "!"}
"""Tables of PLOP3 that compute "first and second operand", or "first and not second", where the third is true."""


_State = dict[str, "Word | frozenset[str]"]
"""Register -> the word last written to it, if that is the same on every path, and no store has read it since. Predicate
-> the conditions that it implies: "P6", "!P0".
"""
_Place = tuple[int, frozenset[str]]
"""An address and the predicates that are false there; stores under these cannot run."""
_Ways = tuple[tuple[_State, frozenset[str]], ...]


def check(function: Function, words: Mapping[int, Word]) -> tuple[Hazard, ...]:
    """Find records that are stored with a word of another record, or of another time.

    Args:
        function: the code with what was inserted.
        words: address of each recording instruction -> the word that it writes.

    Returns:
        The errors, by address; empty if there are none.
    """
    by_address = {one.at: one for one in function.instructions}
    named = {one.guard[1:] for at, one in by_address.items() if at in words and one.conditional}
    flags = {by_address[at].operands[2] for at, word in words.items() if _tests_flag(by_address[at], word)}
    guards = frozenset(named | {_contrary(one) for one in named} | flags)
    # for each recording instruction: the guards of the record's stores
    guarding = defaultdict[tuple[str, str], set[str]](set)
    for at, word in words.items():
        guarding[word.record] |= {by_address[at].guard[1:]} if _stored(by_address[at]) else set()
    stores = {at: guarding[word.record] for at, word in words.items() if word.kind == "held"}
    read = _read(by_address, guards, stores)

    def onward(place: _Place, before: _State) -> Iterator[tuple[_Place, _State]]:
        at, off = place
        one = by_address[at]
        for state, false in _ways(one, before, off, words):
            for to in successors(one):
                if to in by_address and not (one.conditional and one.guard[1:] in false and to == one.target):
                    yield (to, _off(one, false, to) & read[to]), state

    start: dict[_Place, _State] = {(0, frozenset()): {}}
    states = settled(start, onward, lambda one, other: dict(one.items() & other.items()))
    found = {
        hazard
        for (at, off), state in states.items()
        if not (by_address[at].guard[1:] in off and by_address[at].conditional)
        for hazard in _wrong(by_address[at], state, words, off >= stores.get(at, {""}))
    }
    return tuple(sorted(found, key=lambda one: (one.at, one.what)))


def _read(
    by_address: Mapping[int, Instruction], guards: frozenset[str], also: Mapping[int, set[str]]
) -> dict[int, frozenset[str]]:
    """The names that are read before they are written, before each instruction: other ones make no difference.

    also: names that count as read at an address.
    """
    read = dict.fromkeys(by_address, frozenset[str]())
    changed = True
    while changed:
        changed = False
        for at in sorted(by_address, reverse=True):
            one = by_address[at]
            after = frozenset[str]().union(*(read[to] for to in successors(one) if to in read))
            written = frozenset[str]() if one.conditional else one.writes
            names = one.reads | frozenset(name.lstrip("!") for name in also.get(at, ()))
            before = frozenset(name for name in after if name.lstrip("!") not in written)
            before |= frozenset(name for name in guards if name.lstrip("!") in names)
            if before != read[at]:
                read[at], changed = before, True
    return read


def _ways(one: Instruction, state: _State, off: frozenset[str], words: Mapping[int, Word]) -> _Ways:
    """The state after an instruction, and which predicates are false; for a store, if it runs and if not."""
    guard = one.guard[1:]
    if one.conditional and guard in off:
        return ((state, off),)
    after = _after(one, state, words)
    if not (one.conditional and one.at in words and _stored(one)):
        return ((after, off),)
    true = state.get(guard, frozenset[str]())
    assert isinstance(true, frozenset)
    passed = {name: word for name, word in state.items() if name not in _counted(one, words[one.at])}
    return (after, off | {_contrary(name) for name in (guard, *true)}), (passed, off | {guard})


def _contrary(name: str) -> str:
    return name[1:] if name[0] == "!" else f"!{name}"


def _tests_flag(one: Instruction, word: Word) -> bool:
    """True if an instruction tests a flag: a register that is 0 where no record waits to be stored."""
    return word.kind == "flag" and one.code == "ISETP.NE.U32.AND"


def _off(one: Instruction, off: frozenset[str], to: int) -> frozenset[str]:
    """The predicates that are false after an instruction, on the path to an address."""
    kept = off - one.writes - {f"!{name}" for name in one.writes}
    if not one.conditional and one.name in ("ISETP", "PLOP3") and off & implied(one):
        kept |= {name for name in one.writes if name[0] == "P"}
    if not one.conditional and one.code == "ISETP.NE.U32.AND" and one.operands[2] in off and one.operands[3] == "RZ":
        kept |= {name for name in one.writes if name[0] == "P"}
    if not one.conditional and one.code == "MOV" and one.operands[1] == "RZ":
        kept |= one.writes
    passed = one.name == "BRA" and to != one.target and not one.second_condition
    if passed and one.conditional and one.guard[1] != "!":
        kept |= {one.guard[1:]}
    return kept


def implied(one: Instruction) -> frozenset[str]:
    """Conditions implied by a predicate that this instruction writes: operands such as "P6" and "!P0"."""
    if one.code.startswith("ISETP") and ".AND" in one.code:
        return frozenset({one.operands[-2 if ".EX" in one.code else -1]})  # .EX: the low words' comparison comes last
    if one.code == "PLOP3.LUT" and one.operands[-2] in _BOTH:
        return frozenset({one.operands[2], _BOTH[one.operands[-2]] + one.operands[3]})
    return frozenset()


def _after(one: Instruction, before: _State, words: Mapping[int, Word]) -> _State:
    state: _State = {
        name: word
        for name, word in before.items()
        if name not in one.writes and not (isinstance(word, frozenset) and _names(word) & one.writes)
    }
    if not one.conditional and (true := frozenset(name for name in implied(one) if not _names([name]) & one.writes)):
        state |= {name: true for name in one.writes if name[0] == "P"}
    if one.at not in words:
        return state
    word = words[one.at]
    for name in (*_stored(one), *(_counted(one, word) if _stored(one) else ())):
        if isinstance(stored := state.get(name), Word) and stored.kind != "always":
            del state[name]
    if _stored(one):  # a clock that waited elsewhere belongs to this record, and to no later one
        state = {name: some for name, some in state.items() if not _once(some, word)}
    if word.kind == "count":
        return state | {_counted(one, word)[0]: word}
    return state | {name: word for name in one.writes if name[0] != "P"}


def _once(some: Word | frozenset[str], word: Word) -> bool:
    """True if a register has a word that belongs to a single record."""
    return isinstance(some, Word) and some.record == word.record and some.kind == "once"


def _counted(one: Instruction, word: Word) -> tuple[str, str]:
    """The names under which a row's count is known: under the guard of an instruction, and without one."""
    return f"records of {word.record} {one.guard}", f"records of {word.record} "


def _names(literals: Iterable[str]) -> frozenset[str]:
    """The predicates of "P6", "!P0"."""
    return frozenset(name.lstrip("!") for name in literals)


def _wrong(one: Instruction, state: _State, words: Mapping[int, Word], skipped: bool) -> Iterator[Hazard]:
    """The errors of an instruction. skipped: where it is a value's, the stores of its record did not run."""
    if one.at not in words:
        return
    word = words[one.at]
    yield from _wrong_row(one, word, state)
    source = one.operands[1] if one.name == "MOV" and word.kind == "once" else ""
    if source.startswith("R") and source != "RZ" and not _once(state.get(source, frozenset()), word):
        yield Hazard(one.at, one.at, f"{source} has no clock of record {word.record[0]!r}")
    for name in _stored(one):
        written = state.get(name)
        if not isinstance(written, Word) or written.record != word.record:
            yield Hazard(one.at, one.at, f"{name} of record {word.record[0]!r} was not written by its marks alone")
    if word.kind == "held" and not skipped:
        for name in one.writes & state.keys():
            if state[name] == word:
                yield Hazard(one.at, one.at, f"{name} of record {word.record[0]!r} is written again before its store")


def _wrong_row(one: Instruction, word: Word, state: _State) -> Iterator[Hazard]:
    """The errors of an instruction of a row."""
    about, _ = word.record
    counts = [count for name in _counted(one, word) if isinstance(count := state.get(name), Word)]
    if word.kind == "count":
        if counts:
            yield Hazard(one.at, one.at, f"the records of row {about!r} are counted twice")
        if (
            one.name != "IADD3"
            or one.operands[:2] != (*one.writes, *one.writes)
            or int(one.operands[2], 16) != word.more
        ):
            yield Hazard(one.at, one.at, f"the records of row {about!r} are not counted: expected {word.more} more")
    elif word.clock and all(other != replace(word, clock=word.clock - 1) for other in state.values()):
        yield Hazard(one.at, one.at, f"clock {word.clock} of row {about!r} is read before the previous one")
    elif _stored(one):
        if word.more and all(count.more != word.more for count in counts):
            yield Hazard(one.at, one.at, f"the records of row {about!r} are not counted where it is stored")
        for clock, place in enumerate(wire.CLOCK_WORDS):
            register = _stored(one)[place]
            found = state.get(register)
            if isinstance(found, Word) and found.clock not in (None, clock):
                yield Hazard(one.at, one.at, f"{register} is not clock {clock} of row {about!r}")


def _stored(one: Instruction) -> tuple[str, ...]:
    """The words that an instruction stores, if it stores a record."""
    if one.code != _STORE:
        return ()
    first = int(one.operands[1][1:])
    return tuple(f"R{number}" for number in range(first, first + 4))
