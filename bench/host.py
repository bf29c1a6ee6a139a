"""Speed of the host side (decode, time axis, files), compared with simple implementations in one run.

    make bench          or, with PYTHONPATH=.:tests, python bench/host.py [--records 10_000_000] [--repeat 5]
                        --peers PYTHON: an interpreter with viztracer and tg4perfetto; default: this one
                        --reading: decode and summary only
                        --json FILE (bench.json)

Prints one table, and writes a file of rows as bench/gpu.py does, with the spread of the runs, the machine and the
package versions. Every measurement in the table is the best of `repeat` runs in this process. Memory is measured in
separate processes: one loads a capture file, decodes it and writes the .pftrace, others have a capture
in memory, as many records and ten times as many, and then decode and summarize it, three times.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import rows as results
import synth

import kscope
from kscope import decode
from kscope.analysis.compare import compare
from kscope.analysis.gaps import gaps_by_neighbors, longest
from kscope.analysis.overlap import overlap
from kscope.capture.capture import Capture, load_capture
from kscope.decoding.columns import decode_slabs, id_sample
from kscope.decoding.ids import IdTable, Names
from kscope.decoding.slabs import find
from kscope.trace import Trace

PER_SLAB, LANES = 250, 8448  # records; lanes that run at once: 132 SMs with 64 warps each
MORE = 10
"""Memory is measured with one and ten times the records, in a process with nothing else in memory."""
FEW = 4
"""Records of a short-lived lane."""
NAMES = ("load", "dot", "tile")


class Row(NamedTuple):
    """A line of the table: wall time and CPU time of all threads in seconds, of the fastest run; wall times of all
    runs. NaN: not measured."""

    name: str
    seconds: float
    cpu: float
    runs: tuple[float, ...]
    records: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--quiet", type=float, default=0, metavar="S", help="wait that long for an idle moment, each run"
    )
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--reading", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("--memory", metavar="CAPTURE", help=argparse.SUPPRESS)
    parser.add_argument("--beside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    started, begun = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), time.monotonic()
    global PATIENCE
    PATIENCE = options.quiet
    if options.memory:
        print(memory(Path(options.memory)))
        return
    if options.beside:
        print(*beside(recorded(options.records)))
        return
    warnings.simplefilter("ignore", UserWarning)  # about large files
    capture = recorded(options.records)
    peak, rows = 0.0, decoding(capture, options.repeat)
    if not options.reading:
        with tempfile.TemporaryDirectory() as folder:
            rows += files(capture, Path(folder), options.repeat)
            rows += others(options.peers)
            found = subprocess.check_output([sys.executable, __file__, "--memory", str(Path(folder) / "x.kscope")])
            peak = float(found)
    del capture
    large = [apart(count) for count in (options.records, MORE * options.records)]
    rows += [row for row, _ in large]
    show(rows)
    if peak:
        print(f"\npeak memory of load, decode and .pftrace of {options.records:,} records: {peak / 1e9:.2f} GB")
    for row, each in large:
        print(f"peak memory of decode and summary of {row.records:,}, beside the raw words: {each:.0f} bytes a record")
    print(results.about_host())
    sizes = [
        results.row("peak of decode and summary", f"{row.records:,}", "bytes a record", [each]) for row, each in large
    ]
    if peak:
        sizes.append(results.row("peak of load, decode and .pftrace", f"{options.records:,}", "bytes", [peak]))
    times = [
        results.row(
            row.name.strip(), f"{row.records:,}", "s", row.runs, **({} if row.cpu != row.cpu else {"cpu": row.cpu})
        )
        for row in rows
    ]
    section = results.Section("host", time.monotonic() - begun, "ok", rows=(*times, *sizes))
    report = results.Report(["python", *sys.argv], started, results.machine(), versions(), (section,))
    results.write(report, options.json)


def versions() -> dict[str, str]:
    """Versions of the measured packages and of those that measure."""
    names = [name for name in ("numpy", "orjson", "pandas", "perfetto", "pyarrow") if find_spec(name)]
    return {"kscope": kscope.__version__, **{name: metadata.version(name) for name in names}}


def recorded(records: int, each: int = PER_SLAB) -> Capture:
    """Three spans per tile, in lanes of `each` spans; the lanes fill a GPU of 132 SMs again and again."""
    slabs = max(1, records // each)
    lines = synth.bulk(slabs, each, waves=max(1, slabs // LANES))
    return Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(NAMES),))


PATIENCE = 0.0
"""Seconds that settle() waits at most."""


def settle() -> None:
    """On a shared machine: wait until other processes were idle for a quarter of a second."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        before = _ticks()
        time.sleep(0.25)
        idle, all_of_them = (after - earlier for after, earlier in zip(_ticks(), before, strict=True))
        if idle > 0.9 * all_of_them:
            return


def _ticks() -> tuple[int, int]:
    """Ticks of all cores since boot: idle ones, and all (proc(5), /proc/stat)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return ticks[3], sum(ticks)


Times = tuple[float, float, tuple[float, ...]]


def best(repeat: int, work: Callable[[], object], before: Callable[[], object] = settle) -> Times:
    """(wall time, CPU time) of the fastest run, wall times of all. `before` runs untimed before each."""
    found = []
    for _ in range(repeat):
        before()
        start, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - start, time.process_time() - cpu))
    return *min(found), tuple(wall for wall, _ in found)


def decoding(capture: Capture, repeat: int) -> list[Row]:
    device = capture.devices[0]

    def words() -> int:
        slabs, _ = find(device.lines, capture.epoch)
        table = IdTable(Names(capture.modules), id_sample(device, slabs))
        return len(decode_slabs(device, slabs, table).start)

    count = words()
    trace = decode(capture)

    def depth() -> None:
        trace.__dict__.pop("depth", None)
        _ = trace.depth

    few, short = recorded(min(count, 200_000)), recorded(count // 5, each=FEW)
    return [
        Row("decode: start, duration, region, slab", *best(repeat, words), count),
        Row("  the same in a Python loop over struct", *best(1, lambda: looped(few)), 200_000),
        Row("decode to a Trace: with launches and the ns axis", *best(repeat, lambda: decode(capture)), count),
        Row("  with numpy alone", *best(repeat, lambda: plainly(lambda: decode(capture))), count),
        Row(f"decode to a Trace, warps of {FEW} records", *best(repeat, lambda: decode(short)), count // 5),
        Row("  with numpy alone", *best(repeat, lambda: plainly(lambda: decode(short))), count // 5),
        Row("depth, on first use", *best(repeat, depth), count),
        Row("summary, self time and exact percentiles included", *best(repeat, trace.summary), count),
        Row("  count, sum, mean, min, max, percentiles with pandas", *best(1, lambda: with_pandas(trace)), count),
        Row("decode and summary", *best(repeat, lambda: decode(capture).summary()), count),
        Row(
            "gaps: between neighbors, and the longest",
            *best(repeat, lambda: (gaps_by_neighbors(trace), longest(trace))),
            count,
        ),
        Row("overlap matrix", *best(repeat, lambda: overlap(trace)), count),
        Row("compare", *best(1, lambda: compare(trace, trace)), count),
    ]


def plainly(work: Callable[[], object]) -> None:
    """Disable the compiled loops."""
    os.environ["KSCOPE_NATIVE"] = "0"
    try:
        work()
    finally:
        del os.environ["KSCOPE_NATIVE"]


def with_pandas(trace: Trace) -> object:
    """The same columns by region from a data frame; without self time, idle time and imbalance."""
    import pandas

    spans = pandas.DataFrame({"region": trace.region, "ns": trace.dur_ns}).groupby("region")["ns"]
    return spans.agg(["count", "sum", "mean", "min", "max"]), spans.quantile([0.5, 0.9, 0.99])


def beside(capture: Capture) -> tuple[float, ...]:
    """Decoding and summarizing a capture: peak bytes besides it, CPU time of the fastest run, wall times of all."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the process's peak memory
    before = resident("VmRSS")
    _, cpu, runs = best(3, lambda: decode(capture).summary())
    return resident("VmHWM") - before, cpu, *runs


def apart(records: int) -> tuple[Row, float]:
    """(decode and summary, bytes per record) measured in a separate process."""
    command = [sys.executable, __file__, "--beside", "--records", str(records), "--quiet", str(PATIENCE)]
    size, cpu, *runs = map(float, subprocess.check_output(command, text=True).split())
    return Row(f"decode and summary of {records:,}", min(runs), cpu, tuple(runs), records), size / records


def resident(name: str) -> int:
    """Bytes of this process's memory, now (VmRSS) or at its peak (VmHWM)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def looped(capture: Capture) -> list[tuple[int, int, int]]:
    """One record at a time, as most profilers of this kind do."""
    found = []
    for line in capture.devices[0].lines.reshape(-1, 16):
        for start, number, end, _ in struct.iter_unpack("<4I", line.tobytes()):
            found.append((start, (end - start) & 0xFFFFFFFF, number >> 4))
    return found


def files(capture: Capture, folder: Path, repeat: int) -> list[Row]:
    trace = decode(capture)
    count = len(trace)
    some = trace.take(np.arange(min(count, 2_000_000)))
    few, short = trace.take(np.arange(min(count, 200_000))), decode(recorded(count // 10, each=FEW))

    def written(whole: Trace, name: str, times: int = repeat, **options: object) -> Row:
        """A new file each time, so that freeing the old one is not measured."""
        path = folder / name

        def before() -> None:
            path.unlink(missing_ok=True)
            settle()

        taken = best(times, lambda: whole.export(path, limit=None, **options), before)
        suffix = "".join(f", {key}={value}" for key, value in options.items())
        return Row(f"{path.suffix if path.suffix != '.gz' else '.pftrace.gz'}{suffix}", *taken, len(whole))

    plainly = [
        Row("  a list of dicts with orjson, in memory", *best(2, lambda: bare(few)), len(few)),
        Row("  a list of dicts with json", *best(1, lambda: with_json(few, folder / "y.json")), len(few)),
        Row("  a list of dicts with args, with orjson", *best(2, lambda: bare(few, args=True)), len(few)),
    ]
    return [
        Row(".kscope, save", *best(1, lambda: capture.save(folder / "x.kscope")), count),
        Row(".kscope, load", *best(2, lambda: load_capture(folder / "x.kscope")), count),
        written(trace, "x.pftrace", args=False),
        written(trace, "x.pftrace"),
        Row(
            f".pftrace, warps of {FEW} records and their lifetimes",
            *written(short, "x.pftrace")[1:4],
            len(short) * (FEW + 1) // FEW,
        ),
        written(some, "x.pftrace.gz", 2),
        written(some, "x.json", args=False),
        plainly[0],
        plainly[1],
        written(some, "x.json"),
        plainly[2],
        written(some, "x.csv"),
        *([written(some, f"x{suffix}") for suffix in (".parquet", ".arrow")] if find_spec("pyarrow") else ()),
        written(some, "x.hatchet"),
        written(trace.take(np.arange(min(count, 1_000_000))), "x.html"),
    ]


def others(python: str) -> list[Row]:
    """Times of other packages for slices that they write themselves (peers.py)."""
    found = []
    count = 100_000
    for name in ("TraceProtoBuilder", "tg4perfetto", "viztracer"):
        command = [python, str(Path(__file__).with_name("peers.py")), name, str(count)]
        done = [subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2)]
        if any(run.returncode for run in done):
            print(f"{name} is not measured: {done[-1].stderr.strip().splitlines()[-1]}", file=sys.stderr)
        else:
            runs = tuple(float(run.stdout) for run in done)
            found.append(Row(f"others: {name}", min(runs), float("nan"), runs, count))
    return found


def events(trace: Trace) -> list[tuple[float, float, str, int]]:
    names = trace.region_names()[trace.region].tolist()
    return list(zip(trace.start_ns.tolist(), trace.dur_ns.tolist(), names, trace.track.tolist(), strict=True))


def dicts(trace: Trace, args: bool = False) -> list[dict[str, object]]:
    plain = [
        {"ph": "X", "cat": "region", "name": name, "pid": 1, "tid": track + 2, "ts": start / 1000, "dur": dur / 1000}
        for start, dur, name, track in events(trace)
    ]
    if not args:
        return plain
    more = zip(plain, trace.dur_cycles.tolist(), trace.start_ns.tolist(), strict=True)
    return [{**event, "args": {"cycles": cycles, "start_ns": round(start, 3)}} for event, cycles, start in more]


def with_json(trace: Trace, path: Path) -> None:

    path.write_text(json.dumps({"traceEvents": dicts(trace)}))


def bare(trace: Trace, args: bool = False) -> bytes:
    return orjson.dumps(dicts(trace, args))


def memory(path: Path) -> int:
    """Peak bytes of this process after it loaded, decoded and exported a capture."""
    warnings.simplefilter("ignore", UserWarning)
    decode(load_capture(path)).export(path.with_suffix(".pftrace"), limit=None)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def show(rows: list[Row]) -> None:
    """Simple implementations are indented below each job, with its speedup over the first of them."""
    print(f"| {'job':50} | {'seconds':>8} | {'CPU s':>7} | {'million/s':>9} | {'times the plain way':>19} |")
    print(f"|{'-' * 52}|{'-' * 9}:|{'-' * 8}:|{'-' * 10}:|{'-' * 20}:|")
    for row, below in zip(rows, [*rows[1:], None], strict=True):
        plain = below if below and below.name.startswith("  ") and not row.name.startswith("  ") else None
        ratio = "" if plain is None else f"{row.records / row.seconds / (plain.records / plain.seconds):.1f}"
        cpu = "" if row.cpu != row.cpu else f"{row.cpu:.3f}"
        name, rate = row.name.replace("  ", "&nbsp; "), row.records / row.seconds / 1e6
        print(f"| {name:50} | {row.seconds:8.3f} | {cpu:>7} | {rate:9.2f} | {ratio:>19} |")


if __name__ == "__main__":
    main()
