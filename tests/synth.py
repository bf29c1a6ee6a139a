"""Synthetic slabs with known contents, for tests and benchmarks of the host side.

`slab()` writes one slab word by word, as a device would (ring, stop, unfinished, 32-bit clocks); `bulk()` writes many
equal ones fast; `capture()` wraps lines with metadata. Written from the definitions in kscope/capture/layout.py alone:
it shares no code with the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.capture.capture_data import ClockSync, DeviceCapture
from kscope.capture.layout import Kind
from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta

EPOCH, KERNEL, MHZ = 7, 0x1234_5678_9ABC_DEF0, 1980


@dataclass(frozen=True)
class Rec:
    """A record with 64-bit clocks; `bits` is the user's payload where the kind has one."""

    name: str
    start: int
    end: int
    kind: Kind = Kind.SPAN
    bits: int = 0

    def words(self) -> list[int]:
        value = 0 if self.kind in (Kind.SPAN, Kind.INSTANT) else self.bits
        return [
            self.start & 0xFFFFFFFF,
            layout.record_id(self.name, self.kind),
            self.end & 0xFFFFFFFF,
            value & 0xFFFFFFFF,
        ]


def instant(name: str, at: int, bits: int | None = None) -> Rec:
    """A point in time."""
    return Rec(name, at, at, Kind.INSTANT if bits is None else Kind.INSTANT_VALUE, bits or 0)


EVERY_KIND = (
    Rec("load", 2000, 2198),
    Rec("dot", 2200, 2398, Kind.SPAN_VALUE, 5),
    instant("mark", 2400),
    Rec("queue", 2410, 2410, Kind.COUNTER, 3),
    Rec("tile", 1990, 2600),
)
"""One lane's records, in which tile holds load and dot."""
ITS_NAMES = ("load", ("dot", "i32"), "mark", ("queue", "u32"), "tile")


def slab(
    records: Sequence[Rec],
    *,
    log2: int = 3,
    start: int = 1000,
    end: int | None = 100_000,
    start_time: int | None = None,
    end_time: int | None = None,
    block: tuple[int, int, int] = (0, 0, 0),
    grid: tuple[int, int, int] = (1, 1, 1),
    warp: int = 0,
    lane: int = 0,
    sm: int = 0,
    flags: int = 0,
    kernel: int = KERNEL,
    grid_id: int = 1,
    epoch: int = EPOCH,
    width: int = 10,
    end_width: int | None = None,
    cluster: int = 0,
    magic: int = layout.HEADER_WORD,
    count: int | None = None,
) -> np.ndarray:
    """One slab as (units, 16) uint32 lines. `end=None`: the warp never finished. The times default to
    the clocks at 1980 MHz, on a timer that ticks every nanosecond."""
    capacity = 1 << log2
    header = np.zeros(1, layout.HEADER)
    header["magic"], header["epoch"], header["kernel"], header["grid_id"] = magic, epoch, kernel, grid_id
    header["ctaid_x"], header["ctaid_yz"] = block[0], block[1] | block[2] << 16
    header["nctaid_x"], header["nctaid_yz"] = grid[0], grid[1] | grid[2] << 16
    header["ntid"] = 127
    header["place"] = lane | warp << 5 | log2 << 10 | flags << 15 | sm << 20
    header["cluster"] = cluster
    header["start_clock"], header["start_width"] = start, width
    header["start_time"] = time_of(start) if start_time is None else start_time
    header["check"] = layout.header_check(header.view(np.uint32).reshape(1, 32))
    if end is not None:
        written = len(records) if count is None else count
        wide = width if end_width is None else end_width
        header["end_clock"], header["end_width"], header["count"] = end, wide, written
        header["end_time"] = time_of(end) if end_time is None else end_time
        header["done"] = layout.DONE_WORD ^ written ^ end & 0xFFFFFFFF
    words = np.zeros((capacity, 4), np.uint32)
    for index, record in enumerate(records):
        if flags & layout.FLAG_STOP and index >= capacity:
            break
        words[index % capacity] = record.words()
    return np.concatenate([header.view(np.uint32).reshape(2, 16), words.reshape(-1, 16)])


def time_of(clock: int, mhz: int = MHZ) -> int:
    """The globaltimer at a clock reading where both began at 0."""
    return clock * 1000 // mhz


def module(
    names: Iterable[str | tuple[str, str]] = ("load", "dot"), kernel: int = KERNEL, name: str = "matmul"
) -> ModuleMeta:
    """Metadata of one kernel; a name is given alone or with the type of its value."""
    regions = tuple(RegionMeta(entry) if isinstance(entry, str) else RegionMeta(*entry) for entry in names)
    return ModuleMeta("synth", (KernelMeta(name, kernel, 3),), regions)


def device(
    lines: np.ndarray | Sequence[np.ndarray], *, ordinal: int = 0, lost: int = 0, tick_ns: int = 1
) -> DeviceCapture:
    """One device's capture of slabs, or of lines."""
    if not isinstance(lines, np.ndarray):
        lines = np.concatenate(list(lines)) if len(lines) else np.zeros((0, 16), np.uint32)
    return DeviceCapture(ordinal, "synthetic", lines, 132, lost, tick_ns, (ClockSync(10**18, 0, 10**18 + 100),))


def capture(*slabs: np.ndarray, names: Iterable[str | tuple[str, str]] = ("load", "dot"), lost: int = 0) -> Capture:
    """A capture of one device with one kernel."""
    return Capture(
        EPOCH, (device(slabs, lost=lost),), (module(names),), {"strategy": "elected"}, (), {"host": "synthetic"}
    )


def bulk(
    slabs: int, records: int, *, log2: int | None = None, sms: int = 132, warps: int = 8, seed: int = 0, waves: int = 1
) -> np.ndarray:
    """Lines of `slabs` equal slabs of `records` records each: pairs `load`, `dot` inside of `tile`.

    Every third record is the `tile` that holds the two before it. Warps of a block share an SM; blocks
    run in `waves` one after another (more waves, less overlap). Clocks pass 2^32 in between.
    """
    log2 = max(2, (records - 1).bit_length()) if log2 is None else log2
    rng = np.random.default_rng(seed)
    units = 2 + (1 << log2) // 4
    lines = np.zeros((slabs, units, 16), np.uint32)
    index = np.arange(slabs, dtype=np.uint64)
    wave = index * waves // slabs
    begin = (
        np.uint64((1 << 32) - 20_000) + wave * np.uint64(records * 600) + rng.integers(0, 4000, slabs, dtype=np.uint64)
    )
    tiles = np.arange(2, records, 3)
    ids = np.array([layout.record_id(name, Kind.SPAN) for name in ("load", "dot", "tile")], np.uint32)
    rows = lines[:, 2:].reshape(slabs, 1 << log2, 4)[:, :records]
    finish = np.empty(slabs, np.uint64)
    for some in (slice(at, at + 256) for at in range(0, slabs, 256)):  # in a core's cache
        low = rng.integers(20, 400, (len(begin[some]), 2 * records), dtype=np.uint32)
        np.cumsum(low, axis=1, out=low)
        finish[some] = begin[some] + low[:, -1] + np.uint64(50)
        low += begin[some, None].astype(np.uint32)
        start = low[:, 0::2]
        start[:, tiles] = start[:, tiles - 2] - np.uint32(10)
        rows[some, :, 0], rows[some, :, 2] = start, low[:, 1::2]
        rows[some, :, 1] = ids[np.arange(records) % 3]
    header = np.zeros(slabs, layout.HEADER)
    block = index // np.uint64(warps)
    header["magic"], header["epoch"], header["kernel"], header["grid_id"] = layout.HEADER_WORD, EPOCH, KERNEL, 1
    header["ctaid_x"], header["nctaid_x"], header["nctaid_yz"] = block, -(-slabs // warps), 1 | 1 << 16
    header["ntid"] = 32 * warps - 1
    header["place"] = (index % np.uint64(warps)) << 5 | np.uint64(log2 << 10) | (block % np.uint64(sms)) << 20
    header["start_clock"], header["start_width"] = begin, 10
    header["start_time"] = begin * np.uint64(1000) // np.uint64(MHZ) // np.uint64(32) * np.uint64(32)
    header["end_clock"], header["end_width"], header["count"] = finish, 10, records
    header["end_time"] = finish * np.uint64(1000) // np.uint64(MHZ) // np.uint64(32) * np.uint64(32)
    words = header.view(np.uint32).reshape(slabs, 32)
    header["check"] = layout.header_check(words)
    header["done"] = np.uint32(layout.DONE_WORD) ^ header["count"] ^ finish.astype(np.uint32)
    lines[:, :2] = words.reshape(slabs, 2, 16)
    return lines.reshape(-1, 16)
