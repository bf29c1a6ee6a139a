"""Turns raw words into columns: start, duration, region and slab of every record, in ticks. Finished slabs of less than
2^32 ticks are decoded in chunks on all cores; longer and unfinished ones one by one through unwrap.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from .. import native
from ..capture import layout
from ..capture.capture_data import DeviceCapture
from ..capture.counted_problems import note
from ..capture.model import Problem
from ..tracedata.data import UNKNOWN
from ..util.arrays import Bools, Int64
from ..util.parallel import each
from .ids import ANCHOR, HALF, MISSING, IdTable
from .inner_anchors import InnerAnchors
from .slabs import Slabs, Words
from .unwrap import ring_start, unwrap
from .wide_values import Halves, found_in

__all__ = ["Records", "decode_slabs", "id_sample"]

CHUNK = 1 << 16
"""Records of a chunk: 1 MiB of words, a core's L2 cache; with fewer, threads wait for one another."""
_MOST_SLABS = 1 << 15
"""Slabs of a chunk."""
_COUNT_TURNS = 1 << 32
_LEAST_TICKS = 3
"""A device counts records modulo 2^32. A record takes at least one clock read of 7 cycles, which is more than 3 ns, so
the counter of a warp wraps only after 2^32 * 3 ticks of either clock.
"""


@dataclass(frozen=True)
class Records:
    """Columns of one device's records, slab after slab, within a slab in order of end; shape (r,).

    Attributes:
        start: int64 ticks.
        duration: int64 ticks, UNKNOWN (-1) if it is too long for 32-bit clocks.
        region: uint16, index into the IdTable.
        value: uint32, the record's fourth word.
        halves: the other halves of values of 64 bits.
        slabs: the slabs.
        counts: (s,) int64, records per slab.
        written: (s,) int64, records that the warp wrote.
        anchors: those among the records.
        problems: problems of the records.
    """

    start: Int64
    duration: Int64
    region: npt.NDArray[np.uint16]
    value: npt.NDArray[np.uint32]
    halves: Halves
    slabs: Slabs
    counts: Int64
    written: Int64
    anchors: InnerAnchors
    problems: list[Problem]


@dataclass(frozen=True)
class _Plan:
    """The rows to read of each slab: `kept` rows of the `written` ones from slot `oldest` on, modulo the slab's
    capacity.
    """

    slabs: Slabs
    kept: Int64
    oldest: Int64
    written: Int64
    short: Bools  # finished in less than 2^32 ticks
    problems: list[Problem] = field(default_factory=list)

    def take(self, order: Int64) -> _Plan:
        """The plan in another order of its slabs."""
        if (order[1:] > order[:-1]).all():
            return self
        slabs, kept, oldest = self.slabs.take(order), self.kept[order], self.oldest[order]
        return _Plan(slabs, kept, oldest, self.written[order], self.short[order], self.problems)

    def rows(self, which: slice | Int64) -> Int64:
        """The first record of slabs as an index into all 16-byte rows."""
        return (self.slabs.line[which] + layout.HEADER_LINES) * layout.RECORDS_PER_LINE


def id_sample(device: DeviceCapture, slabs: Slabs) -> Words:
    """Id words of some records of all slabs, to build an IdTable from."""
    step = max(1, len(slabs) // 64)
    base = (slabs.line[::step] + layout.HEADER_LINES) * layout.RECORDS_PER_LINE
    room = slabs.room(slice(None, None, step))
    rows = (base[:, None] + np.arange(min(256, int(room.max(initial=1)))) % room[:, None]).ravel()
    return np.asarray(_rows_of(device.lines)[rows, 1])


def decode_slabs(device: DeviceCapture, slabs: Slabs, table: IdTable) -> Records:
    """Decode every record of the slabs, with as many threads as cores, at most 8."""
    rows = _rows_of(device.lines)
    plan = _plan(slabs, rows)
    short = int(np.count_nonzero(plan.short))
    if short < len(slabs):
        plan = plan.take(np.concatenate([np.flatnonzero(plan.short), np.flatnonzero(~plan.short)]))
    loop = _Loop(rows, plan, table)
    each(lambda job: job(), loop.jobs(short))
    return loop.finish()


def _rows_of(lines: Words) -> Words:
    return np.ascontiguousarray(lines, np.uint32).reshape(-1, 4)


def _plan(slabs: Slabs, rows: Words) -> _Plan:
    begin, end, finished = slabs.first_tick, slabs.last_tick, slabs.finished
    written, kept = np.empty((2, len(slabs)), np.int64)
    short, full = np.empty(len(slabs), bool), False
    if native.available():
        columns = slabs.header["count"], slabs.log2, finished, begin, end, written, kept, short
        full = native.call("kept", len(slabs), native.threads(), *columns) > 1
    else:
        written[:] = slabs.header["count"]
        np.minimum(written, slabs.room(slice(None)), out=kept)
        short[:] = finished & ((end - begin).view(np.uint64) < _COUNT_TURNS)
        full = bool((written > kept).any())
    oldest, more = np.broadcast_to(np.int64(0), len(slabs)), np.zeros(0, np.int64)
    if full or not finished.all():
        oldest, over = np.zeros(len(slabs), np.int64), np.flatnonzero(written > kept)
        more = over[finished[over]]
        turning = over[~slabs.stop[over]]
        oldest[turning] = written[turning] & (slabs.room(turning) - 1)
    plan = _Plan(slabs, kept, oldest, written, short)
    open_full = 0
    for index in np.flatnonzero(~finished).tolist():
        first, capacity = int(plan.rows(slice(index, index + 1))[0]), 1 << int(slabs.log2[index])
        words = rows[first : first + capacity]
        there = np.flatnonzero(words[:, 1])
        kept[index] = written[index] = there[-1] + 1 if len(there) else 0
        oldest[index] = 0
        if kept[index] == capacity:
            open_full += 1
            oldest[index] = 0 if slabs.stop[index] else ring_start(words)
    _note_dropped(plan, rows, more, open_full)
    return plan


def _anchors_kept(plan: _Plan, rows: Words, slabs: Int64) -> Int64:
    """Number of anchors among the rows that these full slabs keep."""
    kept = [rows[at : at + size, 1] for at, size in zip(plan.rows(slabs), plan.slabs.room(slabs), strict=True)]
    return np.array([np.isin(ids, (layout.ANCHOR_ID, layout.LAST_ANCHOR_ID)).sum() for ids in kept], np.int64)


def _most_needed(plan: _Plan) -> int:
    """The most rows that a slab would have filled."""
    header = plan.slabs.header
    anchored = header["place"] >> np.uint32(layout.FLAG_SHIFT) & np.uint32(layout.FLAG_ANCHORS) != 0
    filled = np.where(anchored, 0, header["anchors"])  # rows that fill a slab, see capture/clock_rows.py
    return int((plan.written - filled).max(initial=1))


def _note_dropped(plan: _Plan, rows: Words, full: Int64, open_full: int) -> None:
    """Note dropped records. full: finished slabs that keep fewer records than were written."""
    slabs = plan.slabs
    more, stop = (plan.written - plan.kept)[full] if len(full) else full, slabs.stop[full]
    anchored = np.flatnonzero(slabs.header["anchors"][full])
    if len(anchored):
        others = slabs.header["anchors"][full[anchored]] - _anchors_kept(plan, rows, full[anchored])
        more[anchored] = np.maximum(more[anchored] - others, 0)
    overwritten, refused = int(more[~stop].sum()), int(more[stop].sum())
    enough = f"records={_most_needed(plan)}" if overwritten or refused else ""
    note(plan.problems, "overwritten", overwritten, "record", f" overwritten by newer ones: to keep all, {enough}")
    text = f" came after the buffer of their warp was full: to keep all, {enough}"
    note(plan.problems, "refused", refused, "record", text)
    text = " filled their buffers: how many records were dropped is unknown"
    note(plan.problems, "count", open_full, "unfinished warp", text)
    long = np.flatnonzero(~plan.short)
    ticks = slabs.last_tick[long] - slabs.first_tick[long]
    long = long[(ticks < 0) | (ticks >= _COUNT_TURNS * _LEAST_TICKS)]
    turned = int(np.count_nonzero(slabs.finished[long] & (plan.kept[long] == slabs.room(long))))
    text = " ran so long that the record counter may have wrapped (2^32): more may be dropped than counted"
    note(plan.problems, "count", turned, "warp", text)


Job = Callable[[], None]


class _Loop:
    """The output columns and the jobs that write disjoint slices of them."""

    def __init__(self, rows: Words, plan: _Plan, table: IdTable) -> None:
        self._rows, self._plan, self._table = rows, plan, table
        self._first = plan.slabs.first_tick
        self._offsets = np.cumsum(plan.kept)
        total = int(self._offsets[-1]) if len(plan.kept) else 0
        self._offsets -= plan.kept
        self.start, self.duration = np.empty(total, np.int64), np.empty(total, np.int64)
        self.region, self.value = np.empty(total, np.uint16), np.empty(total, np.uint32)
        self._garbled: list[int] = []
        self._wrapped: list[int] = []
        self._missing: list[int] = []
        self._without_region: list[bool] = []

    def jobs(self, short: int) -> list[Job]:
        """Jobs that decode all slabs. The first `short` ones lasted less than 2^32 ticks."""
        jobs: list[Job] = []
        first = short if native.available() and self._compiled(short) else 0
        while first < short:
            reach = int(np.searchsorted(self._offsets[:short], self._offsets[first] + CHUNK, side="left"))
            stop = min(max(reach, first + 1), first + _MOST_SLABS, short)
            jobs.append(partial(self._gather, first, stop))
            first = stop
        return jobs + [partial(self._long, slab) for slab in range(short, len(self._plan.slabs))]

    def _compiled(self, short: int) -> bool:
        """Same as _gather(), for the first slabs; False if there is an id that the sample lacks."""
        plan, counts = self._plan, np.zeros(4, np.int64)
        oldest = (plan.oldest[:1].copy(), 0) if not plan.oldest.strides[0] else (plan.oldest, 1)
        slabs = plan.slabs.line, plan.slabs.log2, plan.kept, *oldest, self._first, plan.slabs.last_tick, self._offsets
        table = *self._table.slots(), int(MISSING), int(HALF)
        columns = self.start, self.duration, self.region, self.value
        native.call("records", self._rows, short, native.threads(), *slabs, *table, *columns, counts)
        garbled, missing, unknown, without_region = counts.tolist()
        if unknown:
            return False
        self._garbled.append(garbled)
        self._missing.append(missing)
        self._without_region += [True] * (without_region > 0)
        return True

    def _span(self, a: int, b: int) -> Words:
        """Ticks of slabs a..b, which lasted less than 2^32."""
        return (self._plan.slabs.last_tick[a:b] - self._first[a:b]).astype(np.uint32)

    def _records(self, a: int, b: int) -> slice:
        """The records of slabs a..b in the columns."""
        return slice(int(self._offsets[a]), int(self._offsets[b - 1] + self._plan.kept[b - 1]))

    def _gather(self, a: int, b: int) -> None:
        """Decode slabs a..b of less than 2^32 ticks, where differences of low words are exact."""
        picked, kept = self._picked(a, b)
        if not len(picked):
            return
        words, at = self._rows.take(picked, axis=0), self._records(a, b)
        first = np.repeat(self._first[a:b], kept)
        low = first.astype(np.uint32)
        start, end = words[:, 0] - low, words[:, 2] - low
        duration = self.duration[at]
        duration[:] = end - start
        wrong = ((end < start) | (end > np.repeat(self._span(a, b), kept))) & (words[:, 1] != 0)
        duration[wrong] = UNKNOWN
        self._garbled.append(int(np.count_nonzero(wrong)))
        np.add(first, start, out=self.start[at])
        self.value[at] = words[:, 3]
        self._name(words[:, 1], at)

    def _picked(self, a: int, b: int) -> tuple[Int64, Int64]:
        """The rows of the records of slabs a..b in order of end, and the number of each slab's."""
        plan, kept = self._plan, self._plan.kept[a:b]
        within = np.arange(int(kept.sum())) - np.repeat(self._offsets[a:b] - self._offsets[a], kept)
        within += np.repeat(plan.oldest[a:b], kept)
        within &= np.repeat(plan.slabs.room(slice(a, b)) - 1, kept)
        return within + np.repeat(plan.rows(slice(a, b)), kept), kept

    def _name(self, ids: Words, at: slice) -> None:
        self._table.lookup(ids, self.region[at])
        self._note(at, int(np.count_nonzero(ids == 0)))

    def _note(self, at: slice, missing: int) -> None:
        self._missing.append(missing)
        if self.region[at].max(initial=0) >= HALF:
            self._without_region.append(True)

    def _long(self, slab: int) -> None:
        rows, _ = self._picked(slab, slab + 1)
        if not len(rows):
            return
        words = self._rows.take(rows, axis=0)
        finished = bool(self._plan.slabs.finished[slab])
        last = int(self._plan.slabs.last_tick[slab]) if finished else None
        found = unwrap(words, int(self._first[slab]), last)
        at = self._records(slab, slab + 1)
        self.start[at], self.duration[at], self.value[at] = found.start, found.duration, words[:, 3]
        self._name(words[:, 1], at)
        self._wrapped.append(int(np.count_nonzero(found.duration == UNKNOWN)))

    def finish(self) -> Records:
        problems, counts = self._plan.problems, self._plan.kept
        text = " with clocks outside the warp's lifetime: durations are not shown"
        note(problems, "garbled", sum(self._garbled), "record", text)
        text = " may have lasted 2^32 ticks longer than recorded: durations are not shown"
        note(problems, "wrap", sum(self._wrapped), "record", text)
        note(problems, "missing", sum(self._missing), "record", " that the device counted are not in the data")
        slabs, written = self._plan.slabs, self._plan.written
        anchors, halves = InnerAnchors.none(), Halves.none()
        if (twins := self._table.twins()) is not None:
            halves = found_in(self.region, twins, self._rows_at, self._offsets)
        if self._without_region:
            gone = np.flatnonzero(self.region >= HALF)
            slab = np.searchsorted(np.cumsum(counts), gone, side="right")
            which = self.region[gone] == ANCHOR
            at = gone[which]
            anchors = InnerAnchors(slab[which], self.start[at], self.duration[at], self.value[at])
            counts = counts - np.bincount(slab, minlength=len(counts))
            rest = np.bincount(slab[self.region[gone] == HALF], minlength=len(counts))
            written = np.maximum(written - rest, counts)
            kept = np.ones(len(self.region), bool)
            kept[gone] = False
            halves = halves.without(gone)
            self.start, self.duration = self.start[kept], self.duration[kept]
            self.region, self.value = self.region[kept], self.value[kept]
        if slabs.header["anchors"].any():
            written = np.maximum(written - slabs.header["anchors"], counts)
        columns = self.start, self.duration, self.region, self.value
        return Records(*columns, halves, slabs, counts, written, anchors, problems)

    def _rows_at(self, record: Int64) -> Words:
        """The four words of records, by their indices."""
        plan, slab = self._plan, np.searchsorted(self._offsets, record, side="right") - 1
        within = (record - self._offsets[slab] + plan.oldest[slab]) & (plan.slabs.room(slab) - 1)
        return np.asarray(self._rows[plan.rows(slab) + within])
