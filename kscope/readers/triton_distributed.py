"""Triton-distributed's profiler buffer.

    word 0                  blocks | groups << 32
    word 1 + b              block | SM << 32, of every block that ran
    word 1 + blocks + k...  tag | low half of %globaltimer << 32, the warps' records one after another

    tag: warp = block * groups + group << 12 | task << 1 | it begins

A word of 64 ones, or of 63, was not written: the buffer is filled so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trace import Trace
from ..util.arrays import U64, Bools
from .columns import Notes, recorded_by
from .tagged import LOW, Launched, Marks, read
from .words import Names, named, words

_EMPTY = ((1 << 63) - 1, (1 << 64) - 1)


@recorded_by("Triton-distributed")
def triton_distributed(buffer: Any, names: Names = None, *, kernel: str = "kernel", device: int = 0) -> Trace:
    """The trace of a Triton-distributed profiler buffer. A group is shown as a warp of its block.

    Args:
        buffer: the kernel's output, 64-bit words.
        names: of tasks (its task_names) in order of task_type, or a dict.
        kernel, device: the kernel's name, the GPU's number.

    Raises:
        UsageError: a device or names are invalid.
    """
    notes = Notes()
    data = words("triton_distributed", buffer, device, notes)
    first = int(data[0]) if len(data) and int(data[0]) not in _EMPTY else 0
    blocks, groups = first & 0xFFFFFFFF, max(1, first >> 32)
    if blocks > max(0, len(data) - 1):
        notes.add("cut", f"the header declares {blocks:,} blocks, and the buffer has {len(data):,} words")
    table, rest_of = data[1 : 1 + blocks], data[1 + blocks :]
    word = rest_of[_is_written(rest_of)]
    tag, time = (word & np.uint64(LOW)).astype(np.int64), (word >> np.uint64(32)).astype(np.int64)
    warp = tag >> 12
    inside = warp < blocks * groups
    notes.count("garbled", np.count_nonzero(~inside), "record", "of a warp beyond the header's, left out")
    block = warp // groups
    sm = np.zeros(max(1, len(table)), np.int64)
    ran = np.flatnonzero(_is_written(table))
    owner, where = table[ran] & np.uint64(LOW), (table[ran] >> np.uint64(32)).astype(np.int64)
    right = (owner == ran.astype(np.uint64)) & (where < 1 << 16)
    notes.count("garbled", np.count_nonzero(~right), "block", "its entry names another block, or no SM: shown on SM 0")
    sm[ran[right]] = where[right]
    marks = Marks(warp, 1 - (tag & 1), tag >> 1 & 0x7FF, time, sm[np.clip(block, 0, len(sm) - 1)])
    launched = Launched(kernel, device, max(1, blocks), groups)
    return read(marks, inside, named(names, "task"), notes, launched, "task")


def _is_written(data: U64) -> Bools:
    """A mask of the written words."""
    return np.asarray((data != np.uint64(_EMPTY[0])) & (data != np.uint64(_EMPTY[1])))
