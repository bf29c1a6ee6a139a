"""The instructions of a record: what marks insert, and what stands in place of those that held their values.

A record is four registers in a row: its begin, its id, its end, its value. Until the end is read, its register holds
the predicate of the mark, if the record has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ...capture import layout, wire
from ...errors import UnsupportedError
from ...marks import operations
from ..cubin.control import Control
from ..cubin.insertion import New, Word
from ..cubin.instructions import Instruction
from ..encoding import forms
from ..placing.paths import Spot
from . import fragments, timing
from .regions import Record
from .registers import State

_BEGIN, _ID, _END, _VALUE = range(4)
PREDICATES = 7
_VALUE_TAKES = 6
"""Cycles of an instruction that makes a value, for those behind it."""


@dataclass(frozen=True)
class Needed:
    """Predicates at a place: those that the code needs, and those of them that it has not written just before."""

    predicates: frozenset[str]
    calm: frozenset[str]


@dataclass(frozen=True)
class Site:
    """One copy of a mark.

    Attributes:
        act: what the mark does.
        record: what it writes.
        quad: the first register of the record.
        own: the record alone has these registers, so its id is in them already.
        spot: where the mark stands.
        value, when: constants; None if they are in registers, or if there are none.
        held: the instructions that hold the value and the predicate, None without.
        waits: the store of an earlier record may not have read these registers yet.
        word: the row's word that its clock is; None of a record.
        more: records of the row that it stores, less one, if they are counted.
        aside: a register in which the first clock waits until the record is stored; None if it is read into the record.
        pipeline: its mark is of a pipeline.
        flag: a register that is not 0 while the record is left to be stored elsewhere; None if it is stored here.
    """

    act: str
    record: Record
    quad: int
    own: bool
    spot: Spot
    value: int | None
    when: int | None
    held: tuple[Instruction | None, Instruction | None]
    waits: bool = True
    word: int | None = None
    more: int = 0
    aside: int | None = None
    pipeline: bool = False
    flag: int | None = None

    @property
    def guard(self) -> str:
        """The predicate of the lanes that record; empty for none."""
        source = self.spot.source
        return self.spot.guard or (source.guard if source is not None else "")

    @property
    def clock(self) -> int:
        """The register of its clock."""
        return self.quad + (self.word if self.word is not None else _END if self.act == "exit" else _BEGIN)

    @property
    def early(self) -> frozenset[int]:
        """The registers that are written up to the record's begin, or by the second clock of a row."""
        if self.act == "clock":
            return frozenset({self.clock})
        if self.aside is not None:
            return frozenset({self.aside})
        words = {_BEGIN}
        if not self.own:
            words |= {_ID} if self.record.full else {_ID, _VALUE}
        if self.value is not None or self.held[0] is not None or self.spot.source is not None:
            words.add(_VALUE)
        if self.record.conditional:
            words.add(_END)
        return frozenset(self.quad + word for word in words)


@dataclass(frozen=True)
class Steps:
    """The instructions of a flexible site.

    Attributes:
        read: reads its clock.
        early: read the operands of the mark's own instruction.
        follows: what follows.
    """

    read: New
    early: list[New]
    follows: list[New]


@dataclass(frozen=True)
class Writer:
    """Writes the instructions of marks.

    Attributes:
        state: what a lane knows.
        last: offset of the last place in a slab's ring: a register or a number.
    """

    state: State
    last: str

    def flexible(self, site: Site) -> bool:
        """Whether the kernel's own instructions may stand between those of a site."""
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
            return replace(made, word_of=self._word(site, text), borrowed=_borrowed(site, made))

        on, test = f"@P{recording} ", list[New]()
        early = [new(text) for text in _valued(site)]
        if site.guard:
            early = [*(new(text) for text, _ in self._guarded(site, recording)), *early]
        elif state.on is None:
            on, test = "", [new(f"ISETP.NE.U32.AND P{recording}, PT, R{state.lane}, RZ, PT")]
        constants = [new(text) for text, _ in self._constants(site)]
        store = [
            *test,
            new(f"{on}LOP3.LUT R{state.address}, R{state.offset}, {self.last}, RZ, 0xc0, !PT", Control(waits=done)),
            *([] if site.aside is None else [new(f"MOV R{quad}, R{site.aside}"), *constants]),
            *([] if state.uniform else [new(f"{on}IADD3 R{state.address}, R{state.address}, {state.base}, RZ")]),
            new(f"{on}IADD3 R{state.offset}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ"),
            *([new(f"{on}{self._more(site)}")] if site.more else []),
            new(f"@P{recording} STG.E.128 {state.place(wire.HEAD_BYTES)}, R{quad}", Control(reads=state.scoreboard)),
        ]
        code = Control(waits=done) if site.waits else Control()
        if site.flag is not None:
            guard = f"{site.guard} " if site.guard else ""
            kept = new(f"{guard}MOV R{site.flag}, R{state.lane}")
            kept = replace(kept, word_of=Word(site.record.key, "flag"))
            values = [new(text) for text in _valued(site)]
            values = [one for one in values if one.borrowed]  # the others can be made later
            return Steps(new(f"CS2R.32 R{site.clock}, SR_CLOCKLO", code), [kept, *values], [])
        if site.act in ("exit", "clock"):
            return Steps(new(f"CS2R.32 R{site.clock}, SR_CLOCKLO", code), [], store if site.act == "exit" else [])
        read = new(f"CS2R.32 R{quad if site.aside is None else site.aside}, SR_CLOCKLO", code)
        if site.act == "enter":
            return Steps(read, early, constants if site.aside is None else [])
        return Steps(read, early, [*constants, new(f"MOV R{quad + _END}, R{quad}"), *store])

    def left(self, site: Site, recording: int) -> list[New]:
        """Store the record of a site that is left, if it is. recording: a predicate that is free."""
        state, quad = self.state, site.quad

        def new(text: str, code: Control | None = None, kind: Literal["once", "flag"] = "once") -> New:
            more = replace(self._word(site, text), kind=kind)
            return replace(state.new(text, code), word_of=more)

        on, done = f"@P{recording} ", frozenset({state.scoreboard})
        return [
            new(f"ISETP.NE.U32.AND P{recording}, PT, R{site.flag}, RZ, PT", kind="flag"),
            *([] if site.act == "exit" else [new(f"IADD3 R{quad + _END}, R{quad}, RZ, RZ")]),
            *(one for one in map(new, _valued(site)) if not _borrowed(site, one)),
            new(f"LOP3.LUT R{state.address}, R{state.offset}, {self.last}, RZ, 0xc0, !PT", Control(waits=done)),
            *([] if state.uniform else [new(f"{on}IADD3 R{state.address}, R{state.address}, {state.base}, RZ")]),
            new(f"{on}IADD3 R{state.offset}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ"),
            new(f"{on}STG.E.128 {state.place(wire.HEAD_BYTES)}, R{quad}", Control(reads=state.scoreboard)),
            new(f"MOV R{site.flag}, RZ", kind="flag"),
        ]

    def inserted(self, site: Site, needed: Needed) -> list[New]:
        """What stands at a site's spot. needed: predicates that the code needs there."""
        made = {"enter": self._enter, "exit": self._leave, "clock": self._clock}.get(site.act, self._point)
        saved = self._saved(site, needed)
        news = [(text, self.state.new(text, code)) for text, code in made(site, needed)]
        return [
            replace(new, borrowed=_borrowed(site, new, saved), word_of=self._word(site, text)) for text, new in news
        ]

    def replaced(self, site: Site) -> dict[int, int]:
        """Other instructions in place of those that held the site's value and predicate."""
        found = dict[int, int]()
        for one, word in zip(site.held, (_VALUE, _END), strict=True):
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
        guard = _guard(site)
        code = self._waiting(Control()) if site.waits else Control()
        yield f"{guard}CS2R.32 R{site.quad if site.aside is None else site.aside}, SR_CLOCKLO", code
        yield from ((text, Control(stall=_VALUE_TAKES)) for text in _valued(site))
        if site.aside is None:
            yield from self._constants(site)

    def _clock(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        yield f"CS2R.32 R{site.clock}, SR_CLOCKLO", self._waiting(Control()) if site.waits else Control()

    def _more(self, site: Site) -> str:
        """Counts the records of a row."""
        return f"IADD3 R{self.state.extra}, R{self.state.extra}, {site.more:#x}, RZ"

    def _word(self, site: Site, text: str) -> Word:
        """What an instruction of a site writes."""
        if site.word is not None and "CS2R" in text:
            return Word(site.record.key, clock=wire.CLOCK_WORDS.index(site.word))
        if site.word is not None and text == f"MOV R{site.quad}, R{site.aside}":
            return Word(site.record.key, clock=0)
        if site.more and self._more(site) in text:
            return Word(site.record.key, "count", more=site.more)
        return Word(site.record.key, more=site.more if "STG" in text else 0)

    def _constants(self, site: Site) -> Iterator[tuple[str, Control]]:
        """The words of a record that are known when its begin is read."""
        words = dict[int, int]()
        if not site.own:
            words[_ID] = site.record.id
        computed = site.held[0] is not None or (site.spot.source is not None and not site.spot.source.constant)
        if not computed and (site.value is not None or not (site.own or site.record.full)):
            words[_VALUE] = site.value or 0
        if site.record.conditional and site.held[1] is None:
            words[_END] = 1 if site.when is None else site.when
        for word, value in words.items():
            yield f"{_guard(site)}IMAD.MOV.U32 R{site.quad + word}, RZ, RZ, {value & 0xFFFFFFFF:#x}", Control()

    def _point(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        """An instant or a counter: one clock is its begin and its end."""
        guard = _guard(site)
        soon = Control(stall=timing.clock_cycles(self.state.arch))
        yield f"{guard}CS2R.32 R{site.quad}, SR_CLOCKLO", self._waiting(soon)
        yield from ((text, Control(stall=_VALUE_TAKES)) for text in _valued(site))
        yield from self._constants(site)
        test = list(self._tests(site, needed))
        if test and site.record.conditional:
            yield "NOP", Control(stall=6)
        yield from test
        yield f"{guard}MOV R{site.quad + _END}, R{site.quad}", Control(stall=2)
        yield from self._store(site, needed)

    def _leave(self, site: Site, needed: Needed) -> Iterator[tuple[str, Control]]:
        code = self._waiting(Control()) if site.waits else Control()
        read = f"{_guard(site)}CS2R.32 R{site.clock}, SR_CLOCKLO", code
        test = list(self._tests(site, needed))
        if site.record.conditional:  # the predicate is in the register of the end
            yield from (*test, read)
        else:
            yield from (read, *test)
        yield from self._store(site, needed)

    def _owner(self, site: Site, needed: Needed) -> tuple[int, bool]:
        """The predicate of the lanes that store, and whether it must be computed."""
        if self.state.on is not None and not site.record.conditional and not site.guard:
            return self.state.on, False
        taken = {f"P{self.state.on}", site.guard.lstrip("@!"), *needed.predicates}
        free = [number for number in range(PREDICATES) if f"P{number}" not in taken]
        if not free:
            if self.state.spare is None:
                raise UnsupportedError(f"every predicate is in use at {site.spot.at:#x}")
            own = {site.guard.lstrip("@!"), f"P{self.state.on}"}
            free = [int(min(needed.calm - own or needed.predicates - own)[1:])]
        return free[0], True

    def _saved(self, site: Site, needed: Needed) -> str:
        """The predicate that the code needs, and that is saved and restored; empty if one is free."""
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
            yield f"ISETP.NE.U32.AND P{own}, PT, R{site.quad + _END}, RZ, P{also}", Control(stall=2)

    def _guarded(self, site: Site, own: int) -> Iterator[tuple[str, Control]]:
        """Compute the predicate of the lanes that record and have the site's guard."""
        guard, on, soon = site.guard.removeprefix("@"), self.state.on, Control(stall=13)
        negated, then = guard.startswith("!"), Control(stall=5)
        if guard.startswith("UP") or (site.spot.source is not None and site.spot.source.voted):
            if guard.startswith("UP"):
                yield f"PLOP3.LUT P{own}, PT, PT, PT, {guard}, 0x80, 0x0", then
            else:
                yield f"VOTE.ANY P{own}, {guard}", soon
            guard = f"P{own}"
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
        # the clock and the address are there when the store reads them: eight and five cycles behind
        soon = site.record.conditional or bool(site.guard)
        on = "" if state.on is None else f"@P{state.on} "  # elsewhere, what a lane knows was not written
        offset = f"{on}LOP3.LUT R{state.address}, R{state.offset}, {self.last}, RZ, 0xc0, !PT"
        yield offset, Control(stall=4 if soon else 1, waits=waits)
        if site.aside is not None:
            yield f"MOV R{site.quad}, R{site.aside}", Control(stall=5)
            yield from self._constants(site)
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


def _borrowed(site: Site, new: New, saved: str = "") -> frozenset[str]:
    """Registers of the kernel's that an instruction of a site reads."""
    source = site.spot.source
    own = {site.guard.lstrip("@!"), saved} | (source.read if source is not None else frozenset())
    return frozenset(own & (new.seen.reads | new.seen.writes)) if new.seen is not None else frozenset()


def _valued(site: Site) -> Iterator[str]:
    """Put a barrier, and the parity that a wait is for, into the record, see marks/operations.py."""
    source, into = site.spot.source, f"R{site.quad + _VALUE}"
    if source is None or source.constant:
        return
    more = source.offset + source.fixed
    if source.parity:
        yield f"SHF.R.U32.HI {into}, RZ, {31 - operations.PARITY_SHIFT:#x}, {source.parity}"
        if source.masked:
            yield f"LOP3.LUT {into}, {into}, {1 << operations.PARITY_SHIFT:#x}, RZ, 0xc0, !PT"
        if source.register:
            yield f"IADD3 {into}, {into}, {source.register}, RZ"
        if source.uniform:
            yield f"VIADD {into}, {into}, {source.uniform}"
    elif source.register:
        add = source.uniform or f"{more:#x}"
        yield f"VIADD {into}, {source.register}, {add}"
        more = more if source.uniform else 0
    else:
        yield f"IMAD.U32 {into}, RZ, RZ, {source.uniform}"
    if more:
        yield f"VIADD {into}, {into}, {more:#x}"


def _guard(site: Site) -> str:
    return f"{site.spot.guard} " if site.spot.guard else ""


def last(state: State, capacity: str) -> str:
    """The offset of the last place in a slab's ring, as an operand. capacity: the last place, see ptx.Kernel.last."""
    return state.last if state.last is not None else f"{int(capacity) << fragments.LOG2_RECORD:#x}"
