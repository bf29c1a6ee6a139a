"""Writes a Kineto file's events as Perfetto's packets: processes, threads and streams as tracks, arguments as JSON.
Fields are those of track_event.proto, track_descriptor.proto and debug_annotation.proto of Perfetto v52.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import orjson

from ..export.perfetto.row_words import clocks
from ..export.perfetto.tracks import SEQUENCE, block, descriptor, fixed, number, packet, varint
from ..tracedata.nesting import layers
from ..util.arrays import Bools, Int64
from ..util.json_values import clean, dump_json
from .kineto import Kineto

FIRST_UUID = 1 << 40
"""kscope's own tracks have lower numbers."""
FIRST_FLOW = 1 << 40
"""kscope's own arrows have lower numbers."""
_BEGIN, _END, _INSTANT = b"\x48\x01", b"\x48\x02", b"\x48\x03"
_SEQUENCE = number(10, SEQUENCE)


@dataclass
class Tracks:
    """The tracks: uuid by process and thread, and the descriptors. Perfetto drops overlapping slices of one thread of a
    JSON file; here they get a further track.
    """

    kineto: Kineto
    packets: list[bytes] = field(default_factory=list)
    uuids: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _meta: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _processes: dict[str, int] = field(default_factory=dict)
    _gpus: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at in np.flatnonzero(self.kineto.in_phase("M")).tolist():
            one = self.kineto.events[at]
            if isinstance(args := one.get("args"), dict):
                value = next(iter(args.values()), "")
                what, pid = str(one.get("name")), str(one.get("pid"))
                self._meta[what, pid, str(one.get("tid"))] = text = clean(str(value))
                self._meta.setdefault((what, pid, ""), text)
        for thread in np.unique(self.kineto.thread[self.kineto.of("kernel")]).tolist():
            self._gpus.setdefault(str(self.kineto.threads[thread][0]), len(self._gpus))

    def uuid(self, pid: str, tid: str, *, layer: int = 0) -> int:
        """The track of a thread, created on first use."""
        key = (pid, tid, layer)
        if key not in self.uuids:
            parent = self._process(pid)
            self.uuids[key] = FIRST_UUID + len(self.uuids) + len(self._processes)
            name = self._meta.get(("thread_name", pid, tid)) or f"thread {tid}"
            more = f" ({layer + 1})" * bool(layer)
            thread = b""
            if pid not in self._gpus and not layer and pid.isdecimal() and tid.isdecimal():
                thread = block(4, number(1, int(pid)) + number(2, int(tid)) + block(5, name))
            index = self._meta.get(("thread_sort_index", pid, tid), "")
            rank = (min(int(index), 1 << 27) if index.isdecimal() else 0) * 8 + min(layer, 7)
            self.packets.append(descriptor(self.uuids[key], parent, name.strip() + more, rank, thread))
        return self.uuids[key]

    def _process(self, pid: str) -> int:
        if pid not in self._processes:
            self._processes[pid] = FIRST_UUID + len(self.uuids) + len(self._processes)
            name, labels = (self._meta.get((what, pid, ""), "") for what in ("process_name", "process_labels"))
            shown = " \N{MIDDLE DOT} ".join(part for part in (labels, name if labels != name else "") if part) or pid
            process = b""
            if pid not in self._gpus and pid.isdecimal():
                process = block(3, number(1, int(pid)) + block(6, shown))
            self.packets.append(descriptor(self._processes[pid], None, shown, 0, number(11, 3) + process))
        return self._processes[pid]


def packets(kineto: Kineto, tracks: Tracks, launched: dict[int, list[int]]) -> Iterator[bytes]:
    """The file's slices, instants and arrows as packets.

    Args:
        kineto: the file.
        tracks: its tracks; those of all events are created.
        launched: numbers of arrows that begin at the calls with these indices.

    Yields:
        Bytes: first the descriptors, then the events in order of time.
    """
    at = np.flatnonzero(kineto.in_phase("X", "i"))
    begin, end, thread = kineto.begin[at], kineto.end_ns[at], kineto.thread[at].astype(np.int32)
    order = np.lexsort((-begin, end, thread))
    at, begin, end, thread = at[order], begin[order], end[order], thread[order]
    layer = layers(begin, end, thread)
    place, which = np.unique(np.stack([thread, layer.astype(np.int32)]), axis=1, return_inverse=True)
    uuids = [tracks.uuid(*map(str, kineto.threads[one]), layer=number) for one, number in place.T.tolist()]
    yield packet(_SEQUENCE + number(13, 1))  # the state of the sequence begins: Perfetto needs that for events
    yield b"".join(tracks.packets)
    flows = _flows(kineto, at)
    for index, numbers in launched.items():
        flows.setdefault(index, []).extend(fixed(47, one) for one in numbers)
    row, ends = _in_order(begin, end, kineto.in_phase("X")[at])
    times = _times(np.where(ends, end[row], begin[row]) + kineto.base)
    events, closed = _begins(kineto, at, which.ravel(), uuids, flows), [_tail(_END + _track(uuid)) for uuid in uuids]
    of = which.ravel()[row]
    parts = list[bytes]()
    for at_time, (item, where, is_end) in enumerate(zip(row.tolist(), of.tolist(), ends.tolist(), strict=True)):
        before, after = closed[where] if is_end else events[item]
        parts += (before, times[9 * at_time : 9 * at_time + 9], after)
    yield b"".join(parts)


def _in_order(begin: Int64, end: Int64, span: Bools) -> tuple[Int64, Bools]:
    """The begins, and the ends of spans, in order of time: at equal times ends, inner first; begins, outer first; then
    items without length, each begin before its end.

    Returns:
        The items, and whether each is an end.
    """
    flat, item = begin == end, np.arange(len(begin))
    phase = np.concatenate([np.where(flat, 2, 1), np.where(flat, 2, 0)])
    inner = np.concatenate([np.where(flat, item * 2, -end), np.where(flat, item * 2 + 1, -begin)])
    row = np.lexsort((inner, phase, np.concatenate([begin, end])))
    row = row[np.concatenate([np.ones(len(begin), bool), span])[row]]
    ends = row >= len(begin)
    return row - ends * len(begin), ends


def _begins(
    kineto: Kineto, at: Int64, which: Int64, uuids: list[int], flows: dict[int, list[bytes]]
) -> list[tuple[bytes, bytes]]:
    """The bytes before and after the time in the packets of slices' begins and of instants."""
    names, found = dict[str, bytes](), list[tuple[bytes, bytes]]()
    begins, points = [[sort + _track(uuid) for uuid in uuids] for sort in (_BEGIN, _INSTANT)]
    for index, place in zip(at.tolist(), which.tolist(), strict=True):
        one = kineto.events[index]
        name = str(one.get("name", ""))
        if name not in names:
            names[name] = block(23, clean(name))
        event = (begins if one["ph"] == "X" else points)[place] + names[name]
        args = one.get("args")
        if args:
            event += block(4, _ARGS + block(9, _json(args)))
        if index in flows:
            event += b"".join(flows[index])
        found.append(_tail(event))
    return found


_ARGS = block(10, "args")


def _json(args: object) -> bytes:
    try:
        return orjson.dumps(args)
    except (TypeError, ValueError):
        return dump_json(args)


def _track(uuid: int) -> bytes:
    return number(11, uuid)


def _tail(event: bytes) -> tuple[bytes, bytes]:
    """A packet's bytes before and after the nine bytes of its time."""
    rest = _SEQUENCE + block(11, event)
    return b"\x0a" + varint(len(rest) + 10) + b"\x40", rest


def _times(ns: Int64) -> bytes:
    words, last = clocks(np.maximum(ns, 0).astype(np.uint64))
    out = np.empty((len(ns), 9), np.uint8)
    out[:, :8] = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    out[:, 8] = last
    return out.tobytes()


def _flows(kineto: Kineto, at: Int64) -> dict[int, list[bytes]]:
    """Ends of the file's arrows by event: an arrow's end belongs to the slice that begins at its time on its thread."""
    ends = np.flatnonzero(kineto.in_phase("s", "t", "f"))
    slices = at[kineto.in_phase("X")[at]]
    outer_first = np.lexsort((-kineto.end_ns[slices], kineto.begin[slices], kineto.thread[slices]))
    slices = slices[outer_first]
    least = int(kineto.begin.min(initial=0))
    width = int(kineto.begin.max(initial=0)) - least + 1
    if not len(ends) or not len(slices) or width * len(kineto.threads) >= 1 << 62:
        return {}
    key = kineto.thread * width + kineto.begin - least
    where = np.minimum(np.searchsorted(key[slices], key[ends]), len(slices) - 1)
    hit = key[slices[where]] == key[ends]
    numbers, found = dict[tuple[str, str], int](), dict[int, list[bytes]]()
    for index, target in zip(ends[hit].tolist(), slices[where[hit]].tolist(), strict=True):
        one = kineto.events[index]
        flow = FIRST_FLOW + numbers.setdefault((str(one.get("cat")), str(one.get("id"))), len(numbers))
        found.setdefault(target, []).append(fixed(48 if one["ph"] == "f" else 47, flow))
    return found
