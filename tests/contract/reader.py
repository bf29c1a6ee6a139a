"""A second, slow and simple reader of captures: the independent check of kscope.decode, used by the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.capture.layout import Kind

U32 = 0xFFFFFFFF
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Record:
    """start, end: ticks since the lane's start anchor, modulo 2^32."""

    region: str
    kind: Kind
    value: int | float | None
    start: int
    end: int


@dataclass(frozen=True)
class Lane:
    """One slab: what one lane recorded of one launch. launch: number of the launch in the session, replays of
    one grid id differ in `replay`. life: ticks between the anchors, None = the warp never finished. cluster: the
    word of the header. every: all lanes of the warp have slabs. turn: its
    lanes record in turn."""

    launch: int
    replay: int
    kernel: str
    grid: Triple
    threads: Triple
    block: Triple
    warp: int
    lane: int
    smid: int
    cluster: int
    clock: str
    fill: str
    every: bool
    turn: bool
    capacity: int
    life: int | None
    count: int
    records: tuple[Record, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        return self.launch, self.replay, self.kernel, self.block, self.warp, self.lane


def read(capture: Capture) -> list[Lane]:
    """Every lane of a capture, ordered by key."""
    kernels = {kernel.id: (kernel.name, module) for module in capture.modules for kernel in module.kernels}
    slabs = sorted(
        (slab for device in capture.devices for slab in _slabs(device.lines, capture.epoch)),
        key=lambda slab: int(slab[0]["start_time"]),
    )
    launches: dict[int, int] = {}
    replays: Counter[tuple[Any, ...]] = Counter()
    lanes = []
    for header, records in slabs:
        name, module = kernels[int(header["kernel"])]
        launch = launches.setdefault(int(header["grid_id"]), len(launches))
        place = int(header["place"])
        who = _triple(header["ctaid_x"], header["ctaid_yz"]), place >> 5 & 31, place & 31
        names = {layout.name_hash(region.name): region for region in module.regions}
        flags = place >> layout.FLAG_SHIFT
        timer = bool(flags & layout.FLAG_GLOBALTIMER)
        zero = int(header["start_time" if timer else "start_clock"])
        end = int(header["end_time" if timer else "end_clock"])
        finished = int(header["done"]) == layout.DONE_WORD ^ int(header["count"]) ^ int(header["end_clock"]) & U32
        count = int(header["count"]) if finished else int(np.count_nonzero(records["id"]))
        kept = _kept(records, count, place)
        is_anchor = kept["id"] & 15 == layout.ANCHOR_ID  # of a warp that took long, as under compute-sanitizer
        anchors = int(np.count_nonzero(is_anchor))
        lanes.append(
            Lane(
                launch=launch,
                replay=replays[launch, who],
                kernel=name,
                grid=_triple(header["nctaid_x"], header["nctaid_yz"]),
                threads=_threads(int(header["ntid"])),
                block=who[0],
                warp=who[1],
                lane=who[2],
                smid=place >> layout.SMID_SHIFT,
                cluster=int(header["cluster"]),
                clock="globaltimer" if timer else "cycles",
                fill="stop" if flags & layout.FLAG_STOP else "ring",
                every=bool(flags & layout.FLAG_LANES),
                turn=bool(flags & layout.FLAG_ANY),
                capacity=_places(len(records), count, anchors, finished),
                life=end - zero if finished else None,
                count=count - anchors,
                records=tuple(_records(kept[~is_anchor], names, zero)),
            )
        )
        replays[launch, who] += 1
    return sorted(lanes, key=lambda lane: lane.key)


def _slabs(lines: np.ndarray, epoch: int) -> list[tuple[Any, np.ndarray]]:
    """Headers and record rings of the session at every header with a valid check word."""
    found, behind = [], 0
    for at in np.flatnonzero(lines[: 1 - layout.HEADER_LINES, 0] == layout.HEADER_WORD).tolist():
        words = np.ascontiguousarray(lines[at : at + layout.HEADER_LINES]).reshape(-1)
        header = words.view(layout.HEADER)[0]
        check = int(np.bitwise_xor.reduce(np.concatenate([words[:15], words[16:21]])))
        if at < behind or int(header["check"]) != check:
            continue
        behind = at + layout.slab_lines(int(header["place"]) >> layout.LOG2_SHIFT & 31)
        body = np.ascontiguousarray(lines[at + layout.HEADER_LINES : behind]).reshape(-1)
        if int(header["epoch"]) == epoch:
            found.append((header, body.view(layout.RECORD)))
    return found


def _places(capacity: int, count: int, anchors: int, finished: bool) -> int:
    """The places for records that the slab would have without anchors: an unfinished one has one more than it needs."""
    if not anchors or count > capacity:
        return capacity
    return max(1 << layout.MIN_LOG2_RECORDS, 1 << (count - anchors - finished).bit_length())


def _kept(records: np.ndarray, count: int, place: int) -> np.ndarray:
    """The records that are still there, oldest first."""
    capacity = len(records)
    if count <= capacity:
        return records[:count]
    return records if place >> layout.FLAG_SHIFT & layout.FLAG_STOP else np.roll(records, -(count % capacity))


def _records(rows: np.ndarray, names: dict[int, Any], zero: int) -> Iterator[Record]:
    """The records of rows; one with half of a value before it has both, and without that half no value."""
    before = None
    for row in rows:
        if int(row["id"]) & 15 != layout.MORE:
            yield _record(row, names[int(row["id"]) >> 4], zero, before)
        before = row


def _record(record: Any, region: Any, zero: int, before: Any) -> Record:
    code = int(record["id"]) & 15
    has_more = code > max(Kind)
    kind, value = Kind(code & ~layout.HAS_MORE if has_more else code), None
    if kind in (Kind.SPAN_VALUE, Kind.INSTANT_VALUE, Kind.COUNTER) and not (has_more and before is None):
        value = _value(region.type, int(record["value"]), int(before["value"]) if has_more else 0)
    return Record(region.name, kind, value, int(record["start"]) - zero & U32, int(record["end"]) - zero & U32)


def _value(kind: str, word: int, more: int) -> int | float:
    if not kind.endswith("64"):
        return np.array([word], np.uint32).view({"i32": np.int32, "u32": np.uint32, "f32": np.float32}[kind])[0].item()
    high = more ^ (U32 if kind == "i64" and word >> 31 else 0)
    bits = np.array([word << 32 | more if kind == "f64" else high << 32 | word], np.uint64)
    return bits.view({"i64": np.int64, "u64": np.uint64, "f64": np.float64}[kind])[0].item()


def _triple(x: Any, yz: Any) -> Triple:
    return int(x), int(yz) & 0xFFFF, int(yz) >> 16


def _threads(word: int) -> Triple:
    return (word & 1023) + 1, (word >> 10 & 1023) + 1, (word >> 20) + 1
