"""How fast the host side is: decode, time axis, files; beside plain ways to do the same, in one run.

    make bench          or, with PYTHONPATH=.:tests, python bench/host.py [--records 10_000_000] [--repeat 5]

Prints one table. Every measurement is the best of `repeat` runs, in this process; memory is measured in a
process of its own that loads a capture file, decodes it and writes the .pftrace.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import synth

from kscope.assemble import assemble
from kscope.capture import Capture, load
from kscope.decode import decode_slabs, id_sample
from kscope.ids import IdTable, Names
from kscope.slabs import find
from kscope.trace import Trace

PER_SLAB, LANES = 250, 8448  # records; lanes that run at once: 132 SMs with 64 warps each
NAMES = ("load", "dot", "tile")
Row = tuple[str, float, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--memory", metavar="CAPTURE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print(memory(Path(options.memory)))
        return
    warnings.simplefilter("ignore", UserWarning)  # of files that are large on purpose
    capture = recorded(options.records)
    with tempfile.TemporaryDirectory() as folder:
        rows = [*decoding(capture, options.repeat), *files(capture, Path(folder), options.repeat)]
        peak = float(subprocess.check_output([sys.executable, __file__, "--memory", str(Path(folder) / "x.kscope")]))
    show(rows)
    print(f"\npeak memory of load, decode and .pftrace of {options.records:,} records: {peak / 1e9:.2f} GB")
    print(f"{os.cpu_count()}-core {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")


def recorded(records: int) -> Capture:
    """Spans three to a tile, in lanes that fill a GPU of 132 SMs again and again."""
    slabs = max(1, records // PER_SLAB)
    lines = synth.bulk(slabs, PER_SLAB, waves=max(1, slabs // LANES))
    return Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(NAMES),))


def best(repeat: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def decoding(capture: Capture, repeat: int) -> list[Row]:
    device = capture.devices[0]

    def words() -> int:
        slabs, _ = find(device.lines, capture.epoch)
        table = IdTable(Names(capture.modules), id_sample(device, slabs))
        return len(decode_slabs(device, slabs, table).start)

    count = words()
    trace = assemble(capture)

    def depth() -> None:
        trace.__dict__.pop("depth", None)
        _ = trace.depth

    few = recorded(min(count, 200_000))
    return [
        ("decode: start, duration, region, slab", best(repeat, words), count),
        ("  the same in a Python loop over struct", best(1, lambda: looped(few)), 200_000),
        ("decode to a Trace: with launches and the ns axis", best(repeat, lambda: assemble(capture)), count),
        ("depth, on first use", best(repeat, depth), count),
        ("summary", best(1, trace.summary), count),
    ]


def looped(capture: Capture) -> list[tuple[int, int, int]]:
    """What most profilers of this kind do: one record at a time."""
    found = []
    for line in capture.devices[0].lines.reshape(-1, 16):
        for start, number, end, _ in struct.iter_unpack("<4I", line.tobytes()):
            found.append((start, (end - start) & 0xFFFFFFFF, number >> 4))
    return found


def files(capture: Capture, folder: Path, repeat: int) -> list[Row]:
    trace = assemble(capture)
    count = len(trace)
    some = trace.take(np.arange(min(count, 1_000_000)))
    few = trace.take(np.arange(min(count, 100_000)))
    return [
        (".kscope, save", best(1, lambda: capture.save(folder / "x.kscope")), count),
        (".kscope, load", best(2, lambda: load(folder / "x.kscope")), count),
        (".pftrace", best(repeat, lambda: trace.export(folder / "x.pftrace", limit=None)), count),
        (
            "  the same with Perfetto's protobuf classes",
            best(1, lambda: with_protobuf(few, folder / "y.pftrace")),
            len(few),
        ),
        (".json", best(1, lambda: some.export(folder / "x.json", limit=None)), len(some)),
        ("  the same with the json module", best(1, lambda: with_json(few, folder / "y.json")), len(few)),
        ("  a bare list of dicts with orjson, in memory", best(1, lambda: bare(few)), len(few)),
    ]


def events(trace: Trace) -> list[tuple[float, float, str, int]]:
    names = trace.region_names()[trace.region].tolist()
    return list(zip(trace.start_ns.tolist(), trace.dur_ns.tolist(), names, trace.track.tolist(), strict=True))


def with_protobuf(trace: Trace, path: Path) -> None:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    found = pb.Trace()
    ends = [(start + dur, 2, name, track) for start, dur, name, track in events(trace)]
    for at, kind, name, track in sorted([*ends, *((start, 1, name, track) for start, _, name, track in events(trace))]):
        packet = found.packet.add(timestamp=int(at), trusted_packet_sequence_id=1)
        packet.track_event.type, packet.track_event.name, packet.track_event.track_uuid = kind, name, track + 1
    path.write_bytes(found.SerializeToString())


def dicts(trace: Trace) -> list[dict[str, object]]:
    return [
        {"ph": "X", "name": name, "pid": 1, "tid": track + 2, "ts": start / 1000, "dur": dur / 1000}
        for start, dur, name, track in events(trace)
    ]


def with_json(trace: Trace, path: Path) -> None:
    import json

    path.write_text(json.dumps({"traceEvents": dicts(trace)}))


def bare(trace: Trace) -> bytes:
    return orjson.dumps(dicts(trace))


def memory(path: Path) -> int:
    """Peak bytes of this process after it loaded, decoded and exported a capture."""
    warnings.simplefilter("ignore", UserWarning)
    assemble(load(path)).export(path.with_suffix(".pftrace"), limit=None)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def show(rows: list[Row]) -> None:
    print(f"| {'job':50} | {'seconds':>8} | {'million/s':>9} | {'times the plain way':>19} |")
    print(f"|{'-' * 52}|{'-' * 9}:|{'-' * 10}:|{'-' * 20}:|")
    for index, (name, seconds, count) in enumerate(rows):
        rate = count / seconds / 1e6
        plain = rows[index + 1] if index + 1 < len(rows) and rows[index + 1][0].startswith("  ") else None
        ratio = "" if plain is None or name.startswith("  ") else f"{rate / (plain[2] / plain[1] / 1e6):.0f}"
        print(f"| {name:50} | {seconds:8.3f} | {rate:9.2f} | {ratio:>19} |")


if __name__ == "__main__":
    main()
