"""Expands slabs of the wire layout (wire.py) to slabs of a capture (layout.py), with room for exactly the records that
were kept. Compiled if possible; numpy gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import native
from ..util.runs import ranges
from . import heads as slab_heads
from . import layout, wire
from .clock_rows import Expanded, Found, Layouts, expanded_slabs
from .counted_problems import note
from .headers import anchors, headers
from .heads import Ints, Launches, U32s, U64s, Units
from .model import Problem

__all__ = ["Claims", "Expander", "Lines", "Plan", "write"]

Lines = npt.NDArray[np.uint32]
"""(m, 16): lines of 64 bytes, of a capture."""

_MOST_NS = 1 << 50
_MOST_RATE = 16.0
"""Bounds of a time difference and of a clock rate, so that damaged words cannot overflow."""
_LEAST_KEPT = 1 << layout.MIN_LOG2_RECORDS
_SMS = 1 << wire.SM_BITS
_ROWS = wire.UNIT // layout.RECORD_BYTES


_STEPS = 64
"""Parts of a plan, which threads write one by one."""


@dataclass(frozen=True)
class Claims:
    """Where slabs were claimed, for runs of c neighbors.

    Attributes:
        opens: (c + 1,) index of each run's first slab, and the number of slabs.
        stripe: (c,) index of the stripe.
        origin: (c,) position of the unit 0, so that a slab's position is its first unit's distance from there.
    """

    opens: Ints
    stripe: U32s
    origin: U32s

    def each(self, column: U32s) -> U32s:
        """(s,) the stripe or the origin of each slab."""
        return np.repeat(column, np.diff(self.opens))


@dataclass(frozen=True)
class Plan:
    """Slabs to expand and where they go; each field but `line` and `step` is (s,).

    Attributes:
        at: first unit.
        entry: row of its launch in the launches; negative if the slab is left out.
        kept: rows that are kept.
        start_clock: all 64 bits.
        layouts: of the launches.
        step: slabs of a step.
        line: first line of each step's slabs, and the number of all lines.
    """

    at: U32s
    entry: npt.NDArray[np.int32]
    kept: U32s
    start_clock: U64s
    layouts: Found
    step: int
    line: Ints

    @property
    def lines(self) -> int:
        """Lines of all slabs."""
        return int(self.line[-1])


class Expander:
    """Expands the slabs of one device and session, in the order in which they are taken.

    The host adds the data that the GPU omits: the launch table has the fields that all warps of a launch share; high
    words of times follow from the launch's time, those of clocks from the SM's previous slab.

    Args:
        epoch: the session.
        cycles_per_ns: the device's highest clock rate.
        first_turn: high word of the first clock of each SM. Not 0 where slabs that are taken later may be earlier.
        layouts: the known ones, of rows with three clocks.

    Attributes:
        rate, first_turn, layouts: as passed.
        clock, time: (SMs,) each one's last anchor so far; time 0: none.
        unidentified: heads that were left out so far, because their launch's entry is not valid.
        unnumbered: slabs so far of grids with more blocks than a head can number.
    """

    def __init__(
        self, epoch: int, cycles_per_ns: float = 1.0, first_turn: int = 1 << 10, layouts: Layouts | None = None
    ) -> None:
        self.epoch = epoch
        self.layouts = layouts or Layouts()
        self.unidentified = self.unnumbered = 0
        self.first_turn = first_turn
        self.rate = min(cycles_per_ns, _MOST_RATE) if cycles_per_ns > 0 else 1.0
        self.clock, self.time = np.zeros((2, _SMS), np.uint64)

    def expand(self, units: Units, at: Ints, entries: Launches, stripe: U32s, position: U32s) -> Lines:
        """Slabs of a capture for the slabs at units `at`; those without a valid entry are left out and counted, those
        of other sessions are left out.

        Args:
            units: (n, 8) uint32.
            at: (s,) first unit of each slab.
            entries: (s,) wire.LAUNCH, of each slab's launch.
            stripe, position: (s,) of each slab's claim.
        """
        at = np.asarray(at, np.int64)
        heads = units[at]
        good = slab_heads.valid(heads, entries, self.epoch) & (at + slab_heads.sizes(heads) <= len(units))
        mine = ~slab_heads.foreign(heads, self.epoch)
        self.unidentified += int((mine & ~good).sum())
        entry = np.where(good & mine, np.arange(len(at)), -1).astype(np.int32)
        first = at.astype(np.uint32)
        claims = Claims(np.arange(len(at) + 1), np.asarray(stripe, np.uint32), position - first)
        plan = self.plan(units, first, entries, entry)
        lines = np.empty((plan.lines, layout.LINE // 4), np.uint32)
        write(units, entries, plan, claims, self.epoch, lines)
        return lines

    def copy(self) -> Expander:
        """A copy that continues from here."""
        other = Expander(self.epoch, self.rate, self.first_turn, self.layouts)
        other.clock, other.time = self.clock.copy(), self.time.copy()
        return other

    def problems(self) -> list[Problem]:
        """Problems of the slabs so far."""
        found = list[Problem]()
        text = (
            " of launches that began before the session or in a pause, or whose entry was overwritten or lost to a"
            " fault: left out"
        )
        note(found, "unidentified", self.unidentified, "warp", text)
        most = f"{1 << wire.BLOCK_BITS:,}"
        text = f" of grids with more than {most} blocks: their block numbers are modulo {most}"
        note(found, "blocks", self.unnumbered, "warp", text)
        return found

    def plan(self, units: Units, at: U32s, launches: Launches, entry: npt.NDArray[np.int32]) -> Plan:
        """Places of slabs, and their clocks, which depend on earlier slabs. Quick: it reads only heads.

        Args:
            units: (n, 8) uint32.
            at: (s,) first unit of each slab, which lies within the units.
            launches: entries; those that are used are valid.
            entry: (s,) row of each slab's launch; slabs with a negative one are left out.
        """
        step, layouts = -(-len(at) // _STEPS) or 1, self.layouts.of(launches)
        if native.available():
            return self._compiled(units, at, np.ascontiguousarray(launches), entry, step, layouts)
        which = np.flatnonzero(entry >= 0)
        entries, heads = launches[entry[which]], units[at[which]]
        self.unnumbered += int(np.count_nonzero(slab_heads.has_more_blocks(entries)))
        kept, start, lines = np.zeros(len(at), np.uint32), np.zeros(len(at), np.uint64), np.zeros(len(at), np.int64)
        kept[which] = _kept(units, at[which].astype(np.int64), heads)
        several = expanded_slabs(units, at[which].astype(np.int64), heads, kept[which], entry[which], layouts)
        lines[which] = layout.HEADER_LINES + _capacity(heads, kept[which], several) // layout.RECORDS_PER_LINE
        start[which] = self._clocks(heads, entries)
        line = np.append(0, np.cumsum(lines))[np.minimum(np.arange(0, len(at) + step, step), len(at))]
        return Plan(at, entry, kept, start, layouts, step, line)

    def _compiled(
        self, units: Units, at: U32s, launches: Launches, entry: npt.NDArray[np.int32], step: int, layouts: Found
    ) -> Plan:
        kept, start = np.empty(len(at), np.uint32), np.empty(len(at), np.uint64)
        line = np.empty(-(-len(at) // step) + 1, np.int64)
        inputs = units, len(at), step, at, entry, launches, self.rate, self.first_turn, native.threads()
        known = layouts.table, layouts.first, layouts.stop
        self.unnumbered += native.call("plan", *inputs, *known, self.clock, self.time, kept, line, start)
        return Plan(at, entry, kept, start, layouts, step, line)

    def _clocks(self, heads: Units, entries: Launches) -> U64s:
        """All 64 bits of the start clocks: near the values that the SM's last anchor, the time since and the highest
        rate predict.
        """
        if not len(heads):
            return np.zeros(0, np.uint64)
        start_time, end_time = slab_heads.times(heads, entries)
        sm = heads[:, 0] >> np.uint32(wire.SM_SHIFT) & np.uint32(_SMS - 1)
        order = np.argsort(sm, kind="stable")
        sm, heads, entries, start_time = sm[order], heads[order], entries[order], start_time[order]
        done = slab_heads.finished(heads)
        last_time = np.where(done, end_time[order], start_time)
        lasted = np.where(done, slab_heads.clock_cycles(heads, start_time), np.uint64(0))
        low = heads[:, 2].astype(np.uint64)
        first = np.concatenate([[True], sm[1:] != sm[:-1]])
        begins = np.flatnonzero(first)
        # each SM's first slab follows the known anchor, the others the previous slab
        known, before = self.time[sm[begins]], self.clock[sm[begins]]
        since = start_time - np.concatenate([start_time[:1], last_time[:-1]])
        since[begins] = start_time[begins] - known
        last_low = np.concatenate([low[:1], (low + lasted)[:-1]])
        last_low[begins] = before
        predicted = (np.clip(since.view(np.int64), -_MOST_NS, _MOST_NS) * self.rate).astype(np.int64).view(np.uint64)
        off = (low - last_low - predicted).astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)
        step = predicted + off
        step[~first] += lasted[:-1][~first[1:]]
        step[begins] = np.where(
            known != 0, before + step[begins], low[begins] + (np.uint64(self.first_turn) << np.uint64(32))
        )
        clock = np.cumsum(step, dtype=np.uint64)
        group = np.cumsum(first) - 1
        clock -= (clock[begins] - step[begins])[group]
        ends = np.concatenate([begins[1:], [len(sm)]]) - 1
        self.clock[sm[ends]], self.time[sm[ends]] = (clock + lasted)[ends], last_time[ends]
        found = np.empty_like(clock)
        found[order] = clock
        return found


def _kept(units: Units, at: Ints, heads: Units) -> Ints:
    """Rows that each slab keeps."""
    room = np.int64(1) << slab_heads.log2_of(heads)
    kept = np.minimum(heads[:, 6].astype(np.int64), room)
    open_ = np.flatnonzero(~slab_heads.finished(heads))
    if len(open_):
        kept[open_] = _arrived(units, at[open_], room[open_])
    return np.asarray(kept)


def _capacity(heads: Units, kept: U32s, several: Mapping[int, Expanded]) -> Ints:
    """Records that each slab of a capture has room for. several: slabs whose rows are several records, by number."""
    # an unfinished slab keeps one place free if it can, which shows that its ring has not overrun
    one_more = ~slab_heads.finished(heads) & (kept < 1 << slab_heads.log2_of(heads))
    records = kept.astype(np.int64)
    for number, one in several.items():
        records[number] = len(one.rows)
    needed = np.maximum(records + one_more, _LEAST_KEPT)
    return np.asarray(np.int64(1) << np.frexp((needed - 1).astype(np.float64))[1].astype(np.int64))


def _arrived(units: Units, at: Ints, room: Ints) -> Ints:
    """Records up to the last one that has arrived."""
    first = (at + wire.HEAD_UNITS) * _ROWS
    rows = ranges(first, room)
    within = rows - np.repeat(first, room)
    there = units.reshape(-1, 4)[rows, 1] != 0
    return np.asarray(np.maximum.reduceat(np.where(there, within + 1, 0), np.cumsum(room) - room))


def write(units: Units, launches: Launches, plan: Plan, claims: Claims, epoch: int, into: Lines) -> None:
    """Write planned slabs.

    Args:
        units: as for the plan.
        launches: as for the plan.
        plan: the result of Expander.plan().
        claims: of the slabs.
        epoch: the session.
        into: (plan.lines, 16) uint32; what is there is overwritten.
    """
    if native.available():
        slabs = units, len(plan.at), plan.step, plan.at, plan.entry, plan.kept, plan.line, plan.start_clock
        where = len(claims.stripe), claims.opens, claims.stripe, claims.origin
        known = plan.layouts.table, plan.layouts.first, plan.layouts.stop
        words = layout.HEADER_WORD, layout.DONE_WORD, epoch
        native.call("expand", *slabs, *where, np.ascontiguousarray(launches), *known, *words, native.threads(), into)
        return
    which = np.flatnonzero(plan.entry >= 0)
    entries, heads, kept = launches[plan.entry[which]], units[plan.at[which]], plan.kept[which].astype(np.int64)
    several = expanded_slabs(units, plan.at[which].astype(np.int64), heads, kept, plan.entry[which], plan.layouts)
    room, count, alone = _capacity(heads, plan.kept[which], several), heads[:, 6].copy(), kept.copy()
    for number, one in several.items():
        count[number], alone[number] = one.written + one.padding(int(room[number])), 0
    lines = layout.HEADER_LINES + room // layout.RECORDS_PER_LINE
    into[:] = 0
    header = headers(heads, entries, room, plan.start_clock[which], count, epoch)
    header["position"] = (claims.each(claims.origin) + plan.at)[which]
    header["stripe"] = claims.each(claims.stripe)[which]
    source = ranges((plan.at[which].astype(np.int64) + wire.HEAD_UNITS) * _ROWS, alone)
    records = units.reshape(-1, 4)[source]
    header["anchors"] = anchors(records, alone, heads, entries)
    for number, one in several.items():
        header["anchors"][number] = one.padding(int(room[number]))
    header["check"] = layout.header_check(header.view(np.uint32).reshape(-1, layout.HEADER_BYTES // 4))
    rows, to = into.reshape(-1, 4), (np.cumsum(lines) - lines) * layout.RECORDS_PER_LINE
    header_rows = layout.HEADER_BYTES // layout.RECORD_BYTES
    rows[(to[:, None] + np.arange(header_rows)).ravel()] = header.view(np.uint32).reshape(-1, 4)
    target = ranges(to + header_rows, alone)
    rows[target] = records
    for number, one in several.items():
        first = int(to[number]) + header_rows
        rows[first : first + int(room[number])] = one.placed(int(room[number]), heads[number])
