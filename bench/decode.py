"""Time from a capture of short warps to columns, a summary and a .pftrace, per warp.

    PYTHONPATH=.:frontends:runtime:tests python bench/decode.py [--repeat 5] [--only NAME ...]

Slabs are in the order in which the host takes them from a device: SM after SM, of each the blocks that ran there.
Prints the least wall time and the least CPU time of the runs; on a machine with other work, only the latter compares.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import synth
from rows import about_host

from kscope import decode
from kscope.capture import layout
from kscope.capture.capture import Capture

LAUNCHED = 1056
"""Warps of a launch: eight on each SM."""
MANY = 2_000 * LAUNCHED
NAMES = ("load", "dot", "tile")


class Case(NamedTuple):
    """A timed function; `per` items a run, named `unit`; the goal in the table's unit."""

    work: Callable[[], object]
    items: int
    unit: str
    goal: str


@cache
def recorded(slabs: int, records: int, launches: int = 1) -> Capture:
    """Slabs of so many records, SM after SM, each one's in order of their claims, in launches one after another."""
    lines = synth.bulk(slabs, records, warps=8 if launches > 1 else 1, waves=max(launches, slabs // 8448))
    each = lines.reshape(slabs, -1, 16)
    words = each[:, : layout.HEADER_LINES].reshape(slabs, -1)  # a copy
    header = words.view(layout.HEADER)[:, 0]
    if launches > 1:
        index = np.arange(slabs)
        header["grid_id"] = 1 + index // LAUNCHED
        header["ctaid_x"], header["nctaid_x"] = index % LAUNCHED // 8, LAUNCHED // 8
        header["check"] = layout.header_check(words)
        each[:, : layout.HEADER_LINES] = words.reshape(slabs, layout.HEADER_LINES, -1)
    order = np.lexsort((header["start_clock"], header["place"] >> layout.SMID_SHIFT))
    return Capture(synth.EPOCH, (synth.device(each[order].reshape(-1, 16), tick_ns=32),), (synth.module(NAMES),))


def cases(folder: Path) -> dict[str, Callable[[], Case]]:
    """Every case by name; it is prepared when it is called."""
    return {
        "decode, 10^6 warps of 4 records": partial(_decoding, 1_000_000, "warp", "200 ns", 1_000_000, 4),
        "summary, 1.3 * 10^6 warps": partial(_summary, 1_300_000, 4),
        "decode, 2,000 launches of 1,056 warps": partial(_decoding, MANY, "warp", "200 ns", MANY, 4, 2_000),
        "summary of them": partial(_summary, MANY, 4, 2_000),
        "decode, 40,000 warps of 250 records": partial(_decoding, 10_000_000, "record", "10 ns", 40_000, 250),
        ".pftrace, 250,000 warps of 4 records": partial(_pftrace, folder / "x.pftrace", 250_000, 4),
    }


def _decoding(items: int, unit: str, goal: str, *shape: int) -> Case:
    capture = recorded(*shape)
    return Case(lambda: decode(capture), items, unit, goal)


def _summary(warps: int, *shape: int) -> Case:
    return Case(decode(recorded(warps, *shape)).summary, warps, "warp", "")


def _pftrace(path: Path, warps: int, records: int) -> Case:
    trace = decode(recorded(warps, records))

    def work() -> None:
        path.unlink(missing_ok=True)
        trace.export(path, limit=None)

    return Case(work, warps * (records + 1), "slice", "333 ns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--profile", action="store_true", help="print where the time of one more run is spent")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # about large files
    print(f"| {'case':40} | {'wall, s':>8} | {'CPU, s':>8} | {'wall':>16} | {'CPU':>16} | {'goal':>8} |")
    print(f"|{'-' * 42}|{'-' * 9}:|{'-' * 9}:|{'-' * 17}:|{'-' * 17}:|{'-' * 9}:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, prepare in cases(Path(folder)).items():
            if options.only and not any(one in name for one in options.only):
                continue
            case = prepare()
            walls, cpus = zip(*(timed(case.work) for _ in range(options.repeat)), strict=True)
            wall, cpu = min(walls), min(cpus)
            each = (f"{one / case.items * 1e9:.1f} ns/{case.unit}" for one in (wall, cpu))
            rates = " | ".join(f"{one:>16}" for one in each)
            print(f"| {name:40} | {wall:8.3f} | {cpu:8.3f} | {rates} | {case.goal:>8} |")
            if options.profile:
                profiled(case.work)
            if "1.3" in name or "of them" in name:
                recorded.cache_clear()
    print(f"\n{about_host()}")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def profiled(work: Callable[[], object]) -> None:
    import cProfile
    import pstats

    profile = cProfile.Profile()
    profile.runcall(work)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
