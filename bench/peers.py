"""Speed of other trace writers, each in a separate process because their classes conflict.

python bench/peers.py tg4perfetto 100_000        prints seconds, packages imported and data made before
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

Span = tuple[int, int, str, int]
TRACKS, NAMES = 100, ("load", "dot", "tile")


def spans(count: int) -> list[Span]:
    """(begin, end, name, track), track after track, one after the other."""
    rng = random.Random(1)
    found = []
    for track in range(TRACKS):
        at = 1000
        for number in range(count // TRACKS):
            length = rng.randrange(10, 200)
            found.append((at, at + length, NAMES[number % len(NAMES)], track))
            at += length + rng.randrange(10, 200)
    return found


def tg4perfetto(data: list[Span], path: Path) -> Callable[[], object]:
    from tg4perfetto import TraceGenerator

    def work() -> None:
        generator = TraceGenerator(str(path))
        group = generator.create_group("kernel")
        tracks = [group.create_track(f"warp {track}") for track in range(TRACKS)]
        for at, end, name, track in _in_order(data):
            if end:
                tracks[track].close(at)
            else:
                tracks[track].open(at, name)
        generator.flush()

    return work


def traceprotobuilder(data: list[Span], path: Path) -> Callable[[], object]:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    def work() -> None:
        builder = TraceProtoBuilder()
        for track in range(TRACKS):
            descriptor = builder.add_packet().track_descriptor
            descriptor.uuid, descriptor.name = track + 1, f"warp {track}"
        for at, end, name, track in _in_order(data):
            packet = builder.add_packet()
            packet.timestamp, packet.trusted_packet_sequence_id = at, 1
            packet.track_event.track_uuid = track + 1
            if end:
                packet.track_event.type = TrackEvent.TYPE_SLICE_END
            else:
                packet.track_event.type, packet.track_event.name = TrackEvent.TYPE_SLICE_BEGIN, name
        path.write_bytes(builder.serialize())

    return work


def viztracer(data: list[Span], path: Path) -> Callable[[], object]:
    """Records as many of Python's own calls; returns the time that saving them takes."""
    from viztracer import VizTracer

    def call() -> None:
        """A call that becomes a slice."""

    tracer = VizTracer(tracer_entries=2 * len(data) + 1000, verbose=0)
    tracer.start()
    for _ in data:
        call()
    tracer.stop()
    return lambda: tracer.save(str(path))


def _in_order(data: list[Span]) -> list[tuple[int, bool, str, int]]:
    """(ns, is an end, name, track) in order of time."""
    ends = [(end, True, name, track) for _, end, name, track in data]
    begins = [(begin, False, name, track) for begin, _, name, track in data]
    return sorted(ends + begins, key=lambda event: (event[0], not event[1]))


PEERS = {
    "tg4perfetto": (tg4perfetto, ".pftrace"),
    "TraceProtoBuilder": (traceprotobuilder, ".pftrace"),
    "viztracer": (viztracer, ".json"),
}


def main() -> None:
    name, count = sys.argv[1], int(sys.argv[2].replace("_", ""))
    peer, suffix = PEERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        work = peer(spans(count), path)
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        assert path.stat().st_size > 10 * count
    print(seconds)


if __name__ == "__main__":
    main()
