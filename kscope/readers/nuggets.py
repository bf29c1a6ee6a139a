"""transformer_nuggets' profile buffers, int64: one slice per unit (such as a block), all of one size.

    legacy    count, then {start ns, duration ns, tag, tid} per event; its first version has one slice in all
    compact   anchor, then {tag << 56 | duration << 32 | low half of the start} per event

The anchor is the unit's whole %globaltimer; durations of compact events have 24 bits, which wrap around at 16.7 ms.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..capture.layout import Kind
from ..errors import UsageError
from ..trace import Trace
from ..tracedata.data import UNKNOWN, Launch
from ..util.arrays import Int64
from .columns import LAST_TIME, Notes, Records, WarpRows, distinct, recorded_by, trace
from .tagged import NO_SM
from .words import Names, named, ranged, words

_APART = 1_000_000_000
"""Units of one launch begin within this many ns; an anchor farther from the others was overwritten."""
_TURN = 1 << 24


@recorded_by("transformer_nuggets")
def nuggets(
    buffer: Any, names: Names = None, *, units: int = 1, compact: bool = False,
    tid: Literal["block", "warp"] = "block", kernel: str = "kernel", device: int = 0,
) -> Trace:  # fmt: skip
    """The trace of a transformer_nuggets profile buffer.

    Args:
        buffer: the kernel's output, int64.
        names: of tags, as in its TagTable, or a dict.
        units: number of slices (num_units; 1 in its first version); a unit is shown as a block.
        compact: True for one-word events.
        tid: the meaning of the events' tid; with several units "block" means that the unit is the block.
        kernel, device: the kernel's name, the GPU's number.

    Raises:
        UsageError: an argument is out of range.
    """
    ranged("nuggets", "units", units, 1, (1 << 31) - 1)  # as many blocks as a grid has
    if tid not in ("block", "warp"):
        raise UsageError(f"nuggets(tid={tid!r}): expected 'block' or 'warp'")
    notes = Notes()
    data = words("nuggets", buffer, device, notes)
    size = len(data) // units
    events = max(0, size - 1) if compact else max(0, size - 1) // 4
    if size * units != len(data) or size != 1 + events * (1 if compact else 4):
        shape = "1 + N" if compact else "1 + 4 * N"
        notes.add("cut", f"{len(data):,} words are not {units:,} slices of {shape}: check units= and compact=")
    slices = data[: size * units].reshape(units, size).view(np.int64)
    cells = slices[:, 1 : 1 + events * (1 if compact else 4)]
    unit, start, duration, event, thread = (_compact if compact else _legacy)(slices, cells, notes)
    sane = (start > 0) & (start < LAST_TIME)
    notes.count("garbled", np.count_nonzero(~sane), "event", "its start is out of range, left out")
    wrong = sane & ((duration < 0) | (duration >= LAST_TIME))
    notes.count("garbled", np.count_nonzero(wrong), "event", "with a duration below zero or of years: unknown")
    duration = np.where(wrong, UNKNOWN, duration)
    block = unit if units > 1 or (tid == "warp") else thread
    group = thread if tid == "warp" else np.zeros(len(thread), np.int64)
    block, group = np.clip(block[sane], -1, 1 << 48), np.clip(group[sane], -1, 1 << 10)
    first, row = distinct(block, group)
    records = Records(row, start[sane], duration[sane], event[sane], np.full(len(row), Kind.SPAN, np.uint8))
    notes.add("assumed", NO_SM)
    none = np.zeros(len(first), np.int64)
    blocks = int(np.clip(block.max(initial=0), 0, 1 << 30)) + 1
    launch = Launch(kernel, device, 1, 0, (max(blocks, units if units > 1 else 1), 1, 1))
    rows = WarpRows(block[first], group[first], none, none)
    return trace(records, rows, named(names, "tag"), notes, [launch], noun="tag")


_Columns = tuple[Int64, Int64, Int64, Int64, Int64]


def _legacy(slices: Int64, cells: Int64, notes: Notes) -> _Columns:
    """(unit, start, duration, tag, tid) of the written events."""
    rows = cells.reshape(len(slices), -1, 4)
    most = rows.shape[1]
    count = slices[:, 0] if slices.shape[1] else np.zeros(0, np.int64)
    more = count[(count > most) & (count < 1 << 40)] - most
    notes.count("refused", int(more.sum()), "event", f"came after their slice was full: allocate more than {most:,}")
    notes.count(
        "garbled", np.count_nonzero((count < 0) | (count >= 1 << 40)), "slice", "its count of events is damaged"
    )
    unit, slot = np.nonzero(rows[:, :, 0])
    start, duration, tag, tid = rows[unit, slot].T
    return unit, start, duration, tag, tid


def _compact(slices: Int64, cells: Int64, notes: Notes) -> _Columns:
    """(unit, start, duration, tag, 0) of the written events."""
    unit, slot = np.nonzero(cells)
    anchor = slices[:, 0] if slices.shape[1] else np.zeros(0, np.int64)
    there = (anchor > 0) & (anchor < LAST_TIME)
    usual = int(np.median(anchor[there])) if there.any() else 0
    there &= np.abs(np.clip(anchor, 0, LAST_TIME) - usual) <= _APART
    used = np.unique(unit)
    why = "its anchor is another unit's event, or missing: events left out"
    notes.count("garbled", np.count_nonzero(~there[used]), "unit", why)
    kept = there[unit]
    unit, word = unit[kept], cells[unit[kept], slot[kept]]
    low, begin = word & 0xFFFFFFFF, anchor[unit]
    start = (begin >> 32 << 32) + low + np.where(low < (begin & 0xFFFFFFFF), 1 << 32, 0)
    if len(start) and int(start.max()) - int(anchor[there].min()) >= _TURN:
        text = "the launch took longer than the 16.7 ms limit of compact durations: long ones may appear short"
        notes.add("wrap", text)
    return unit, start, word >> 32 & _TURN - 1, word >> 56 & 0xFF, np.zeros(len(unit), np.int64)
