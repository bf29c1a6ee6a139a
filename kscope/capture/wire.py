"""The wire layout, version 2, which a GPU writes and the host reads; see docs/design/protocol.md.

pool                                       slab                        record (16 bytes)
+-----------+-----------+-- --+--------+   +----------------+  0      +-------+----+-----+-------+
| stripe 0  | stripe 1  | ... | reserve|   | head           |         | start | id | end | value |
+-----------+-----------+-- --+--------+   +----------------+ 32      +-------+----+-----+-------+
  a ring of slabs per SM, one shared       | 2^k records    |           u32     u32  u32   u32
  reserve; sizes are powers of two         +----------------+
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.struct_layout import Fields
from .layout import RECORD_BYTES

if TYPE_CHECKING:
    import numpy as np

VERSION = 2
UNIT = 32
"""Bytes of a unit, the granule of claims."""
HEAD_BYTES, HEAD_UNITS = 32, 1
RECORDS_PER_UNIT = UNIT // RECORD_BYTES
SEGMENT_BYTES = 1 << 32
"""No ring crosses a multiple of it, and no slab crosses its ring's edge, so a record's address needs only 32-bit
addition on the low word of its slab's address."""

CTL_SYMBOL = "kscope_ctl"
"""8-byte constant symbol in every instrumented module: address of the control block, 0 until the host writes it."""

HEAD = Fields(
    [
        # written at the claim, by one store
        ("who", "<u4"),  # 0   warp | epoch, its lowest bit << 5 | smid << 6 | slot << 16
        ("block", "<u4"),  # 1   0 | lane << 4 | linear block, its low 23 bits << 9
        ("start_clock", "<u4"),  # 2   %clock64 before the globaltimer read, low word
        ("start_time", "<u4"),  # 3   %globaltimer in steps of 32 ns, its low 27 bits | log2(records) << 27
        # written when the warp leaves the kernel, by one store; all zero = unfinished
        ("end_clock", "<u4"),  # 4
        ("end_time", "<u4"),  # 5   %globaltimer in steps of 32 ns, low word
        ("count", "<u4"),  # 6   rows written, including overwritten and refused ones
        ("seal", "<u4"),  # 7   its low byte is never 0, see below
    ]
)
"""The first unit of a slab. The slot names an entry of the launch table; the other fields are this warp's alone. The
low bits of "block" are 0 where a record has its kind, so a reader can distinguish a head, a record and cleared memory.
"""

# HEAD["who"]
EPOCH_SHIFT, SM_SHIFT, SLOT_SHIFT = 5, 6, 16
SM_BITS, SLOT_BITS = SLOT_SHIFT - SM_SHIFT, 16
# HEAD["block"]
LANE_SHIFT, BLOCK_SHIFT = 4, 9
BLOCK_BITS = 32 - BLOCK_SHIFT
# HEAD["start_time"], HEAD["end_time"]
TIME_SHIFT, LOG2_SHIFT = 5, 27
# HEAD["seal"]: width | grid << 8 | turns << 16
WIDTH_BITS, WIDTH_CYCLES = 8, 4
"""An anchor's width is the distance of its two clock reads in steps of 4 cycles, rounded up, from 1 on; the seal has
the greater one. 255 means that distance or a longer one: such anchors bound nothing."""
GRID_SHIFT = 8
"""Bits 16 to 23 of %gridid: with the slot, a reader knows 24 bits of it, and notices an entry of another launch."""
TURNS_SHIFT = 16
"""high(end) - high(start) modulo 2^16, where high() is bits 32 to 39 of %clock64 above bits 32 to 39 of %globaltimer.
The difference of two clocks is known below 255 * 2^32 cycles, that of two times below 2^40 ns."""

STEP_SHIFT, ANCHOR_STEPS = 16, 4
"""A kernel with marks in loops adds an anchor after a record that ends at least four steps later than the last anchor
or the warp's start; a step is a multiple of 2^16 that %clock64 passes (33 us at 1.98 GHz). Warps of less than three
steps have none."""
ANCHORS_SHIFT = 17
"""The device counts anchors above the steps in one register, modulo 2^15."""

CLOCKS, EXTRA_ID = 14, 1 << 4 | 14
"""The kind of rows with three clocks, which the host expands to two or three records (clock_rows.py), and the id of one
more row: the end of a ring with such rows that overflowed. Its value is the number of records beyond rows that were
written before.
"""
ROW = Fields([("clock_0", "<u4"), ("id", "<u4"), ("clock_1", "<u4"), ("clock_2", "<u4")])
"""A row with three clocks. The id is a hash of its layout: the start and end clock of each record."""
CLOCK_WORDS = (0, 2, 3)
"""Words of the clocks in a row with three clocks; the other one is its layout's id."""
SHORT_ROW = Fields([("clock_0", "<u4"), ("id", "<u4"), ("shorts_0_1", "<u4"), ("shorts_2_3", "<u4")])
"""A row with short clocks, of two records of a pipeline. Each word of shorts has the first one in its low half."""
SHORTS, SHORT_BITS, SHORT_SHIFT = 4, 16, 3
"""Number and width of the shorts: first the distance of each further clock from the one before, then, for each record
whose value varies, what exceeds the value's constant part, without its three lowest bits, which are 0.
"""

OPEN = Fields(
    [
        ("clock", "<u4"),  # 0   the clock at the enter, low word
        ("id", "<u4"),  # 4   hash of the region's name << 4 | the sequence's low 4 bits
        ("value", "<u4"),  # 8   of the region; 0 without one
        ("sequence", "<u4"),  # 12  enters stored so far << 8, modulo 2^32
    ]
)
"""The last region that a warp entered, in kernels compiled with survive=: it is in the head's second row until the warp
leaves, by one store per enter. Its last byte but three is where the seal has the width, so it is never mistaken for an
end. If the halves of a word are of two stores, the sequence's low bits differ.
"""
OPEN_AT = HEAD_BYTES // 2
OPEN_UNKNOWN = {"i64": 1 << 31, "u64": (1 << 32) - 1}
"""OPEN["value"] for a value of 64 bits that does not fit 32. For an f64 it is the high half."""
SEQUENCE_SHIFT, SEQUENCE_LOW = 8, 15

SIZES = 4096
"""Words after the gate: the size of the slabs of kernels whose marks are in loops, by the low bits of a kernel's id.
A word is the number of records, a power of two, minus one. Kernels may share a word; each warp reads it once."""
VARYING = 31
"""In LAUNCH["layout"] instead of log2(records): slabs of this launch have the size in their heads."""

SLOTS = 1 << SLOT_BITS
LAUNCH = Fields(
    [
        ("grid_id", "<u8"),  # 0   %gridid: unique per launch, the same for every replay of a graph
        ("kernel", "<u8"),  # 2   FNV-1a 64 of the module's emitted text and the kernel's name
        ("nctaid_x", "<u4"),  # 4
        ("nctaid_yz", "<u4"),  # 5   y | z << 16
        ("ntid", "<u4"),  # 6   (x-1) | (y-1) << 10 | (z-1) << 20
        ("cluster", "<u4"),  # 7   shape x << 8 | y << 16 | z << 24; 0 = not a cluster launch
        ("time", "<u8"),  # 8   %globaltimer when block 0 started, ns
        ("layout", "<u4"),  # 10  log2(records) or VARYING << 10 | flags << 15, as in layout.HEADER["place"]
        ("check", "<u4"),  # 11  xor of words 0..10 and of the epoch
        ("reserved", "<u4", (4,)),
    ]
)
"""Fields that all warps of a launch share, in entry %gridid mod 65,536 of the launch table, to which the gate points.
The first thread of block 0 writes it, in three stores, if the gate is open; each replay of a graph writes it again.
"""
CHECK_WORD = 11

MAX_SMS = 512
MOST_CLAIMS = 4
"""Claims of a lane: the first, past the ring's edge, from the reserve, past its ring's edge."""
GATE = Fields(
    [
        ("epoch", "<u4"),  # 0   0 = off
        ("stripes", "<u4"),  # 4   number of per-SM stripes; the reserve is the stripe with this index
        ("warp_mask", "<u4"),  # 8   bit w: warp w of a block records
        ("sampled", "<u4"),  # 12  0: every warp, block and SM records; the masks and the blocks below are ignored
        ("launches", "<u8"),  # 16  address of the launch table: after the stripes, or in a file
        ("block_first", "<u8"),  # 24  first linear block index that records
        ("block_count", "<u8"),  # 32  number of blocks from there
        ("block_magic", "<u8"),  # 40  stride d as ceil(2^64 / d) mod 2^64 (Lemire's divisibility test)
        ("reserved", "<u8", (2,)),
        ("sm_mask", "<u4", (MAX_SMS // 32,)),  # 64  bit s: SM s records
    ]
)
"""First 128 bytes of the control block: on/off and the selection of blocks, warps and SMs. Written only by the host."""

STRIPE = Fields(
    [
        ("head", "<u4"),  # 0   device: atom.add, units claimed, modulo 2^32
        ("limit", "<u4"),  # 4   host: a claim [p, p + n) is granted if n <= limit - p <= mask + 1
        ("skipped", "<u4"),  # 8   device: units claimed but unused (no room, or across the ring's edge)
        ("lost", "<u4"),  # 12  device: lanes of this SM that found the pool full
        ("base", "<u8"),  # 16  host: address of the ring, a multiple of 64; see SEGMENT_BYTES
        ("mask", "<u4"),  # 24  host: units in the ring, minus one
        ("reserved", "<u4", (25,)),
    ]
)
"""One 128-byte line per SM after the sizes, then one for the reserve. `head - skipped` equals the units of all slabs,
so the host can account for every claim before it frees memory."""

GATE_BYTES, STRIPE_BYTES, LAUNCH_BYTES = GATE.itemsize, STRIPE.itemsize, LAUNCH.itemsize


SIZES_AT = GATE_BYTES
STRIPES_AT = SIZES_AT + 4 * SIZES
"""Offsets in the control block; the gate is at 0."""


def size_offset(kernel: int) -> int:
    """Offset in the control block of the size of a kernel's slabs, by the kernel's id."""
    return SIZES_AT + 4 * (kernel % SIZES)


def table_offset(stripes: int) -> int:
    """Offset of the launch table in a control block with `stripes` per-SM stripes and one reserve."""
    return STRIPES_AT + (stripes + 1) * STRIPE_BYTES


def control_bytes(stripes: int) -> int:
    """Bytes of a control block with `stripes` per-SM stripes, one reserve and the launch table."""
    return table_offset(stripes) + SLOTS * LAUNCH_BYTES


def slab_units(log2_records: int) -> int:
    """Units of a slab of 2^log2_records records, including its head."""
    return HEAD_UNITS + (1 << log2_records) // RECORDS_PER_UNIT


def launch_check(entries: np.ndarray, epoch: int) -> np.ndarray:
    """Expected LAUNCH["check"], (n,) uint32, of (n,) entries that were written under the session `epoch`."""
    import numpy as np  # not loaded by kscope watch

    words = np.ascontiguousarray(entries).view(np.uint32).reshape(-1, LAUNCH_BYTES // 4)
    return np.asarray(np.bitwise_xor.reduce(words[:, :CHECK_WORD], axis=1) ^ np.uint32(epoch))


def block_magic(stride: int) -> int:
    """GATE["block_magic"]: x % stride == 0 for a 32-bit x if and only if (x * magic) mod 2^64 <= (magic - 1) mod 2^64.

    Lemire, Kaser, Kurz: Faster remainder by direct computation (2019), section 3.2.
    """
    return (0xFFFFFFFFFFFFFFFF // stride + 1) & 0xFFFFFFFFFFFFFFFF


assert HEAD.itemsize == HEAD_BYTES and GATE_BYTES == 128 and STRIPE_BYTES == 128 and LAUNCH_BYTES == 64
