"""Code that stores deferred records, see deferring.py. Addresses of records that are stored together are computed
first, because computing one waits until the previous store has read its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...capture import layout, wire
from ...errors import UnsupportedError
from ..cubin.control_codes import Control
from ..cubin.insertion import New, Word
from . import short_rows
from .lane_state import State
from .regions import Key
from .short_rows import ShortRow
from .sites import BEGIN, END, Needed, Site, about, barrier, constants

PREDICATES = 7


@dataclass(frozen=True)
class Later:
    """Records that are stored at one place.

    Attributes:
        sites: their ends, in order.
        begins: flags that are set there, because the marks of these records follow on every path.
        rows: of two of these records that follow each other, by the keys of both.
    """

    sites: tuple[Site, ...]
    begins: frozenset[int] = frozenset()
    rows: Mapping[tuple[Key, Key], ShortRow] = field(default_factory=dict[tuple[Key, Key], ShortRow])


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
    if not free and state.spare is None:
        some = replace(some, rows={})
    if free or not (some.rows or any(_tests(site, state) for site in some.sites)):
        return [*(new for one in _groups(some, state, free) for new in one.stored(last)), *flags]
    if state.spare is None:
        raise UnsupportedError("every predicate is in use where a record would be stored")
    saved = min(needed.calm - guards or needed.predicates - guards)
    waits = [] if saved in needed.calm else [state.new("NOP", Control(stall=13))]
    keep = state.new(f"P2R R{state.spare}, PR, RZ, {1 << int(saved[1:]):#x}")
    give = state.new(f"ISETP.NE.U32.AND {saved}, PT, R{state.spare}, RZ, PT")
    between = [new for one in _groups(some, state, [int(saved[1:])]) for new in one.stored(last)]
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
            yield from _words(site, state)
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


@dataclass(frozen=True)
class _Pair:
    """Two records that are stored in one row if their clocks are close, else as two.

    Attributes:
        sites, state, waits: as in _Group.
        row: the row.
        predicate: a free one.
        addresses: two registers.
    """

    sites: tuple[Site, Site]
    state: State
    row: ShortRow
    predicate: int
    addresses: tuple[int, ...]
    waits: bool

    def stored(self, last: str) -> Iterator[New]:
        """The instructions. last: offset of the last place in a slab's ring."""
        state, row, on, (address, other) = self.state, self.row, f"P{self.predicate}", self.addresses
        first, second = self.sites
        tests = [text.replace("#", on) for text in _tests(first, state)]
        lanes = on if tests else f"P{state.on}"
        shorts = list(short_rows.shorts(row, first, second))
        registers = [one for one, _ in shorts]
        code = Control(waits=frozenset({state.scoreboard})) if self.waits else None
        for site in self.sites:
            yield from _words(site, state)
        for text in (text for _, some in shorts for text in some):
            yield self._new(text, code)
            code = None
        yield from self._tested(tests)
        yield from map(self._new, short_rows.large(registers, other))
        yield self._new(f"ISETP.EQ.U32.AND {on}, PT, R{other}, RZ, {lanes}")
        known = "" if state.on is None else f"@P{state.on} "  # elsewhere, what a lane knows was not written
        yield self._new(f"{known}LOP3.LUT R{address}, R{state.offset}, {last}, RZ, 0xc0, !PT")
        yield from map(self._new, short_rows.packed(row, first, registers))
        count = f"@{on} IADD3 R{state.offset}, R{state.offset}, {{:#x}}, RZ"
        more = state.new(f"@{on} IADD3 R{state.extra}, R{state.extra}, 0x1, RZ")
        yield replace(more, word_of=Word(row.key, "count", more=1))
        yield self._new(count.format(layout.RECORD_BYTES))
        keys = first.record.key, second.record.key
        yield self._store(row.quad, address, Word(row.key, more=1, row=row.about, parts=keys))
        yield from self._tested(tests)
        yield self._new(f"ISETP.NE.U32.AND {on}, PT, R{other}, RZ, {lanes}")
        yield _new(state, second, f"{known}IADD3 R{other}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ")
        yield _new(state, second, f"{known}LOP3.LUT R{other}, R{other}, {last}, RZ, 0xc0, !PT")
        yield _new(state, second, count.format(2 * layout.RECORD_BYTES))
        yield self._store(first.quad, address, Word(keys[0]))
        yield self._store(second.quad, other, Word(keys[1]))

    def _tested(self, tests: Sequence[str]) -> Iterator[New]:
        site = self.sites[0]
        for text in tests:
            new = _new(self.state, site, text, flag=site.flag is not None)
            yield about(site, new) if _reads_guard(site) else new

    def _new(self, text: str, code: Control | None = None) -> New:
        return replace(self.state.new(text, code), word_of=Word(self.row.key))

    def _store(self, quad: int, address: int, word: Word) -> New:
        place = self.state.place(wire.HEAD_BYTES, f"R{address}")
        text = f"@P{self.predicate} STG.E.128 {place}, R{quad}"
        return replace(self.state.new(text, Control(reads=self.state.scoreboard)), word_of=word)


def _words(site: Site, state: State) -> Iterator[New]:
    """Write the words of a record that its mark did not write."""
    if site.act != "exit":
        yield from (_new(state, site, text) for text in constants(site))
        yield _new(state, site, f"IADD3 R{site.quad + END}, R{site.quad + BEGIN}, RZ, RZ")
    made = (_new(state, site, text) for text in barrier(site))
    yield from (one for one in made if not about(site, one).borrowed)  # the others stand at the mark


def _groups(places: Later, state: State, free: Sequence[int]) -> Iterator[_Group | _Pair]:
    """Records in order, as many together as there are predicates and registers."""
    every, sites = (state.address, *state.addresses), list(places.sites)
    some, tests, left, waits = list[Site](), dict[tuple[str, ...], int](), every, True
    while sites:
        site = sites.pop(0)
        row = places.rows.get((site.record.key, sites[0].record.key)) if sites else None
        if row is not None and len(every) > 1:
            if some:
                yield _Group(tuple(some), state, tests, left[: len(some)], waits)
                left, some, tests, waits = left[len(some) :], [], {}, False
            if len(left) <= 1:
                left, waits = every, True
            yield _Pair((site, sites.pop(0)), state, row, free[0], left[:2], waits)
            left, waits = left[2:], False
            continue
        if not left and not some:
            left, waits = every, True
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
