"""Buffers of 8-byte records {tag, time}: FlashInfer, TVM's CudaProfiler, warpscope, and Mirage.

word 0               blocks | groups << 32
word 1 + k*warps + w the k-th record of warp w = block * groups + group:  tag | low half of %globaltimer << 32
tag bits       31       24 23           12 11       2 1  0
FlashInfer     |           warp           |  event   | kind |    and TVM, warpscope
since #1305    |    SM    |     block     |  event   | kind |
Mirage         |  number (13)  | warp (8) | event (9)| kind |
kind           0 begin, 1 end, 2 a point in time, 3 the warp's end (TVM, warpscope)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..capture.layout import Kind
from ..errors import UsageError
from ..trace import Trace
from ..tracedata.data import UNKNOWN, Launch
from ..util.arrays import U64, Bools, Int64
from ..util.runs import fresh
from .columns import Notes, Records, WarpRows, recorded_by, trace
from .pairs import BEGIN, END, pair, unwrapped
from .words import Names, named, ranged, words

_BEGIN, _END, _POINT, _LAST = range(4)
LOW = 0xFFFFFFFF
NO_SM = "this data has no SM ids: everything is on SM 0; group by block"


@dataclass(frozen=True, eq=False)
class Marks:
    """Marks (n,) of each warp in its order.

    Attributes:
        warp, kind, event: its number, block * groups + group; begin, end, point or last; the event.
        time: low half of the timer.
        sm: of the warp; None if unknown.
    """

    warp: Int64
    kind: Int64
    event: Int64
    time: Int64
    sm: Int64 | None = None

    def take(self, at: Int64 | Bools) -> Marks:
        """The marks at indices or in a mask."""
        sm = None if self.sm is None else self.sm[at]
        return Marks(self.warp[at], self.kind[at], self.event[at], self.time[at], sm)


@dataclass(frozen=True)
class Launched:
    """The launch: blocks and groups from the header, at least 1."""

    kernel: str
    device: int
    blocks: int
    groups: int


@recorded_by("FlashInfer")
def flashinfer(
    buffer: Any, names: Names = None, *, sm: bool | None = None, stride: int = 0,
    kernel: str = "kernel", device: int = 0,
) -> Trace:  # fmt: skip
    """The trace of a FlashInfer profiler buffer; also of TVM's CudaProfiler and of warpscope.

    A group is shown as a warp of its block. Times are ns of %globaltimer.

    Args:
        buffer: the kernel's output, 64-bit words.
        names: of events in order of their index, or a dict.
        sm: True if tags hold the SM (FlashInfer since its #1305); None to infer it from the tags.
        stride: words between a warp's records (TVM's write stride); 0 for blocks * groups.
        kernel, device: the kernel's name, the GPU's number.

    Raises:
        UsageError: an argument is out of range.
    """
    if sm is not None and not isinstance(sm, bool):
        raise UsageError(f"flashinfer(sm={sm!r}): expected True, False, or None to infer it from the tags")
    ranged("flashinfer", "stride", stride, 0, 1 << 48)
    notes = Notes()
    data = words("flashinfer", buffer, device, notes)
    blocks, groups = _header(data, notes)
    warp, tag, time = _written(data[1:], stride or blocks * groups)
    if sm is None:
        sm = bool(len(tag)) and not ((tag >> 12) == (warp & 0xFFFFF)).all() and _holds_sm(tag, warp, groups)
    if sm:
        fits = _fits(tag >> 12 & 0xFFF, warp, groups, 0xFFF)
    else:
        fits = (tag >> 12) == (warp & 0xFFFFF)
        notes.add("assumed", NO_SM)
    notes.count("garbled", np.count_nonzero(~fits), "record", "its tag contradicts its place, left out")
    marks = Marks(warp, tag & 3, tag >> 2 & 0x3FF, time, tag >> 24 if sm else None)
    return read(marks, fits, named(names, "event"), notes, Launched(kernel, device, blocks, groups))


@recorded_by("Mirage")
def mirage(buffer: Any, names: Names = None, *, kernel: str = "kernel", device: int = 0) -> Trace:
    """The trace of a Mirage profiler buffer: FlashInfer's layout with other tag bits.

    Args:
        buffer, names, kernel, device: as for flashinfer().

    Raises:
        UsageError: a device or names are invalid.
    """
    notes = Notes()
    data = words("mirage", buffer, device, notes)
    blocks, groups = _header(data, notes)
    warp, tag, time = _written(data[1:], blocks * groups)
    fits = _fits(tag >> 11 & 0xFF, warp, groups, 0xFF)
    notes.count("garbled", np.count_nonzero(~fits), "record", "its tag contradicts its place, left out")
    notes.add("assumed", NO_SM)
    marks = Marks(warp, tag & 3, tag >> 2 & 0x1FF, time)
    return read(marks, fits, named(names, "event"), notes, Launched(kernel, device, blocks, groups))


def read(
    marks: Marks, fits: Bools, names: dict[int, str], notes: Notes, launched: Launched, noun: str = "event"
) -> Trace:
    """The trace of the marks that fit their place, for all layouts of this family."""
    if not fits.all():
        marks = marks.take(fits)
    if (marks.warp[1:] < marks.warp[:-1]).any():  # as in a buffer whose tags and places differ
        marks = marks.take(np.argsort(marks.warp, kind="stable"))
    time, back = unwrapped(marks.time, marks.warp)
    notes.count("order", np.count_nonzero(back), "record", "its time is before the previous record's")
    head = fresh(marks.warp)
    first, row = np.flatnonzero(head), np.cumsum(head) - 1
    paired = np.flatnonzero(marks.kind <= _END)
    step = np.where(marks.kind[paired] == _BEGIN, BEGIN, END)
    begins, ends, strays = pair(row[paired] * 0x10000 + marks.event[paired], step)
    notes.count("unpaired", len(strays), "record", "an end without a begin, left out")
    notes.count("unpaired", np.count_nonzero(ends < 0), "record", "a begin without an end: its duration is unknown")
    begin = paired[begins]
    duration = np.where(ends < 0, UNKNOWN, time[paired[np.maximum(ends, 0)]] - time[begin])
    backward = (ends >= 0) & (duration < 0)
    duration[backward] = UNKNOWN
    point = np.flatnonzero(marks.kind == _POINT)
    at = np.concatenate([begin, point])
    records = Records(
        warp_row=row[at],
        start=time[at],
        duration=np.concatenate([duration, np.zeros(len(point), np.int64)]),
        event=marks.event[at],
        kind=np.where(np.arange(len(at)) < len(begin), Kind.SPAN, Kind.INSTANT).astype(np.uint8),
    )
    over = np.flatnonzero(marks.kind == _LAST)
    last = np.full(len(first), UNKNOWN)
    last[row[over]] = time[over]
    none, number = np.zeros(len(first), np.int64), marks.warp[first]
    sm = none if marks.sm is None else marks.sm[first]
    rows = WarpRows(number // launched.groups, number % launched.groups, sm, none, last)
    launch = Launch(launched.kernel, launched.device, 1, 0, (min(launched.blocks, 1 << 31), 1, 1))
    return trace(records, rows, names, notes, [launch], noun=noun)


def _header(data: U64, notes: Notes) -> tuple[int, int]:
    """(blocks, groups), each at least 1."""
    first = int(data[0]) if len(data) else 0
    blocks, groups = first & 0xFFFFFFFF, first >> 32
    if len(data) and not (blocks and groups):
        notes.add("garbled", f"the header declares {blocks:,} blocks of {groups:,} groups: treated as one warp")
    if blocks * groups > max(0, len(data) - 1):
        notes.add(
            "cut", f"the header declares {blocks:,} blocks of {groups:,} groups, and the buffer has {len(data):,} words"
        )
    return max(1, blocks), max(1, groups)


def _written(slots: U64, warps: int) -> tuple[Int64, Int64, Int64]:
    """(warp, tag, time) of the written words, grouped by warp.

    Records of one warp are `warps` words apart; with more warps than slots, each slot is a warp's first record, so that
    nothing is as large as a damaged header promises.
    """
    rows = -(-len(slots) // max(1, min(warps, len(slots))))
    width = min(warps, len(slots))
    table = np.zeros(rows * width, np.uint64)
    table[: len(slots)] = slots
    found = np.ascontiguousarray(table.reshape(rows, width).T).reshape(-1)
    at = np.flatnonzero(found)
    word = found[at]
    return at // max(1, rows), (word & np.uint64(LOW)).astype(np.int64), (word >> np.uint64(32)).astype(np.int64)


def _fits(tagged: Int64, warp: Int64, groups: int, mask: int) -> Bools:
    """True if a tag names the warp of its record's place, or the block: encoders differ."""
    return np.asarray((tagged == (warp & mask)) | (tagged == (warp // groups & mask)))


def _holds_sm(tag: Int64, warp: Int64, groups: int) -> bool:
    """True if more tags are valid with an SM in them than without."""
    without = np.count_nonzero((tag >> 12) == (warp & 0xFFFFF))
    return int(np.count_nonzero(_fits(tag >> 12 & 0xFFF, warp, groups, 0xFFF))) > int(without)
