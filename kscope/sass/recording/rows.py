"""Rows with three clocks: one store writes two or three records whose order is static."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ... import ptx
from ...capture import layout, wire
from ...capture.model import RowLayout
from ...errors import UnsupportedError
from ..placing import mark_order
from ..placing.basic_blocks import Machine, Text
from ..placing.mark_order import BEGIN, END, Spot
from .regions import Key, Record

_SIZES = (6, 4)
"""Marks of rows with three records and with two."""
_CLOCKS = len(wire.CLOCK_WORDS)
MOST_LOG2_RECORDS = layout.MAX_LOG2_RECORDS - 2
"""Limit of a slab with rows: a capture's slab must hold all their records."""


@dataclass(frozen=True)
class Placed:
    """A mark that has instructions.

    Attributes:
        spot: the place of these.
        act: the mark's; "clock" if it reads the second one of three and does nothing else.
        record: the record, or the row, that they write.
        word: the row's word for its clock; None for a record.
        more: records of the row that it stores, less one, if they are counted.
    """

    spot: Spot
    act: str
    record: Record
    word: int | None = None
    more: int = 0


@dataclass(frozen=True)
class Plan:
    """The records and rows of a kernel's marks.

    Attributes:
        placed: the marks that have instructions, in the order of their spots.
        records: records and rows in the order of the marks that write them.
        together: pairs of them that are needed at the same time.
        layouts: of the rows.
        counts: True if the records of rows must be counted, because a ring may overflow.
        shared: marks whose clock is also read for an earlier one.
    """

    placed: tuple[Placed, ...]
    records: tuple[Record, ...]
    together: frozenset[frozenset[Key]]
    layouts: tuple[RowLayout, ...] = ()
    counts: bool = False
    shared: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Row:
    """Marks of a row in order, the clock of each, and the row's record."""

    marks: tuple[int, ...]
    clocks: tuple[int, ...]
    about: RowLayout
    record: Record


def alone(text: Text, found: Sequence[Record], spots: Sequence[Spot], together: frozenset[frozenset[Key]]) -> Plan:
    """Every record is stored by itself."""
    acts = [mark.act for mark in text.labels.marks]
    placed = tuple(Placed(spot, acts[spot.mark], found[spot.mark]) for spot in spots)
    return Plan(placed, tuple(dict.fromkeys(found)), together)


def planned(
    text: Text,
    machine: Machine,
    found: Sequence[Record],
    spots: tuple[Spot, ...],
    together: frozenset[frozenset[Key]],
    kernel: ptx.Kernel,
) -> Plan:
    """Choose rows, as many records in each as possible.

        enter load     clock 0            load is 0..1, dot is 1..2
        exit load      clock 1
        enter dot      the same, if both may be at one spot
        exit dot       clock 2, and the store

    Marks of a row follow each other on every path of the text, with no other mark in between, and always run;
    mark_order.py has proved the same of the machine code. So nothing else is stored between a row's first clock and its
    store.

    Args:
        text, machine: the kernel.
        found: the record of each mark.
        spots: the places of marks.
        together: pairs of records that are needed at the same time.
        kernel: the options that determine slabs.
    """
    rows = _Chooser(text, found, spots).rows() if able(kernel) else ()
    shared = {
        mark: row.marks[row.clocks.index(clock)]
        for row in rows
        for mark, clock in zip(row.marks, row.clocks, strict=True)
        if mark != row.marks[row.clocks.index(clock)]
    }
    if not rows:
        return alone(text, found, spots, together)
    try:
        mark_order.check(text, machine, mark_order.ordered(text, _moved(spots, shared)))
    except UnsupportedError:  # a clock that two marks share would be out of place for one of them
        return alone(text, found, spots, together)
    of = {mark: (row, clock) for row in rows for mark, clock in zip(row.marks, row.clocks, strict=True)}
    made = tuple(of[mark][0].record if mark in of else record for mark, record in enumerate(found))
    counts, placed = _may_overflow(text, kernel), list[Placed]()
    for spot in spots:
        if spot.mark not in of:
            placed.append(Placed(spot, text.labels.marks[spot.mark].act, found[spot.mark]))
        elif spot.mark not in shared:
            row, clock = of[spot.mark]
            act = "enter" if not clock else "exit" if clock == row.clocks[-1] else "clock"
            more = len(row.about.records) - 1 if counts and act == "exit" else 0
            placed.append(Placed(spot, act, row.record, wire.CLOCK_WORDS[clock], more))
    images = defaultdict[Key, set[Key]](set)
    for one, other in zip(found, made, strict=True):
        images[one.key].add(other.key)
    pairs = frozenset(
        frozenset((one, other))
        for first, second in map(tuple, together)
        for one in images[first]
        for other in images[second]
    )
    layouts = tuple(dict.fromkeys(row.about for row in rows))
    apart = frozenset(pair for pair in pairs if len(pair) == 2)
    return Plan(tuple(placed), tuple(dict.fromkeys(made)), apart, layouts, counts, shared)


def able(kernel: ptx.Kernel) -> bool:
    """True if a capture's slab has room for the records of a slab full of rows."""
    return kernel.log2_records <= MOST_LOG2_RECORDS


def _may_overflow(text: Text, kernel: ptx.Kernel) -> bool:
    """True if a lane may write more rows than its slab can hold: not if each mark runs once at most."""
    looped = any(text.flow.around[text.block[statement]] for statement in text.marks)
    stores = sum(mark.act != "enter" for mark in text.labels.marks)
    return bool(kernel.sized or looped or stores > 1 << kernel.log2_records)


def _moved(spots: Sequence[Spot], shared: Mapping[int, int]) -> tuple[Spot, ...]:
    """The spots, with each shared clock's moved to the mark that reads it."""
    found = list[Spot]()
    for spot in spots:
        reads = [one.at for one in spots if one.mark == shared.get(spot.mark) and one.next in spot.choices]
        found.append(replace(spot, at=reads[0]) if reads else spot)
    return tuple(sorted(found, key=lambda spot: (spot.at, spot.after)))


@dataclass
class _Chooser:
    text: Text
    found: Sequence[Record]
    spots: Sequence[Spot]
    ids: dict[int, RowLayout] = field(default_factory=dict)

    def rows(self) -> tuple[_Row, ...]:
        """Rows of marks that follow each other, from the first mark on."""
        chosen = list[_Row]()
        for chain in self._chains():
            place = 0
            while place < len(chain):
                tries = (self._row(chain[place : place + many]) for many in _SIZES if place + many <= len(chain))
                row = next((one for one in tries if one is not None), None)
                chosen += [] if row is None else [row]
                place += 1 if row is None else len(row.marks)
        return tuple(chosen)

    def _chains(self) -> Iterator[list[int]]:
        """Chains of marks, each with one successor on every path, which has no other predecessor."""
        behind = _behind(self.text)
        ahead = defaultdict[int, set[int]](set)
        for mark, others in behind.items():
            for other in others:
                ahead[other].add(mark)
        able = {mark for mark in behind if mark >= 0 and self._able(mark)}
        following = {
            mark: other for mark in able for other in behind[mark]
            if len(behind[mark]) == len(ahead[other]) == 1 and other in able
        }  # fmt: skip
        for first in sorted(able - set(following.values())):
            chain = [first]
            while chain[-1] in following and following[chain[-1]] not in chain:
                chain.append(following[chain[-1]])
            yield chain

    def _able(self, mark: int) -> bool:
        record, here = self.found[mark], self._of(mark)
        plain = all(not (spot.guard or spot.after) for spot in here)
        return plain and bool(here) and record.key[1] == "" and not (record.valued or record.conditional)

    def _of(self, mark: int) -> list[Spot]:
        return [spot for spot in self.spots if spot.mark == mark]

    def _row(self, marks: Sequence[int]) -> _Row | None:
        """A row of these marks; None if they are no whole records, or have too many clocks."""
        labels, clock, reads = self.text.labels.marks, -1, -1
        clocks, opened, records = list[int](), dict[Key, int](), list[tuple[int, int, int]]()
        for mark in marks:
            record = self.found[mark]
            here = {self.found[one].key for one, number in zip(marks, clocks, strict=False) if number == clock}
            if clock < 0 or record.key in here or not self._share(reads, mark):
                clock, reads = clock + 1, mark
            clocks.append(clock)
            if labels[mark].act == "enter":
                opened[record.key] = clock
            elif record.key in opened:
                records.append((record.id, opened.pop(record.key), clock))
            else:
                return None
        about = RowLayout(tuple(records))
        number = about.row_id
        if opened or clock >= _CLOCKS or number == wire.EXTRA_ID or self.ids.setdefault(number, about) != about:
            return None
        names = ", ".join(dict.fromkeys(self.found[mark].key[0] for mark in marks))
        record = Record((names, f"row {number:#x}"), number, False, False, clock == _CLOCKS - 1)
        return _Row(tuple(marks), tuple(clocks), about, record)

    def _share(self, mark: int, other: int) -> bool:
        """True if the clock of one mark can be that of the next one, in all their copies."""
        ahead, behind = self._of(mark), self._of(other)
        pairs = [[one for one in ahead if one.next in spot.choices] for spot in behind]
        single = len(ahead) == len(behind) and all(len(some) == 1 for some in pairs)
        return single and len({some[0] for some in pairs}) == len(ahead)


def _behind(text: Text) -> Mapping[int, frozenset[int]]:
    """The possible successors of each mark, and of the entry; END for an exit."""
    number = {statement: mark for mark, statement in enumerate(text.marks)} | {END: END}
    events = {BEGIN: BEGIN} | dict(enumerate(text.marks))
    return {
        mark: frozenset(number[one] for one in mark_order.following(text, event) if one in number)
        for mark, event in events.items()
    }
