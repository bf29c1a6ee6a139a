"""Rows with three clocks, and with short ones, which a kernel writes instead of two or three records.

    +---------+----+---------+---------+      id = hash28(layout) << 4 | wire.CLOCKS
    | clock 0 | id | clock 1 | clock 2 |
    +---------+----+---------+---------+      layout: of each record its id, and which clocks are its start and its end

    +---------+----+---------+---------+      short clocks: each word has two shorts, of 16 bits, low half first: the
    | clock 0 | id | shorts  | shorts  |      distances of further clocks, each from the one before, then the varying
    +---------+----+---------+---------+      parts of values; the layout has the constant ones, too

The host expands them to records as it takes slabs (expand.py; native/clock_rows.h does the same).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt

from . import layout, wire
from .heads import Ints, Launches, U32s, Units, finished, log2_of
from .model import ModuleMeta, RowLayout

MOST_PARTS = 3
"""Records of a row."""
_WORDS = 2 + 2 * MOST_PARTS
_SHORT = 1 << 8
"""Added to a layout's number of records if its clocks are short."""
_M32 = (1 << 32) - 1
_MOST_RECORDS = 1 << layout.MAX_LOG2_RECORDS
_END_SHIFT, _VALUE_SHIFT = 2, 4
_I32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Found:
    """The layouts of some launches.

    Attributes:
        table: (n, 8) uint32: id, number of records, and of each its id and its clocks (start | end << 2). With short
            clocks: 256 | number of records, and of each its id, clocks | number of the value's short, from 1 on, << 4,
            and the value's constant part.
        first, stop: (l,) the table's rows that belong to each launch's kernel; none if they are equal.
    """

    table: U32s
    first: _I32s
    stop: _I32s

    def of(self, launch: int) -> dict[int, list[int]]:
        """Map the id of a row to its layout's row of the table."""
        return {row[0]: row for row in self.table[int(self.first[launch]) : int(self.stop[launch])].tolist()}


@dataclass(frozen=True)
class Known:
    """The layouts of all kernels.

    Attributes:
        table: as in Found.
        kernels: (k,) their ids, ascending.
        first, stop: (k,) each one's rows.
    """

    table: U32s = field(default_factory=lambda: np.zeros((0, _WORDS), np.uint32))
    kernels: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    first: _I32s = field(default_factory=lambda: np.zeros(0, np.int32))
    stop: _I32s = field(default_factory=lambda: np.zeros(0, np.int32))


class Layouts:
    """The known layouts of each kernel. Modules may be added while other threads read.

    Attributes:
        known: all layouts.
    """

    def __init__(self, modules: Iterable[ModuleMeta] = ()) -> None:
        self._of: dict[int, dict[int, RowLayout]] = {}
        self.known = Known()
        self.add(modules)

    def add(self, modules: Iterable[ModuleMeta]) -> None:
        """Add the layouts of modules."""
        new = False
        for module in modules:
            for kernel in module.kernels if module.layouts else ():
                known = self._of.setdefault(kernel.id, {})
                some = {one.row_id: one for one in module.layouts}
                new = new or not some.items() <= known.items()
                known.update(some)
        if new:
            self.known = self._made()

    def of(self, launches: Launches) -> Found:
        """The layouts of launches (l,) wire.LAUNCH."""
        known = self.known
        first, stop = np.zeros((2, len(launches)), np.int32)
        if len(known.kernels) and len(launches):
            number = np.minimum(np.searchsorted(known.kernels, launches["kernel"]), len(known.kernels) - 1)
            mine = known.kernels[number] == launches["kernel"]
            first, stop = (np.where(mine, column[number], 0).astype(np.int32) for column in (known.first, known.stop))
        return Found(known.table, first, stop)

    def _made(self) -> Known:
        kernels = sorted(self._of)
        rows = [[_words(about) for about in self._of[kernel].values()] for kernel in kernels]
        stop = np.cumsum([len(some) for some in rows])
        table = np.array([row for some in rows for row in some], np.uint32).reshape(-1, _WORDS)
        first = stop - np.array([len(some) for some in rows])
        return Known(table, np.array(kernels, np.uint64), first.astype(np.int32), stop.astype(np.int32))


def _words(about: RowLayout) -> list[int]:
    clocks = [start | end << _END_SHIFT for _, start, end in about.records]
    parts, short = [[number, some] for (number, _, _), some in zip(about.records, clocks, strict=True)], 0
    if about.values:
        short, at = _SHORT, max(end for _, _, end in about.records)
        for part, (constant, rest) in zip(parts, about.values, strict=True):
            at += rest
            part[1] |= rest * at << _VALUE_SHIFT
            part.append(constant)
    words = [about.row_id, short | len(about.records), *chain.from_iterable(parts)]
    return words + [0] * (_WORDS - len(words))


def read(row: Sequence[int], about: RowLayout) -> list[tuple[int, int, int, int]]:
    """The records that a row means: start, id, end and value."""
    return list(_records(row, _words(about)))


def _records(row: Sequence[int], about: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """The records of a row, by its layout's row of the table."""
    if not about[1] & _SHORT:
        words = wire.CLOCK_WORDS
        for at in range(2, 2 + 2 * about[1], 2):
            number, clocks = about[at : at + 2]
            yield row[words[clocks & 3]], number, row[words[clocks >> _END_SHIFT]], 0
        return
    most = (1 << wire.SHORT_BITS) - 1
    shorts = [half for word in row[2:] for half in (word & most, word >> wire.SHORT_BITS)]
    clocks_of = [one & _M32 for one in accumulate(shorts, initial=row[0])]
    for at in range(2, 2 + 3 * (about[1] & ~_SHORT), 3):
        number, some, value = about[at : at + 3]
        if which := some >> _VALUE_SHIFT:
            value += shorts[which - 1] << wire.SHORT_SHIFT
        yield clocks_of[some & 3], number, clocks_of[some >> _END_SHIFT & 3], value & _M32


@dataclass(frozen=True)
class Expanded:
    """A wire slab with rows of three clocks as records.

    Attributes:
        rows: (n, 4) uint32, the records from the oldest on, as far as the ring shows which one that is.
        written: records that the warp wrote.
        full: there may have been more than are here; the slab of a capture must have no room left.
    """

    rows: U32s
    written: int
    full: bool

    def padding(self, capacity: int) -> int:
        """Padding rows for a full slab: final anchors, not records."""
        return capacity - len(self.rows) if self.full else 0

    def placed(self, capacity: int, head: U32s) -> U32s:
        """(capacity, 4) uint32, the rows of a capture's slab, for the wire slab with this head."""
        found = np.zeros((capacity, 4), np.uint32)
        many = self.padding(capacity)
        done = bool(finished(head[None])[0])
        # for an unfinished warp, the reader searches the place where ends step back
        clock = head[2] if done or not len(self.rows) else self.rows[-1, 2]
        pads = np.array([[clock, layout.LAST_ANCHOR_ID, clock, 0]] * many, np.uint32).reshape(-1, 4)
        some = np.concatenate([pads, self.rows] if done else [self.rows, pads])
        found[: len(some)] = some
        oldest = self.written + many if self.full and done else 0
        return np.roll(found, oldest % capacity, axis=0)


def expanded_slabs(
    units: Units, at: Ints, heads: Units, kept: Ints | U32s, entry: _I32s, layouts: Found
) -> dict[int, Expanded]:
    """The slabs of kernels with rows of three clocks, by their number.

    A row whose layout is unknown stays as it is: a reader counts it as a record of an unknown region.

    Args:
        units: (n, 8) uint32.
        at, heads: (s,) first unit, and head.
        kept: (s,) rows that are kept.
        entry: (s,) row of each slab's launch.
        layouts: of the launches.
    """
    found = dict[int, Expanded]()
    for number in np.flatnonzero(layouts.first[entry] < layouts.stop[entry]).tolist():
        first = (int(at[number]) + wire.HEAD_UNITS) * wire.RECORDS_PER_UNIT
        rows = units.reshape(-1, 4)[first : first + int(kept[number])]
        one = _expanded(rows, heads[number], layouts.of(int(entry[number])))
        if len(one.rows) < _MOST_RECORDS:  # only in damaged memory: it stays as it is
            found[number] = one
    return found


def _expanded(rows: U32s, head: U32s, layouts: dict[int, list[int]]) -> Expanded:
    done, room, count = bool(finished(head[None])[0]), 1 << int(log2_of(head[None])[0]), int(head[6])
    over = done and count > room
    rows = np.roll(rows, -(count % room), axis=0) if over else rows
    made = list[tuple[int, int, int, int]]()
    for row in rows.tolist():
        if row[1] in layouts:
            made += _records(row, layouts[row[1]])
        elif row[1] != wire.EXTRA_ID:
            made.append(tuple(row))
    found = np.array(made, np.uint32).reshape(-1, 4)
    written = len(found)
    if over:
        last = rows[-1]
        written = count - 1 + int(last[3]) if last[1] == wire.EXTRA_ID else count - room + len(found)
        written = min(max(written, len(found)), (1 << 32) - 1 - _MOST_RECORDS)
    return Expanded(found, written, written > len(found) if done else len(rows) == room)
