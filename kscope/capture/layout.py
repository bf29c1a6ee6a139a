"""The layout of slabs in a capture, version 1; a GPU writes shorter ones with the same records (wire.py).

    slab                       record (16 bytes)
    +----------------+  0      +-------+----+-----+-------+
    | header: begin  |         | start | id | end | value |
    +----------------+ 64      +-------+----+-----+-------+
    | header: end    |          u32     u32  u32   u32
    +----------------+ 128
    | 2^k records    |         id = hash28(name) << 4 | kind
    +----------------+

All words are little-endian; a *tick* is a count of the clock for which the module was compiled: an SM cycle or a ns.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from ..util.struct_layout import Fields

if TYPE_CHECKING:
    import numpy as np

MAJOR, MINOR = 1, 1
MAGIC = 0x4B53  # "KS"
HEADER_WORD = MAGIC << 16 | MAJOR << 8 | MINOR
DONE_WORD = 0x444F4E45  # "DONE": xor-ed with the count and the end clock's low word

LINE = 64
"""Bytes of a line, the granule of scanning."""
HEADER_BYTES = 128
RECORD_BYTES = 16
RECORDS_PER_LINE = LINE // RECORD_BYTES
HEADER_LINES = HEADER_BYTES // LINE
MIN_LOG2_RECORDS, MAX_LOG2_RECORDS = 2, 20

META_SYMBOL = "kscope_meta"
"""Global symbol in every instrumented module: UTF-8 JSON, NUL-terminated (metadata.py)."""


class Kind(IntEnum):
    """Kind of a record: the low four bits of its id word. 0 is never written; it is cleared memory."""

    SPAN = 1  # value = 0
    SPAN_VALUE = 2  # value = the user's 32 bits
    INSTANT = 3  # start == end; value = 0
    INSTANT_VALUE = 4
    COUNTER = 5  # start == end; value = the counter's 32 bits


MORE = 7
"""Kind of a row directly before a record with a value of 64 bits: the record's id with this kind, its clocks, and the
half of the value that the record does not imply (marks/wide_values.py)."""
HAS_MORE = 8
"""Added to the kind of a record with such a row."""


ANCHOR_ID, LAST_ANCHOR_ID = 6, 1 << 4 | 6
"""Ids of two kinds of rows that a kernel with marks in loops puts among the records of a long warp. An anchor has both
clocks: start = the low word of %clock64 before, end = after, value = the low word of %globaltimer. The last anchor is
the end of a ring that overflowed; its value is the number of anchors before it, modulo 2^15."""

RECORD = Fields([("start", "<u4"), ("id", "<u4"), ("end", "<u4"), ("value", "<u4")])
"""One mark pair, written by one 16-byte store. The id lies between the clocks so that each clock read lands in the
even register of an aligned pair, without a move. The clocks' high words would cost 7 cycles per region on an H200
(docs/design/performance.md); the header's anchors show where a duration is ambiguous without them."""

HALF = Fields([("start", "<u4"), ("id", "<u4"), ("end", "<u4"), ("more", "<u4")])
"""The row with half of the next record's value: that record's clocks, its id with the kind MORE, and the half."""

HEADER = Fields(
    [
        # begin: written by the claim, check last
        ("magic", "<u4"),  # 0
        ("epoch", "<u4"),  # 1   session that was armed at the claim
        ("kernel", "<u8"),  # 2   FNV-1a 64 of the module's emitted text and the kernel's name
        ("grid_id", "<u8"),  # 4   %gridid: unique per launch, the same for every replay of a graph
        ("ctaid_x", "<u4"),  # 6
        ("ctaid_yz", "<u4"),  # 7   y | z << 16
        ("nctaid_x", "<u4"),  # 8
        ("nctaid_yz", "<u4"),  # 9   y | z << 16
        ("ntid", "<u4"),  # 10  (x-1) | (y-1) << 10 | (z-1) << 20
        ("place", "<u4"),  # 11  lane | warp << 5 | log2(records) << 10 | flags << 15 | smid << 20
        ("cluster", "<u4"),  # 12  rank | shape x << 8 | y << 16 | z << 24; 0 = not a cluster launch
        ("position", "<u4"),  # 13  the claim: units since the stripe's first claim, modulo 2^32
        ("stripe", "<u4"),  # 14  index of the stripe of the claim
        ("check", "<u4"),  # 15  xor of words 0..14 and 16..20
        # start anchor
        ("start_clock", "<u8"),  # 16  %clock64 before the globaltimer read
        ("start_time", "<u8"),  # 18  %globaltimer, ns
        ("start_width", "<u4"),  # 20  clock64 after minus before: the error bound of the anchor
        ("reserved", "<u4", (3,)),
        # end: written when the warp leaves the kernel; all zero = unfinished
        ("end_clock", "<u8"),  # 24
        ("end_time", "<u8"),  # 26
        ("end_width", "<u4"),  # 28
        ("count", "<u4"),  # 29  records and anchors written, including overwritten and refused ones
        ("anchors", "<u4"),  # 30  how many of them are anchors; of an unfinished warp, those that are there (1.1)
        ("done", "<u4"),  # 31  DONE_WORD ^ count ^ low word of end_clock
    ]
)

# HEADER["place"]
LANE_BITS, WARP_SHIFT, LOG2_SHIFT, FLAG_SHIFT, SMID_SHIFT = 5, 5, 10, 15, 20
FLAG_GLOBALTIMER = 1  # records hold globaltimer ticks, else cycles
FLAG_STOP = 2  # fill policy: keep the oldest, else the newest
FLAG_LANES = 4  # every lane records (AllThreads), else one lane per warp or block
FLAG_ANY = 8  # any lane of a warp records (Elected(any_lane=True)): their slabs are merged
FLAG_ANCHORS = 16  # anchors may be among the records


def name_hash(name: str) -> int:
    """28-bit FNV-1a of the name as UTF-8 (lone surrogates are question marks), xor-folded
    (http://www.isthe.com/chongo/tech/comp/fnv/)."""
    h = 0x811C9DC5
    for byte in name.encode("utf-8", "replace"):
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return (h >> 28) ^ (h & 0x0FFFFFFF)


def record_id(name: str, kind: Kind) -> int:
    """The id word of a record."""
    return name_hash(name) << 4 | kind


def kernel_hash(data: bytes) -> int:
    """64-bit FNV-1a, as in HEADER["kernel"]."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def header_check(lines: np.ndarray) -> np.ndarray:
    """Expected HEADER["check"], (n,) uint32, of headers as (n, 32) uint32 words."""
    import numpy as np  # not loaded by kscope watch

    used = np.concatenate([lines[:, :15], lines[:, 16:21]], axis=1)
    return np.asarray(np.bitwise_xor.reduce(used, axis=1))


def slab_lines(log2_records: int) -> int:
    """Lines of a slab of 2^log2_records records, including its header."""
    return HEADER_LINES + (1 << log2_records) // RECORDS_PER_LINE


assert HEADER.itemsize == HEADER_BYTES and RECORD.itemsize == RECORD_BYTES
