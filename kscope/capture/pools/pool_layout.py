"""The layout of a pool file: a session with survive= records into it, and it outlives the program.

header      4096 bytes     HEADER, checked by its checksum; at 2048: STATE, which changes
journal     append-only    entries of JSON: the process, modules, problems
launches    LAUNCHES slots the host's last launches, with their Python stacks
book        4 MiB          the launch table (wire.LAUNCH), which kernels write
kept        a ring         slabs that were drained, expanded, oldest overwritten; in batches
pool        rings          slabs that kernels write (wire.py)
"""

from __future__ import annotations

import zlib

from ...util.struct_layout import Fields
from .. import wire

FIRST = b"kscope pool 2\n"
PAGE = 4096
STATE_AT = 2048
JOURNAL_BYTES, LAUNCHES, LAUNCH_BYTES = 4 << 20, 64, 2048
BOOK_BYTES = wire.SLOTS * wire.LAUNCH_BYTES
LEAST_KEPT, MOST_KEPT, KEPT_SHARE = 1 << 20, 64 << 20, 4
"""The ring of drained slabs has a quarter of the pool's bytes."""
RECORDING, ENDED = 1, 2
SUFFIX = ".pool"
ENTRY, BATCH = 0x4B534A45, 0x4B53424B  # "EJSK", "KBSK"

HEADER = Fields(
    [
        ("magic", "S16"),
        ("pid", "<u4"),
        ("device", "<u4"),
        ("epoch", "<u4"),
        ("sms", "<u4"),
        ("born", "<u8"),  # start of the process, in the kernel's ticks since boot: numbers of processes are reused
        ("boot", "S40"),  # the boot that these count from
        ("max_clock_khz", "<u4"),
        ("tick_ns", "<u4"),
        ("kept_at", "<u8"),
        ("kept_bytes", "<u8"),
        ("pool_at", "<u8"),
        ("pool_bytes", "<u8"),
        ("is_copy", "<u4"),  # 1: kernels write to the device's memory, and a keeper copies it here
        ("check", "<u4"),  # CRC-32 of the bytes before
    ]
)
STATE = Fields(
    [
        ("state", "<u4"),  # RECORDING or ENDED
        ("launched", "<u4"),  # launches so far
        ("batches", "<u8"),  # batches so far
        ("journal_left_out", "<u8"),  # entries that the journal had no room for
        ("keeper", "<u4"),  # the process that copies book and pool from the device; 0: none, or it is not ready
        ("is_final", "<u4"),  # 1: it has copied for the last time
    ]
)
ENTRY_HEAD = Fields([("magic", "<u4"), ("bytes", "<u4"), ("number", "<u4"), ("check", "<u4")])
"""Before each entry, launch and batch, so that a reader ignores one that a dead process did not finish; check is the
CRC-32 of the following bytes, or that of batch_check.py. Batches have a line (64 bytes).
"""
JOURNAL_AT = PAGE
LAUNCHES_AT = JOURNAL_AT + JOURNAL_BYTES
BOOK_AT = LAUNCHES_AT + LAUNCHES * LAUNCH_BYTES
KEPT_AT = BOOK_AT + BOOK_BYTES


def header_check(header: bytes) -> int:
    """Expected HEADER["check"] of a header."""
    return zlib.crc32(header[: HEADER.itemsize - 4])
