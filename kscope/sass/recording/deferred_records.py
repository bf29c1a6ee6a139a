"""Code that stores deferred records, see deferring.py. Addresses of records that are stored together are computed
first, because computing one waits until the previous store has read its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...capture import layout, wire
from ...errors import UnsupportedError
from ..cubin.control_codes import Control
from ..cubin.insertion import New, Word
from .lane_state import State
from .sites import BEGIN, END, Needed, Site, about, barrier, constants

PREDICATES = 7


@dataclass(frozen=True)
class Later:
    """Records that are stored at one place.

    Attributes:
        sites: their ends, in order.
        begins: flags that are set there, because the marks of these records follow on every path.
    """

    sites: tuple[Site, ...]
    begins: frozenset[int] = frozenset()


def kept(site: Site, state: State) -> list[New]:
    """At a record's mark: set the flag of the record in the lanes that execute the operation."""
    if site.warp_flag is not None:
        text = f"USEL UR{site.warp_flag}, URZ, 0x1, {site.guard.lstrip('@!')}"
        return [about(site, _new(state, site, text))]
    if site.flag is None or site.flagged:
        return []
    return [_set(site, state, f"{site.guard} " if site.guard else "")]


def stores(some: Later, state: State, last: str, needed: Needed) -> list[New]:
    """Store records.

    Args:
        some: the records.
        state: registers of the lane's state.
        last: offset of the last place in a slab's ring: a register or a number.
        needed: predicates that the code needs there.
    """
    guards = {site.guard.lstrip("@!") for site in some.sites if _reads_guard(site)}
    busy = {*needed.predicates, f"P{state.on}", *guards}
    free = [number for number in range(PREDICATES) if f"P{number}" not in busy]
    flags = list(_flags(some, state))
    if free or not any(_tests(site, state) for site in some.sites):
        return [*(new for one in _groups(some.sites, state, free) for new in one.stored(last)), *flags]
    if state.spare is None:
        raise UnsupportedError("every predicate is in use where a record would be stored")
    saved = min(needed.calm - guards or needed.predicates - guards)
    waits = [] if saved in needed.calm else [state.new("NOP", Control(stall=13))]
    keep = state.new(f"P2R R{state.spare}, PR, RZ, {1 << int(saved[1:]):#x}")
    give = state.new(f"ISETP.NE.U32.AND {saved}, PT, R{state.spare}, RZ, PT")
    between = [new for one in _groups(some.sites, state, [int(saved[1:])]) for new in one.stored(last)]
    own = frozenset({saved})
    return [*waits, replace(keep, borrowed=own), *between, replace(give, borrowed=own), *flags]


def _flags(some: Later, state: State) -> Iterator[New]:
    """Clear the flags of stored records, and set those of the next ones."""
    for flag, site in {site.flag: site for site in reversed(some.sites)}.items():
        if flag in some.begins:
            yield _set(site, state)
        elif flag is not None:
            yield _new(state, site, f"MOV R{flag}, RZ", flag=True)


def _set(site: Site, state: State, guard: str = "") -> New:
    text = f"MOV R{site.flag}, R{state.lane}" if state.on is None else f"IMAD.MOV.U32 R{site.flag}, RZ, RZ, 0x1"
    return about(site, _new(state, site, guard + text, flag=True))


def _reads_guard(site: Site) -> bool:
    """True if a record is stored under its guard; else its flag includes the guard."""
    return bool(site.guard) and site.warp_flag is None and (site.flag is None or site.flagged)


def _tests(site: Site, state: State) -> tuple[str, ...]:
    """The comparisons that compute a record's predicate, "#"; empty if the kernel has it."""
    also = "PT" if state.on is None else f"P{state.on}"
    found = list[str]()
    if site.flag is not None:
        found.append(f"ISETP.NE.U32.AND #, PT, R{site.flag}, RZ, {also}")
    elif state.on is None:
        found.append(f"ISETP.NE.U32.AND #, PT, R{state.lane}, RZ, PT")
    if site.warp_flag is not None:
        known, flag = "#" if found else also, f"UR{site.warp_flag}"
        if "!" not in site.guard:  # it is 0 where the predicate is true
            found.append(f"UIADD3 {flag}, {flag}, 0xffffffff, URZ")
        found.append(f"ISETP.NE.U32.AND #, PT, RZ, {flag}, {known}")
    if _reads_guard(site):
        both = 0x20 if "!" in site.guard else 0x80
        found.append(f"PLOP3.LUT #, PT, {'#' if found else also}, {site.guard.lstrip('@!')}, PT, {both:#x}, 0x0")
    return tuple(found)


@dataclass(frozen=True)
class _Group:
    """Records that are stored together.

    Attributes:
        sites: their ends.
        state: registers of the lane's state.
        tests: the predicate of each row of comparisons.
        addresses: a register for the address of each record.
        waits: the previous store may not have read one of these.
    """

    sites: tuple[Site, ...]
    state: State
    tests: dict[tuple[str, ...], int]
    addresses: tuple[int, ...]
    waits: bool

    def stored(self, last: str) -> Iterator[New]:
        """The instructions. last: offset of the last place in a slab's ring."""
        state, done = self.state, frozenset({self.state.scoreboard})
        for tests, number in self.tests.items():
            site = next(one for one in self.sites if _tests(one, state) == tests)
            for text in tests:
                new = _new(state, site, text.replace("#", f"P{number}"), flag=site.flag is not None)
                yield about(site, new) if _reads_guard(site) else new
        for site in self.sites:
            if site.act != "exit":
                yield from (_new(state, site, text) for text in constants(site))
                yield _new(state, site, f"IADD3 R{site.quad + END}, R{site.quad + BEGIN}, RZ, RZ")
            made = (_new(state, site, text) for text in barrier(site))
            yield from (one for one in made if not about(site, one).borrowed)  # the others stand at the mark
        known = "" if state.on is None else f"@P{state.on} "  # elsewhere, what a lane knows was not written
        for site, address in zip(self.sites, self.addresses, strict=True):
            code = Control(waits=done) if self.waits and site is self.sites[0] else None
            yield _new(state, site, f"{known}LOP3.LUT R{address}, R{state.offset}, {last}, RZ, 0xc0, !PT", code)
            count = f"IADD3 R{state.offset}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ"
            yield _new(state, site, f"@P{self._on(site)} {count}")
        for site, address in zip(self.sites, self.addresses, strict=True):
            place = state.place(wire.HEAD_BYTES, f"R{address}")
            text = f"@P{self._on(site)} STG.E.128 {place}, R{site.quad}"
            yield _new(state, site, text, Control(reads=state.scoreboard))

    def _on(self, site: Site) -> int:
        """The predicate of a record's lanes."""
        found = self.tests.get(_tests(site, self.state), self.state.on)
        assert found is not None
        return found


def _groups(sites: Sequence[Site], state: State, free: Sequence[int]) -> Iterator[_Group]:
    """Records in order, as many together as there are predicates and registers."""
    every = (state.address, *state.addresses)
    some, tests, left, waits = list[Site](), dict[tuple[str, ...], int](), every, True
    for site in sites:
        needed = _tests(site, state)
        more = bool(needed) and needed not in tests
        if len(some) == len(left) or (more and len(tests) == len(free)):
            yield _Group(tuple(some), state, tests, left[: len(some)], waits)
            left = left[len(some) :]
            some, tests, more, waits = [], {}, bool(needed), not left
            left = left or every
        if more:
            tests[needed] = free[len(tests)]
        some.append(site)
    if some:
        yield _Group(tuple(some), state, tests, left[: len(some)], waits)


def _new(state: State, site: Site, text: str, code: Control | None = None, flag: bool = False) -> New:
    word = Word(site.record.key, "flag" if flag else "once")
    return replace(state.new(text, code), word_of=word)
