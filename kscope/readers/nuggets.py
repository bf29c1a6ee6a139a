"""transformer_nuggets' profile buffers, int64: one slice per unit (a block, say), all of one size.

    legacy    count, then {start ns, duration ns, tag, tid} per event; its first version has one slice in all
    compact   anchor, then {tag << 56 | duration << 32 | low half of the start} per event

The anchor is the unit's %globaltimer, whole. A slot of zeros was not written. Durations of compact events have 24 bits:
16.7 ms turn over.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..capture.layout import Kind
from ..errors import UsageError
from ..trace import Trace
from ..tracedata.data import UNKNOWN, Launch
from .columns import LAST_TIME, Int64, Lanes, Notes, Records, distinct, trace
from .tagged import NO_SM
from .words import Names, named, numbered, ranged, words

_APART = 1_000_000_000
"""Units of one launch begin within this many ns; an anchor farther from the others was written over."""
_TURN = 1 << 24


def nuggets(
    buffer: Any, names: Names = None, *, units: int = 1, compact: bool = False,
    tid: Literal["block", "warp"] = "block", kernel: str = "kernel", device: int = 0,
) -> Trace:  # fmt: skip
    """The trace of a transformer_nuggets profile buffer.

    buffer: what the kernel wrote, int64. names: of tags, as its TagTable has them, or a dict. units: how many slices it
    has (num_units; 1 in its first version); a unit is shown as a block. compact: events of one word. tid: what the
    events' tid is; with several units "block" means that the unit is it, and tid is not looked at.
    Raises UsageError for a number of units, a tid, a device or names that mean nothing.
    """
    numbered("nuggets", device)
    ranged("nuggets", "units", units, 1, (1 << 31) - 1)  # as many blocks as a grid has
    if tid not in ("block", "warp"):
        raise UsageError(f"nuggets(tid={tid!r}): expected 'block' or 'warp'")
    notes = Notes()
    data, rest = words(buffer)
    notes.cut(rest, "the buffer does not end with a whole word")
    size = len(data) // units
    events = max(0, size - 1) if compact else max(0, size - 1) // 4
    if size * units != len(data) or size != 1 + events * (1 if compact else 4):
        shape = "1 + N" if compact else "1 + 4 * N"
        notes.say("cut", f"{len(data):,} words are no {units:,} slices of {shape}: is units= right, and compact=?")
    slices = data[: size * units].reshape(units, size).view(np.int64)
    cells = slices[:, 1 : 1 + events * (1 if compact else 4)]
    unit, start, duration, event, thread = (_compact if compact else _legacy)(slices, cells, notes)
    sane = (start > 0) & (start < LAST_TIME)
    notes.tell("garbled", np.count_nonzero(~sane), "event", "it starts at a time that no timer shows, left out")
    wrong = sane & ((duration < 0) | (duration >= LAST_TIME))
    notes.tell("garbled", np.count_nonzero(wrong), "event", "with a duration below zero or of years: it is unknown")
    duration = np.where(wrong, UNKNOWN, duration)
    block = unit if units > 1 or (tid == "warp") else thread
    group = thread if tid == "warp" else np.zeros(len(thread), np.int64)
    block, group = np.clip(block, -1, 1 << 48), np.clip(group, -1, 1 << 10)
    block, group = block[sane], group[sane]
    first, lane = distinct(block, group)
    records = Records(lane, start[sane], duration[sane], event[sane], np.full(len(lane), Kind.SPAN, np.uint8))
    if not len(records.start):
        notes.say("nothing", "no event in this buffer: the kernel did not run, or recorded nothing")
    notes.say("assumed", NO_SM)
    none = np.zeros(len(first), np.int64)
    blocks = int(np.clip(block.max(initial=0), 0, 1 << 30)) + 1
    launch = Launch(kernel, device, 1, 0, (max(blocks, units if units > 1 else 1), 1, 1))
    rows = Lanes(block[first], group[first], none, none)
    return trace(records, rows, named(names, "tag"), notes, [launch], noun="tag")


_Columns = tuple[Int64, Int64, Int64, Int64, Int64]


def _legacy(slices: npt.NDArray[np.int64], cells: npt.NDArray[np.int64], notes: Notes) -> _Columns:
    """(unit, start, duration, tag, tid) of the events that are there."""
    rows = cells.reshape(len(slices), -1, 4)
    most = rows.shape[1]
    count = slices[:, 0] if slices.shape[1] else np.zeros(0, np.int64)
    more = count[(count > most) & (count < 1 << 40)] - most
    notes.tell("refused", int(more.sum()), "event", f"came after their slice was full: allocate more than {most:,}")
    notes.tell(
        "garbled", np.count_nonzero((count < 0) | (count >= 1 << 40)), "slice", "its count of events makes no sense"
    )
    unit, slot = np.nonzero(rows[:, :, 0])
    start, duration, tag, tid = rows[unit, slot].T
    return unit, start, duration, tag, tid


def _compact(slices: npt.NDArray[np.int64], cells: npt.NDArray[np.int64], notes: Notes) -> _Columns:
    """(unit, start, duration, tag, 0) of the events that are there."""
    unit, slot = np.nonzero(cells)
    anchor = slices[:, 0] if slices.shape[1] else np.zeros(0, np.int64)
    there = (anchor > 0) & (anchor < LAST_TIME)
    usual = int(np.median(anchor[there])) if there.any() else 0
    there &= np.abs(np.clip(anchor, 0, LAST_TIME) - usual) <= _APART
    used = np.unique(unit)
    why = "its anchor is another unit's event, or was not written: events left out"
    notes.tell("garbled", np.count_nonzero(~there[used]), "unit", why)
    kept = there[unit]
    unit, word = unit[kept], cells[unit[kept], slot[kept]]
    low, begin = word & 0xFFFFFFFF, anchor[unit]
    start = (begin >> 32 << 32) + low + np.where(low < (begin & 0xFFFFFFFF), 1 << 32, 0)
    if len(start) and int(start.max()) - int(anchor[there].min()) >= _TURN:
        text = "the launch took longer than the 16.7 ms that compact durations hold: long ones may be told short"
        notes.say("wrap", text)
    return unit, start, word >> 32 & _TURN - 1, word >> 56 & 0xFF, np.zeros(len(unit), np.int64)
