"""The instructions of a record: those that marks insert, and those that replace the instructions which held their
values. sites.py has their data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...capture import layout, wire
from ...errors import UnsupportedError
from ..cubin.control_codes import Control
from ..cubin.insertion import New, Word
from ..encoding import forms
from . import deferred_records, fragments, stall_cycles
from .lane_state import State
from .sites import END, VALUE, Needed, Site, about, barrier, constants, guarded

_VALUE_TAKES = 6
"""Cycles from an instruction that makes a value to its readers."""


@dataclass(frozen=True)
class Steps:
    """The instructions of a flexible site.

    Attributes:
        read: reads its clock.
        early: read the operands of the mark's instruction.
        follows: the rest.
    """

    read: New
    early: list[New]
    follows: list[New]


@dataclass(frozen=True)
class Writer:
    """Writes the instructions of marks.

    Attributes:
        state: registers of the lane's state.
        last: offset of the last place in a slab's ring: a register or a number.
        low: the state in the part of the kernel with few registers; None if it is in the same ones.
    """

    state: State
    last: str
    low: State | None = None

    def at(self, site: Site) -> Writer:
        """The writer of a site."""
        return replace(self, state=self.low, low=None) if site.low and self.low is not None else self

    def flexible(self, site: Site) -> bool:
        """True if the kernel's instructions may come between those of a site."""
        spot = site.spot
        return not (spot.guard or spot.after or site.record.conditional)

    def steps(self, site: Site, recording: int) -> Steps:
        """The instructions of a flexible site. spreading.spread() places them.

        Args:
            site: the site.
            recording: the predicate of the lanes that record; without one in the kernel, one that is free there.
        """
        state, quad = self.state, site.quad
        done = frozenset({state.scoreboard})

        def new(text: str, code: Control | None = None) -> New:
            made = state.new(text, code)
            return about(site, replace(made, word_of=self._word(site, text)))

        on, test = f"@P{recording} ", list[New]()
        early = [new(text) for text in barrier(site)]
        if site.guard:
            early = [*(new(text) for text, _ in self._guarded(site, recording)), *early]
        elif state.on is None:
            on, test = "", [new(f"ISETP.NE.U32.AND P{recording}, PT, R{state.lane}, RZ, PT")]
        written = [new(text) for text in constants(site)]
        store = [
            *test,
            new(f"{on}LOP3.LUT R{state.address}, R{state.offset}, {self.last}, RZ, 0xc0, !PT", Control(waits=done)),
            *([] if site.aside is None else [new(f"MOV R{quad}, R{site.aside}"), *written]),
            *([] if state.uniform else [new(f"{on}IADD3 R{state.address}, R{state.address}, {state.base}, RZ")]),
            new(f"{on}IADD3 R{state.offset}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ"),
            *([new(f"{on}{self._more(site)}")] if site.more else []),
            new(f"@P{recording} STG.E.128 {state.place(wire.HEAD_BYTES)}, R{quad}", Control(reads=state.scoreboard)),
        ]
        code = Control(waits=done) if site.waits else Control()
        if site.later:
            values = [new(text) for text in barrier(site)]
            values = [one for one in values if one.borrowed]  # the others are made at the store
            return Steps(
                new(f"CS2R.32 R{site.clock}, SR_CLOCKLO", code), [*deferred_records.kept(site, state), *values], []
            )
        if site.act in ("exit", "clock"):
            return Steps(new(f"CS2R.32 R{site.clock}, SR_CLOCKLO", code), [], store if site.act == "exit" else [])
        read = new(f"CS2R.32 R{quad if site.aside is None else site.aside}, SR_CLOCKLO", code)
        if site.act == "enter":
            return Steps(read, early, written if site.aside is None else [])
        return Steps(read, early, [*written, new(f"MOV R{quad + END}, R{quad}"), *store])

    def elsewhere(self, some: deferred_records.Later, needed: Needed) -> list[New]:
        """Store the records of sites that are stored later. needed: predicates that the code needs there."""
        return deferred_records.stores(some, self.state, self.last, needed)

    def inserted(self, site: Site, needed: Needed) -> list[New]:
        """The code at a site's spot. needed: predicates that the code needs there."""
        made = {"enter": self._enter, "exit": self._leave, "clock": self._clock}.get(site.act, self._point)
        saved = self._saved(site, needed)
        news = [(text, self.state.new(text, code)) for text, code in made(site, needed)]
        return [about(site, replace(new, word_of=self._word(site, text)), saved) for text, new in news]

    def replaced(self, site: Site) -> dict[int, int]:
        """Replacements for the instructions that held the site's value and predicate."""
        found = dict[int, int]()
        for one, word in zip(site.held, (VALUE, END), strict=True):
            if one is None:
                continue
            code = Control(max(2, one.control.stall), one.control.stay, waits=one.control.waits)
            text = f"{one.guard} MOV R{site.quad + word}, {one.operands[-1]}"
            found[one.at] = forms.word(text, self._waiting(code), self.state.arch)
        return found

    def _waiting(self, code: Control) -> Control:
        """Wait until the store of the record before has read its registers."""
        return Control(code.stall, code.stay, waits=code.waits | {self.state.scoreboard})

    def _enter(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        guard = guarded(site)
        code = self._waiting(Control()) if site.waits else Control()
        yield f"{guard}CS2R.32 R{site.quad if site.aside is None else site.aside}, SR_CLOCKLO", code
        yield from ((text, Control(stall=_VALUE_TAKES)) for text in barrier(site))
        if site.aside is None:
            yield from ((text, Control()) for text in constants(site))

    def _clock(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        yield f"CS2R.32 R{site.clock}, SR_CLOCKLO", self._waiting(Control()) if site.waits else Control()

    def _more(self, site: Site) -> str:
        """Count the records of a row."""
        return f"IADD3 R{self.state.extra}, R{self.state.extra}, {site.more:#x}, RZ"

    def _word(self, site: Site, text: str) -> Word:
        """Kind of the word that an instruction of a site writes."""
        if site.word is not None and "CS2R" in text:
            return Word(site.record.key, clock=wire.CLOCK_WORDS.index(site.word))
        if site.word is not None and text == f"MOV R{site.quad}, R{site.aside}":
            return Word(site.record.key, clock=0)
        if site.more and self._more(site) in text:
            return Word(site.record.key, "count", more=site.more)
        return Word(site.record.key, more=site.more if "STG" in text else 0)

    def _point(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        """An instant or a counter: one clock is its begin and its end."""
        guard = guarded(site)
        soon = Control(stall=stall_cycles.clock_cycles(self.state.arch))
        yield f"{guard}CS2R.32 R{site.quad}, SR_CLOCKLO", self._waiting(soon)
        yield from ((text, Control(stall=_VALUE_TAKES)) for text in barrier(site))
        yield from ((text, Control()) for text in constants(site))
        test = list(self._tests(site, needed))
        if test and site.record.conditional:
            yield "NOP", Control(stall=6)
        yield from test
        yield f"{guard}MOV R{site.quad + END}, R{site.quad}", Control(stall=2)
        yield from self._store(site, needed)

    def _leave(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        code = self._waiting(Control()) if site.waits else Control()
        read = f"{guarded(site)}CS2R.32 R{site.clock}, SR_CLOCKLO", code
        test = list(self._tests(site, needed))
        if site.record.conditional:  # the predicate is in the register of the end
            yield from (*test, read)
        else:
            yield from (read, *test)
        yield from self._store(site, needed)

    def _owner(self, site: Site, needed: Needed) -> tuple[int, bool]:
        """The predicate of the lanes that store, and True if it must be computed."""
        if self.state.on is not None and not site.record.conditional and not site.guard:
            return self.state.on, False
        taken = {f"P{self.state.on}", site.guard.lstrip("@!"), *needed.predicates}
        free = [number for number in range(deferred_records.PREDICATES) if f"P{number}" not in taken]
        if not free:
            if self.state.spare is None:
                raise UnsupportedError(f"every predicate is in use at {site.spot.at:#x}")
            own = {site.guard.lstrip("@!"), f"P{self.state.on}"}
            free = [int(min(needed.calm - own or needed.predicates - own)[1:])]
        return free[0], True

    def _saved(self, site: Site, needed: Needed) -> str:
        """The predicate that is saved and restored because the code needs it; empty if one is free."""
        own, computed = self._owner(site, needed) if site.act not in ("enter", "clock") else (0, False)
        return f"P{own}" if computed and f"P{own}" in needed.predicates else ""

    def _tests(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        """Compute the predicate of the lanes that store."""
        own, computed = self._owner(site, needed)
        if not computed:
            return
        if saved := self._saved(site, needed):
            if saved not in needed.calm:
                yield "NOP", Control(stall=13)
            yield f"P2R R{self.state.spare}, PR, RZ, {1 << int(saved[1:]):#x}", Control(stall=2)
        yield from self._guarded(site, own)
        if site.record.conditional:
            also = self.state.on if self.state.on is not None and not site.guard else own
            yield f"ISETP.NE.U32.AND P{own}, PT, R{site.quad + END}, RZ, P{also}", Control(stall=2)

    def _guarded(self, site: Site, own: int) -> Iterator[tuple[str, Control]]:
        """Compute the predicate of the lanes that record and have the site's guard."""
        guard, on, soon = site.guard.removeprefix("@"), self.state.on, Control(stall=13)
        negated, then = guard.startswith("!"), Control(stall=5)
        uniform = guard.lstrip("!").startswith("UP")
        if uniform or (site.spot.source is not None and site.spot.source.voted):
            if uniform:
                yield f"PLOP3.LUT P{own}, PT, PT, PT, {guard.lstrip('!')}, 0x80, 0x0", then
            else:
                yield f"VOTE.ANY P{own}, {guard}", soon
            if uniform and negated:
                yield f"PLOP3.LUT P{own}, PT, P{own}, PT, PT, 0x8, 0x0", then
            guard, negated = f"P{own}", False
        if not guard and on is not None:
            return
        if guard and on is not None:
            both = 0x20 if negated else 0x80
            yield f"PLOP3.LUT P{own}, PT, P{on}, {guard.lstrip('!')}, PT, {both:#x}, 0x0", soon
            return
        lanes = guard if guard and not negated else "PT"
        test = f"ISETP.NE.U32.AND P{own}, PT, R{self.state.lane}, RZ, {lanes}"
        yield test, Control(stall=4) if negated else soon
        if negated:
            yield f"PLOP3.LUT P{own}, PT, P{own}, {guard[1:]}, PT, 0x20, 0x0", soon

    def _store(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        state, (own, computed) = self.state, self._owner(site, needed)
        waits = frozenset({state.scoreboard})
        count = f"IADD3 R{state.offset}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ"
        # the clock and the address are ready when the store reads them: eight and five cycles later
        soon = site.record.conditional or bool(site.guard)
        on = "" if state.on is None else f"@P{state.on} "  # elsewhere, the lane's state was not written
        offset = f"{on}LOP3.LUT R{state.address}, R{state.offset}, {self.last}, RZ, 0xc0, !PT"
        yield offset, Control(stall=4 if soon else 1, waits=waits)
        if site.aside is not None:
            yield f"MOV R{site.quad}, R{site.aside}", Control(stall=5)
            yield from ((text, Control()) for text in constants(site))
        if not soon:  # lanes without a slab may count as well
            yield on + count, Control(stall=3)
        if site.more:
            yield on + self._more(site), Control(stall=2)
        stall = 13 if computed else 5
        if not state.uniform:
            yield f"{on}IADD3 R{state.address}, R{state.address}, {state.base}, RZ", Control(stall=stall)
        else:
            yield "NOP", Control(stall=stall)
        yield (
            f"@P{own} STG.E.128 {state.place(wire.HEAD_BYTES)}, R{site.quad}",
            Control(stall=2, reads=state.scoreboard),
        )
        if soon:
            yield f"@P{own} {count}", Control(stall=6)
        if saved := self._saved(site, needed):
            yield f"ISETP.NE.U32.AND {saved}, PT, R{self.state.spare}, RZ, PT", Control(stall=13)


def last(state: State, capacity: str) -> str:
    """The offset of the last place in a slab's ring, as an operand. capacity: the last place, see ptx.Kernel.last."""
    return state.last if state.last is not None else f"{int(capacity) << fragments.LOG2_RECORD:#x}"
