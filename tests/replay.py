"""Reads a .pftrace back through Perfetto's own protobuf classes, as its trace processor would.

What lives here: clocks, interning, tracks, and one stack of open slices per track. What does not: any
code of kscope's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb


@dataclass(frozen=True)
class Slice:
    """A finished slice: `track` is the path of names from the launch down, depth 0 = outermost."""

    track: tuple[str, ...]
    name: str
    start: int
    dur: int
    depth: int
    value: float | None = None


@dataclass
class Replay:
    slices: list[Slice] = field(default_factory=list)
    instants: list[tuple[tuple[str, ...], str, int, float | None]] = field(default_factory=list)
    counters: list[tuple[tuple[str, ...], int, float]] = field(default_factory=list)
    unfinished: int = 0
    stray_ends: int = 0
    realtime: int = 0
    in_order: bool = True
    packets: int = 0


def replay(path: str | Path) -> Replay:
    trace = pb.Trace()
    trace.ParseFromString(Path(path).read_bytes())
    out, clock, last = Replay(packets=len(trace.packet)), 0, 0
    names: dict[int, str] = {}
    notes: dict[int, str] = {}
    tracks: dict[int, pb.TrackDescriptor] = {}
    stacks: dict[int, list[tuple[str, int, float | None]]] = {}

    def where(uuid: int) -> tuple[str, ...]:
        found: list[str] = []
        while uuid:
            track = tracks[uuid]
            found.append(track.process.process_name if track.HasField("process") else track.name)
            uuid = track.parent_uuid
        return tuple(reversed(found))

    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        names |= {name.iid: name.name for name in packet.interned_data.event_names}
        notes |= {name.iid: name.name for name in packet.interned_data.debug_annotation_names}
        for reading in packet.clock_snapshot.clocks:
            if reading.clock_id == 1:
                out.realtime = reading.timestamp
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        clock += packet.timestamp if packet.HasField("timestamp") else 0
        out.in_order &= clock >= last
        last = clock
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        value = None
        for note in event.debug_annotations:
            assert notes[note.name_iid] == "value"
            value = note.double_value if note.HasField("double_value") else note.int_value
        track = tracks[event.track_uuid]
        stack = stacks.setdefault(track.uuid, [])
        name = names[event.name_iid] if event.name_iid else event.name
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((name, clock, value))
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            if not stack:
                out.stray_ends += 1
                continue
            opened, start, with_value = stack.pop()
            out.slices.append(Slice(where(track.uuid), opened, start, clock - start, len(stack), with_value))
        elif event.type == pb.TrackEvent.TYPE_INSTANT:
            out.instants.append((where(track.uuid), name, clock, value))
        elif event.type == pb.TrackEvent.TYPE_COUNTER:
            assert track.HasField("counter")
            out.counters.append((where(track.uuid), clock, event.double_counter_value))
    out.unfinished = sum(map(len, stacks.values()))
    return out
