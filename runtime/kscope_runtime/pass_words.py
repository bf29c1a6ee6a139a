"""Data that a pass in compiled code shares with Python: struct pass of kscope/native/batches.h, whose fields have 8
bytes each.
"""

from __future__ import annotations

import numpy as np

SETS = 3
"""Batches whose columns are in use at a time: one is searched, one written, and one kept in a file."""

COLUMNS = {
    "at": (np.uint32, "slabs"), "log2": (np.uint8, "slabs"), "closed": (np.uint8, "slabs"), "over": (np.uint8, "slabs"),
    "entry": (np.int32, "slabs"), "taken_at": (np.uint32, "slabs"), "taken_entry": (np.int32, "slabs"),
    "kept": (np.uint32, "slabs"), "start_clock": (np.uint64, "slabs"), "first": (np.int64, "parts"),
    "opens": (np.int64, "parts"), "free": (np.int64, "parts"), "taken": (np.int64, "parts"),
    "stripe": (np.uint32, "parts"), "origin": (np.uint32, "parts"), "rows": (np.int32, "launches"),
    "launches": (np.uint32, "words"), "layout_first": (np.int32, "launches"), "layout_stop": (np.int32, "launches"),
    "line": (np.int64, "steps"),
}  # fmt: skip
"""Columns of a batch: type and capacity of each."""

_ADDRESS, _INTEGER, _REAL = "<u8", "<i8", "<f8"
_FIELDS = (
    (_ADDRESS, "read", "write", "write_column", "synchronize", "stream", "writes"),
    (_INTEGER, "stripes"),
    (_ADDRESS, "table", "words_at", "limits_at", "launches_at", "zeros"),
    (_INTEGER, "zeros_bytes"),
    (_ADDRESS, "before", "control", "limits", "ahead", "place0", "place1", "place2"),
    (_INTEGER, "window", "batches"),
    (_ADDRESS, "bounds", "stripe", "units", "tail", "skipped", "head", "whole"),
    (_ADDRESS, "ring", "tails", "found", "proven", "clean", "limit", "then", "turned", "stuck", "again", "delay"),
    (_INTEGER, "epoch", "next"),
    (_ADDRESS, "rows", "grid", "log2", "missing", "read_at", "looks"),
    (_INTEGER, "sizes", "enough_looks"),
    (_REAL, "stale", "rate"),
    (_INTEGER, "first_turn"),
    (_ADDRESS, "clock", "time"),
    (_INTEGER, "kernels"),
    (_ADDRESS, "kernel", "layouts", "layout_first", "layout_stop"),
    (_INTEGER, "header_word", "done_word", "least_log2", "most_log2", "settled", "threads"),
    (_ADDRESS, "lines"),
    (_INTEGER, "room"),
    (_ADDRESS, "kept"),
    (_INTEGER, "kept_bytes", "put"),
    (_ADDRESS, "kept_batches"),
    (_INTEGER, "batch", "fetched", "ready", "last", "pending", "used", "freed", "unnumbered", "has_room"),
    (_REAL, "reading"),
    (_ADDRESS, "failed"),
    (_INTEGER, "result"),
    (_ADDRESS, "writing", "keeping", *(f"{name}{number}" for number in range(SETS) for name in COLUMNS)),
)
PASS = np.dtype([(name, kind) for kind, *names in _FIELDS for name in names])
