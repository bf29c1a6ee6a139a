"""sm-profiler's buffer, of its CUDA library and its Triton one.

    word 0, 1     blocks << 32 | groups, events per group << 32 | enabled
    counters      u32 per group, filled up to whole words
    active        32 u32 per group, filled up to whole words
    events        40 bytes each, as in EVENT, a fixed number per group

An event that did not start has start 0, a range that did not end has end 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..capture.layout import Kind
from ..trace import Trace
from ..tracedata.data import UNKNOWN, Launch
from .columns import LAST_TIME, Notes, Records, WarpRows, distinct, recorded_by, trace
from .words import Names, named, words

EVENT = np.dtype(
    [
        ("id", "<u4"), ("event", "<u4"), ("block", "<u4"), ("group", "<u4"), ("sm", "<u4"), ("type", "<u4"),
        ("start", "<u8"), ("end", "<u8"),
    ]
)  # fmt: skip
TYPES = 32
"""Distinct events."""
_INSTANT = 1


@recorded_by("sm-profiler")
def sm_profiler(buffer: Any, names: Names = None, *, kernel: str = "kernel", device: int = 0) -> Trace:
    """The trace of an sm-profiler buffer. A group is shown as a warp of its block.

    Args:
        buffer: the kernel's output.
        names: of events by event_no, in order or as a dict.
        kernel, device: the kernel's name, the GPU's number.

    Raises:
        UsageError: a device or names are invalid.
    """
    notes = Notes()
    data = words("sm_profiler", buffer, device, notes)
    head = [int(word) for word in data[:2]] + [0] * (2 - min(2, len(data)))
    blocks, groups, most = head[0] >> 32, head[0] & 0xFFFFFFFF, head[1] >> 32
    if not head[1] & 0xFFFFFFFF:
        notes.add("nothing", "the buffer's profiler was not enabled: nothing is recorded")
    warps = blocks * groups
    begin = 2 + (warps + 1) // 2 + warps * TYPES // 2
    if begin + 5 * warps * most > len(data):
        size = f"{blocks:,} blocks of {groups:,} groups with {most:,} events"
        notes.add("cut", f"the header declares {size}, and the buffer has {len(data):,} words")
    space = data[min(begin, len(data)) : min(begin + 5 * warps * most, len(data))]
    events = np.frombuffer(space[: len(space) // 5 * 5].tobytes(), EVENT)
    _full(data, warps, most, notes)
    at = np.flatnonzero(events["start"])
    warp = at // max(1, most)
    block, group = warp // max(1, groups), warp % max(1, groups)
    row = events[at]
    sane = (row["block"] == block) & (row["group"] == group) & (row["event"] < TYPES) & (row["type"] <= _INSTANT)
    sane &= (row["start"] < LAST_TIME) & (row["end"] < LAST_TIME) & (row["sm"] < 1 << 16)
    notes.count("garbled", np.count_nonzero(~sane), "event", "in the wrong place or damaged, left out")
    row, warp, block, group = row[sane], warp[sane], block[sane], group[sane]
    start, end = row["start"].astype(np.int64), row["end"].astype(np.int64)
    instant = row["type"] == _INSTANT
    open_ = ~instant & (end == 0)
    back = ~instant & ~open_ & (end < start)
    notes.count("unpaired", np.count_nonzero(open_), "event", "a begin without an end: its duration is unknown")
    notes.count("order", np.count_nonzero(back), "event", "it ends before it begins: its duration is unknown")
    duration = np.where(instant, 0, np.where(open_ | back, UNKNOWN, end - start))
    first, number = distinct(warp)
    kind = np.where(instant, Kind.INSTANT, Kind.SPAN).astype(np.uint8)
    records = Records(number, start, duration, row["event"].astype(np.int64), kind)
    rows = WarpRows(block[first], group[first], row["sm"][first].astype(np.int64), np.zeros(len(first), np.int64))
    launch = Launch(kernel, device, 1, 0, (min(max(1, blocks), 1 << 31), 1, 1))
    return trace(records, rows, named(names, "event"), notes, [launch])


def _full(data: np.ndarray, warps: int, most: int, notes: Notes) -> None:
    """Report events beyond a group's capacity: its counter continues."""
    counters = data[2 : 2 + (min(warps, 2 * len(data)) + 1) // 2].view("<u4")[:warps].astype(np.int64)
    more = counters[counters > most] - most
    notes.count("refused", int(more.sum()), "event", f"came after their group was full: allocate more than {most:,}")
