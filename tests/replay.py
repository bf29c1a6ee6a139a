"""Reads a .pftrace back through Perfetto's own protobuf classes, as its trace processor would."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb


@dataclass(frozen=True)
class Slice:
    """A finished slice: `track` is the path of names from the GPU down, depth 0 = outermost. start: ns after the
    first event. args: of its begin and its end."""

    track: tuple[str, ...]
    name: str
    start: int
    dur: int
    depth: int
    args: dict[str, float | str] = field(default_factory=dict, compare=False)

    @property
    def lane(self) -> str:
        """The name of its row, without the groups that it begins with."""
        return self.track[-1].rsplit(" · ", 1)[-1]

    @property
    def value(self) -> float | None:
        """The user's number."""
        found = self.args.get("value")
        assert not isinstance(found, str)
        return found


@dataclass
class Replay:
    slices: list[Slice] = field(default_factory=list)
    launches: list[Slice] = field(default_factory=list)
    notes: dict[tuple[str, ...], str] = field(default_factory=dict)
    ranks: dict[tuple[str, ...], int] = field(default_factory=dict)
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
    times = [packet.timestamp for packet in trace.packet if packet.HasField("timestamp")]
    out, last = Replay(packets=len(trace.packet), realtime=min(times, default=0)), 0
    names: dict[int, str] = {}
    notes: dict[int, str] = {}
    strings: dict[int, str] = {}
    first: set[int] = set()
    tracks: dict[int, pb.TrackDescriptor] = {}
    stacks: dict[int, list[tuple[str, int, dict[str, float | str], list[tuple[int, int]]]]] = {}
    ends: list[tuple[int, int, Slice | str]] = []

    def where(uuid: int) -> tuple[str, ...]:
        found: list[str] = []
        while uuid:
            track = tracks[uuid]
            found.append(track.name)
            uuid = track.parent_uuid
        return tuple(reversed(found))

    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        names |= {name.iid: name.name for name in packet.interned_data.event_names}
        notes |= {name.iid: name.name for name in packet.interned_data.debug_annotation_names}
        strings |= {one.iid: one.str.decode() for one in packet.interned_data.debug_annotation_string_values}
        assert not packet.HasField("clock_snapshot")
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            track = tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            out.notes[where(track.uuid)] = track.description
            out.ranks[where(track.uuid)] = track.sibling_order_rank
        clock = packet.timestamp - out.realtime
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        args: dict[str, float | str] = {}
        for note in event.debug_annotations:
            title = notes[note.name_iid] if note.name_iid else note.name
            assert title not in args
            value = getattr(note, str(note.WhichOneof("value")))
            args[title] = strings[value] if note.HasField("string_value_iid") else value
        if event.HasField("name"):  # a launch or a problem, before all records
            first.add(event.track_uuid)
        if event.track_uuid not in first:
            out.in_order &= clock >= last
            last = clock
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
            (out.launches if "grid" in found.args else out.slices).append(found)
            ends += [(number, side, found) for number, side in early + flow]
        elif event.type == pb.TrackEvent.TYPE_INSTANT:
            out.instants.append((where(track.uuid), name, clock, args.get("value")))  # type: ignore[arg-type]  # a number
            ends += [(number, side, name) for number, side in flow]
        elif event.type == pb.TrackEvent.TYPE_COUNTER:
            assert track.HasField("counter")
            out.counters.append((where(track.uuid), clock, event.double_counter_value))
    begun = {number: end for number, side, end in ends if not side}
    out.arrows = [(begun[number], end) for number, side, end in ends if side]
    out.open_arrows = len(begun) - len(out.arrows)
    out.unfinished = sum(map(len, stacks.values()))
    return out
