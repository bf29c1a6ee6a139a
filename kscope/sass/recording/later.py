"""The instructions that store records elsewhere than at their marks, see deferring.py.

Several records that are stored together have their addresses computed first, because each of these waits until the
store before has read its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...capture import layout, wire
from ...errors import UnsupportedError
from ..cubin.control import Control
from ..cubin.insertion import New, Word
from .sites import BEGIN, END, Needed, Site, about, barrier, constants
from .state import State

PREDICATES = 7


def kept(site: Site, state: State) -> list[tuple[str, Word]]:
    """At a record's mark: that there is one to store, in the lanes that execute the operation."""
    if site.flag is None:
        return []
    guard = f"{site.guard} " if site.guard else ""
    text = f"MOV R{site.flag}, R{state.lane}" if state.on is None else f"IMAD.MOV.U32 R{site.flag}, RZ, RZ, 0x1"
    return [(guard + text, Word(site.record.key, "flag"))]


def stores(sites: Sequence[Site], state: State, last: str, needed: Needed) -> list[New]:
    """Store records.

    Args:
        sites: the ends of the records.
        state: what a lane knows.
        last: offset of the last place in a slab's ring: a register or a number.
        needed: predicates that the code needs there.
    """
    free = [number for number in range(PREDICATES) if f"P{number}" not in needed.predicates and number != state.on]
    if free or not any(_test(site, state) for site in sites):
        return [new for some in _groups(sites, state, free) for new in some.stored(last)]
    if state.spare is None:
        raise UnsupportedError("every predicate is in use where a record would be stored")
    saved = min(needed.calm or needed.predicates)
    waits = [] if saved in needed.calm else [state.new("NOP", Control(stall=13))]
    keep = state.new(f"P2R R{state.spare}, PR, RZ, {1 << int(saved[1:]):#x}")
    give = state.new(f"ISETP.NE.U32.AND {saved}, PT, R{state.spare}, RZ, PT")
    between = [new for some in _groups(sites, state, [int(saved[1:])]) for new in some.stored(last)]
    own = frozenset({saved})
    return [*waits, replace(keep, borrowed=own), *between, replace(give, borrowed=own)]


def _test(site: Site, state: State) -> str:
    """The comparison that gives a record's predicate, behind its result; empty if that is the kernel's."""
    if site.flag is not None:
        also = "PT" if state.on is None else f"P{state.on}"
        return f"PT, R{site.flag}, RZ, {also}"
    return f"PT, R{state.lane}, RZ, PT" if state.on is None else ""


@dataclass(frozen=True)
class _Group:
    """Records that are stored together.

    Attributes:
        sites: their ends.
        state: what a lane knows.
        tests: the predicate of each comparison.
        addresses: a register for the address of each record.
    """

    sites: tuple[Site, ...]
    state: State
    tests: dict[str, int]
    addresses: tuple[int, ...]

    def stored(self, last: str) -> Iterator[New]:
        """The instructions. last: offset of the last place in a slab's ring."""
        state, done = self.state, frozenset({self.state.scoreboard})
        for test, number in self.tests.items():
            site = next(one for one in self.sites if _test(one, state) == test)
            yield _new(state, site, f"ISETP.NE.U32.AND P{number}, {test}", flag=site.flag is not None)
        for site in self.sites:
            if site.act != "exit":
                yield from (_new(state, site, text) for text in constants(site))
                yield _new(state, site, f"IADD3 R{site.quad + END}, R{site.quad + BEGIN}, RZ, RZ")
            made = (_new(state, site, text) for text in barrier(site))
            yield from (one for one in made if not about(site, one).borrowed)  # the others stand at the mark
        for site, address in zip(self.sites, self.addresses, strict=True):
            on = f"@P{self._on(site)} "
            code = Control(waits=done) if site is self.sites[0] else None
            known = "" if state.on is None else f"@P{state.on} "  # elsewhere, what a lane knows was not written
            yield _new(state, site, f"{known}LOP3.LUT R{address}, R{state.offset}, {last}, RZ, 0xc0, !PT", code)
            yield _new(state, site, f"{on}IADD3 R{state.offset}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ")
        for site, address in zip(self.sites, self.addresses, strict=True):
            place = state.place(wire.HEAD_BYTES, f"R{address}")
            text = f"@P{self._on(site)} STG.E.128 {place}, R{site.quad}"
            yield _new(state, site, text, Control(reads=state.scoreboard))
        for site in self.sites:
            if site.flag is not None:
                yield _new(state, site, f"MOV R{site.flag}, RZ", flag=True)

    def _on(self, site: Site) -> int:
        """The predicate of a record's lanes."""
        test = _test(site, self.state)
        if test:
            return self.tests[test]
        assert self.state.on is not None
        return self.state.on


def _groups(sites: Sequence[Site], state: State, free: Sequence[int]) -> Iterator[_Group]:
    """Records in their order, as many together as there are predicates and registers for."""
    addresses = (state.address, *state.addresses)
    some, tests = list[Site](), dict[str, int]()
    for site in sites:
        test = _test(site, state)
        more = bool(test) and test not in tests
        if len(some) == len(addresses) or (more and len(tests) == len(free)):
            yield _Group(tuple(some), state, tests, addresses[: len(some)])
            some, tests, more = [], {}, bool(test)
        if more:
            tests[test] = free[len(tests)]
        some.append(site)
    if some:
        yield _Group(tuple(some), state, tests, addresses[: len(some)])


def _new(state: State, site: Site, text: str, code: Control | None = None, flag: bool = False) -> New:
    word = Word(site.record.key, "flag" if flag else "once")
    return replace(state.new(text, code), word_of=word)
