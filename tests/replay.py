"""Reads a .pftrace back through Perfetto's own protobuf classes, as its trace processor would."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb


@dataclass(frozen=True)
class Slice:
    """A finished slice: `track` is the path of names from the launch down, depth 0 = outermost. args: of its
    begin and its end."""

    track: tuple[str, ...]
    name: str
    start: int
    dur: int
    depth: int
    args: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def value(self) -> float | None:
        """The user's number."""
        return self.args.get("value")


@dataclass
class Replay:
    slices: list[Slice] = field(default_factory=list)
    instants: list[tuple[tuple[str, ...], str, int, float | None]] = field(default_factory=list)
    counters: list[tuple[tuple[str, ...], int, float]] = field(default_factory=list)
    arrows: list[tuple[Slice | str, Slice | str]] = field(default_factory=list)
    open_arrows: int = 0
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
    stacks: dict[int, list[tuple[str, int, dict[str, float], list[tuple[int, int]]]]] = {}
    ends: list[tuple[int, int, Slice | str]] = []

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
        args = {}
        for note in event.debug_annotations:
            assert notes[note.name_iid] not in args
            args[notes[note.name_iid]] = getattr(note, str(note.WhichOneof("value")))
        # which arrows begin (0) and end (1) here
        flow = [(number, 0) for number in event.flow_ids] + [(number, 1) for number in event.terminating_flow_ids]
        track = tracks[event.track_uuid]
        stack = stacks.setdefault(track.uuid, [])
        name = names[event.name_iid] if event.name_iid else event.name
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((name, clock, args, flow))
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            if not stack:
                out.stray_ends += 1
                continue
            opened, start, more, early = stack.pop()
            assert not args.keys() & more.keys()
            found = Slice(where(track.uuid), opened, start, clock - start, len(stack), {**more, **args})
            out.slices.append(found)
            ends += [(number, side, found) for number, side in early + flow]
        elif event.type == pb.TrackEvent.TYPE_INSTANT:
            out.instants.append((where(track.uuid), name, clock, args.get("value")))
            ends += [(number, side, name) for number, side in flow]
        elif event.type == pb.TrackEvent.TYPE_COUNTER:
            assert track.HasField("counter")
            out.counters.append((where(track.uuid), clock, event.double_counter_value))
    begun = {number: end for number, side, end in ends if not side}
    out.arrows = [(begun[number], end) for number, side, end in ends if side]
    out.open_arrows = len(begun) - len(out.arrows)
    out.unfinished = sum(map(len, stacks.values()))
    return out
