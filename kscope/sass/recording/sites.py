"""A copy of a mark with the registers of its record. A record is four consecutive registers: its begin, its id, its end
or until then its predicate, and its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...marks import operations
from ..cubin.insertion import New
from ..cubin.instructions import Instruction
from ..placing.mark_order import Spot
from .regions import Record

BEGIN, ID, END, VALUE = range(4)


@dataclass(frozen=True)
class Needed:
    """Predicates at a place: those that the code needs, and those of them that it did not just write."""

    predicates: frozenset[str]
    calm: frozenset[str]


@dataclass(frozen=True)
class Site:
    """One copy of a mark.

    Attributes:
        act: what the mark does.
        record: what it writes.
        quad: the first register of the record.
        own: the record alone has these registers, so they hold its id already.
        spot: the place of the mark.
        value, when: constants; None if they are in registers, or if there are none.
        held: the instructions that hold the value and the predicate, None without.
        waits: the store of an earlier record may not have read these registers yet.
        word: the row's word for its clock; None for a record.
        more: records of the row that it stores, less one, if they are counted.
        aside: a register in which the first clock waits until the record is stored; None if it is read into the record.
        pipeline: the mark is one of a pipeline.
        low: it is in the part of the kernel with few registers, see released_registers.py.
        later: the record is stored elsewhere, see deferring.py.
        flag: a register that is not 0 while such a record waits to be stored; None if one always does.
        flagged: the flag is set elsewhere, and the guard still holds at the store.
        warp_flag: a uniform register with the operation's uniform predicate: 0 if it is true, else 1.
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
    low: bool = False
    later: bool = False
    flag: int | None = None
    flagged: bool = False
    warp_flag: int | None = None

    @property
    def guard(self) -> str:
        """The predicate of the lanes that record; empty for none."""
        source = self.spot.source
        return self.spot.guard or (source.guard if source is not None else "")

    @property
    def clock(self) -> int:
        """The register of its clock."""
        return self.quad + (self.word if self.word is not None else END if self.act == "exit" else BEGIN)

    @property
    def early(self) -> frozenset[int]:
        """Registers that are written up to the record's begin, or by the second clock of a row."""
        if self.act == "clock":
            return frozenset({self.clock})
        if self.aside is not None:
            return frozenset({self.aside})
        words = {BEGIN}
        if not self.own:
            words |= {ID} if self.record.full else {ID, VALUE}
        if self.value is not None or self.held[0] is not None or self.spot.source is not None:
            words.add(VALUE)
        if self.record.conditional:
            words.add(END)
        return frozenset(self.quad + word for word in words)


def about(site: Site, new: New, saved: str = "") -> New:
    """Make an instruction of a site, with the kernel's registers that it reads."""
    source = site.spot.source
    own = {site.guard.lstrip("@!"), saved} | (source.read if source is not None else frozenset())
    assert new.seen is not None
    operands = source is not None and bool(source.read & new.seen.reads)
    return replace(
        new,
        borrowed=frozenset(own & (new.seen.reads | new.seen.writes)),
        operands_of=source.at if source is not None and operands else None,
    )


def barrier(site: Site) -> Iterator[str]:
    """Put a barrier, and the parity of a wait, into the record, see marks/operations.py."""
    source, into = site.spot.source, f"R{site.quad + VALUE}"
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


def guarded(site: Site) -> str:
    """The guard of a mark's instructions, as a prefix of their text."""
    return f"{site.spot.guard} " if site.spot.guard else ""


def constants(site: Site) -> Iterator[str]:
    """Write the words of a record that are known when its begin is read."""
    words = dict[int, int]()
    if not site.own:
        words[ID] = site.record.id
    computed = site.held[0] is not None or (site.spot.source is not None and not site.spot.source.constant)
    if not computed and (site.value is not None or not (site.own or site.record.full)):
        words[VALUE] = site.value or 0
    if site.record.conditional and site.held[1] is None:
        words[END] = 1 if site.when is None else site.when
    for word, value in words.items():
        yield f"{guarded(site)}IMAD.MOV.U32 R{site.quad + word}, RZ, RZ, {value & 0xFFFFFFFF:#x}"
