"""Buffers of 8-byte records {tag, time}: FlashInfer, TVM's CudaProfiler, warpscope, and Mirage.

    word 0               blocks | groups << 32
    word 1 + k*lanes + l the k-th record of lane l = block * groups + group:  tag | low half of %globaltimer << 32

    tag bits       31       24 23           12 11       2 1  0
    FlashInfer     |           lane           |  event   | kind |    and TVM, warpscope
    since #1305    |    SM    |     block     |  event   | kind |
    Mirage         |  number (13)  | lane (8) | event (9)| kind |

kind: 0 begin, 1 end, 2 a point in time, 3 the lane's end (TVM, warpscope). A word of zeros was not written. Whose
record it is follows from its place; what the tag says of it must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..capture.layout import Kind
from ..errors import UsageError
from ..trace import Trace
from ..tracedata.data import UNKNOWN, Launch
from .columns import Int64, Lanes, Notes, Records, trace
from .pairs import BEGIN, END, pair, unwrapped
from .words import Names, named, numbered, ranged, words

_BEGIN, _END, _POINT, _LAST = range(4)
LOW = 0xFFFFFFFF
NO_SM = "this data has no SM ids: all is shown on SM 0; group by block"


@dataclass(frozen=True, eq=False)
class Marks:
    """Marks, each lane's in the order in which it made them: lane (n,), kind (n,) begin, end, point or last, event
    (n,), time (n,) the low half of the timer; sm (n,) of its lane, None where it is not known."""

    lane: Int64
    kind: Int64
    event: Int64
    time: Int64
    sm: Int64 | None = None

    def take(self, at: Int64 | npt.NDArray[np.bool_]) -> Marks:
        """Those at indices, or where a mask says."""
        sm = None if self.sm is None else self.sm[at]
        return Marks(self.lane[at], self.kind[at], self.event[at], self.time[at], sm)


@dataclass(frozen=True)
class Launched:
    """What is known of the launch: blocks and groups as the header has them, at least 1."""

    kernel: str
    device: int
    blocks: int
    groups: int


def flashinfer(
    buffer: Any,
    names: Names = None,
    *,
    sm: bool | None = None,
    stride: int = 0,
    kernel: str = "kernel",
    device: int = 0,
) -> Trace:
    """The trace of a FlashInfer profiler buffer; also of TVM's CudaProfiler and of warpscope.

    buffer: what the kernel wrote, 64-bit words. names: of events, in order of their index, or a dict. sm: whether tags
    hold the SM (FlashInfer since its #1305); None: told from the tags. stride: words from a lane's record to its next
    (TVM's write stride); 0: blocks * groups. kernel, device: what to call them.
    A group is shown as a warp of its block. Times are ns of %globaltimer. Raises UsageError for an argument that
    means nothing.
    """
    if sm is not None and not isinstance(sm, bool):
        raise UsageError(f"flashinfer(sm={sm!r}): expected true or false, or nothing where the tags shall tell")
    ranged("flashinfer", "stride", stride, 0, 1 << 48)
    numbered("flashinfer", device)
    notes = Notes()
    data, rest = words(buffer)
    notes.cut(rest, "the buffer does not end with a whole record")
    blocks, groups = _header(data, notes)
    lane, tag, time = _written(data[1:], stride or blocks * groups)
    if sm is None:
        sm = bool(len(tag)) and not ((tag >> 12) == (lane & 0xFFFFF)).all() and _holds_sm(tag, lane, groups)
    if sm:
        fits = _fits(tag >> 12 & 0xFFF, lane, groups, 0xFFF)
    else:
        fits = (tag >> 12) == (lane & 0xFFFFF)
        notes.say("assumed", NO_SM)
    notes.tell("garbled", np.count_nonzero(~fits), "record", "its tag names another lane than its place, left out")
    marks = Marks(lane, tag & 3, tag >> 2 & 0x3FF, time, tag >> 24 if sm else None)
    return read(
        marks if fits.all() else marks.take(fits),
        named(names, "event"),
        notes,
        Launched(kernel, device, blocks, groups),
    )


def mirage(buffer: Any, names: Names = None, *, kernel: str = "kernel", device: int = 0) -> Trace:
    """The trace of a Mirage profiler buffer: FlashInfer's, with other bits in its tags. Arguments as there."""
    numbered("mirage", device)
    notes = Notes()
    data, rest = words(buffer)
    notes.cut(rest, "the buffer does not end with a whole record")
    blocks, groups = _header(data, notes)
    lane, tag, time = _written(data[1:], blocks * groups)
    fits = _fits(tag >> 11 & 0xFF, lane, groups, 0xFF)
    notes.tell("garbled", np.count_nonzero(~fits), "record", "its tag names another lane than its place, left out")
    notes.say("assumed", NO_SM)
    marks = Marks(lane, tag & 3, tag >> 2 & 0x1FF, time)
    return read(
        marks if fits.all() else marks.take(fits),
        named(names, "event"),
        notes,
        Launched(kernel, device, blocks, groups),
    )


def read(marks: Marks, names: dict[int, str], notes: Notes, launched: Launched, noun: str = "event") -> Trace:
    """The trace of marks, from all the layouts of this family."""
    if (marks.lane[1:] < marks.lane[:-1]).any():  # as in a buffer whose tags and places differ
        marks = marks.take(np.argsort(marks.lane, kind="stable"))
    time, back = unwrapped(marks.time, marks.lane)
    notes.tell("order", np.count_nonzero(back), "record", "its time is before that of the one before it in its lane")
    first = np.flatnonzero(np.append(True, marks.lane[1:] != marks.lane[:-1])) if len(time) else np.zeros(0, np.int64)
    lane = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(time))))
    paired = np.flatnonzero(marks.kind <= _END)
    step = np.where(marks.kind[paired] == _BEGIN, BEGIN, END)
    begins, ends, strays = pair(lane[paired] * 0x10000 + marks.event[paired], step)
    notes.tell("unpaired", len(strays), "record", "it ends what did not begin, left out")
    notes.tell("unpaired", np.count_nonzero(ends < 0), "record", "it begins what did not end: its duration is unknown")
    begin = paired[begins]
    duration = np.where(ends < 0, UNKNOWN, time[paired[np.maximum(ends, 0)]] - time[begin])
    backward = (ends >= 0) & (duration < 0)
    duration[backward] = UNKNOWN
    point = np.flatnonzero(marks.kind == _POINT)
    at = np.concatenate([begin, point])
    records = Records(
        lane=lane[at],
        start=time[at],
        duration=np.concatenate([duration, np.zeros(len(point), np.int64)]),
        event=marks.event[at],
        kind=np.where(np.arange(len(at)) < len(begin), Kind.SPAN, Kind.INSTANT).astype(np.uint8),
    )
    over = np.flatnonzero(marks.kind == _LAST)
    last = np.full(len(first), UNKNOWN)
    last[lane[over]] = time[over]
    none, number = np.zeros(len(first), np.int64), marks.lane[first]
    sm = none if marks.sm is None else marks.sm[first]
    rows = Lanes(number // launched.groups, number % launched.groups, sm, none, last)
    if not len(time):
        notes.say("nothing", "no record in this buffer: the kernel did not run, or was built without its profiler")
    launch = Launch(launched.kernel, launched.device, 1, 0, (min(launched.blocks, 1 << 31), 1, 1))
    return trace(records, rows, names, notes, [launch], noun=noun)


def _header(data: npt.NDArray[np.uint64], notes: Notes) -> tuple[int, int]:
    """(blocks, groups), each at least 1."""
    first = int(data[0]) if len(data) else 0
    blocks, groups = first & 0xFFFFFFFF, first >> 32
    if len(data) and not (blocks and groups):
        notes.say("garbled", f"the header says {blocks:,} blocks of {groups:,} groups: places are taken as one lane")
    if blocks * groups > max(0, len(data) - 1):
        notes.say(
            "cut", f"the header says {blocks:,} blocks of {groups:,} groups, and the buffer has {len(data):,} words"
        )
    return max(1, blocks), max(1, groups)


def _written(slots: npt.NDArray[np.uint64], lanes: int) -> tuple[Int64, Int64, Int64]:
    """(lane, tag, time) of the words that were written, lane after lane. A record of each lane follows another: with
    more lanes than slots each slot is a lane's first, and nothing is as large as a header says."""
    rows = -(-len(slots) // max(1, min(lanes, len(slots))))
    width = min(lanes, len(slots))
    table = np.zeros(rows * width, np.uint64)
    table[: len(slots)] = slots
    found = np.ascontiguousarray(table.reshape(rows, width).T).reshape(-1)
    at = np.flatnonzero(found)
    word = found[at]
    return at // max(1, rows), (word & np.uint64(LOW)).astype(np.int64), (word >> np.uint64(32)).astype(np.int64)


def _fits(said: Int64, lane: Int64, groups: int, mask: int) -> npt.NDArray[np.bool_]:
    """Whether a tag names the lane, or its block: encoders do either."""
    return np.asarray((said == (lane & mask)) | (said == (lane // groups & mask)))


def _holds_sm(tag: Int64, lane: Int64, groups: int) -> bool:
    """Whether more tags make sense with an SM in them than without."""
    without = np.count_nonzero((tag >> 12) == (lane & 0xFFFFF))
    return int(np.count_nonzero(_fits(tag >> 12 & 0xFFF, lane, groups, 0xFFF))) > int(without)
