"""Cost of survive="shm": kernel time of sessions with it, of ordinary ones, and without recording, in alternation.

    python bench/survive.py [--json FILE] [--sessions 5] [--pool 1024] [--every 1 16] [--records auto 32 ...]
                            [--kernels matmul attention ...] [--ways pool keeper]

Ways: `pool` is an ordinary session, `shm` and `keeper` are survive= of that name. With --every 16, each sixteenth block
records; with --records 32, each warp keeps its last 32.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("examples", "bench")]
import on_triton  # noqa: E402  # the examples' folder has its kernels
from gpu_time import graph, microseconds  # noqa: E402

import kscope  # noqa: E402
from kscope.capture.pools.pool_folder import of_process  # noqa: E402
from kscope.capture.pools.pool_reading import open_pool  # noqa: E402

KERNELS = ("matmul", "persistent", "attention", "layernorm", "softmax")
WAYS = ("pool", "shm", "keeper")
REPLAYS, LAUNCHES, DRAIN_S = 9, 40, 0.12
"""Replays of a graph, its launches, and the pause behind a replay. With four launches, what the first stores into host
memory take after a pause counts more than all others.
"""
ASLEEP = 400_000
"""Cycles that the GPU sleeps before a replay, about 0.2 ms, while the host launches it: the time is that of kernels."""

_KEEPER_S = 30.0


@dataclass(frozen=True)
class Cost:
    """A kernel and a way: us a launch without recording and with it, what that adds (the median of `sessions`), and
    records a second.
    """

    kernel: str
    way: str
    every: int
    records: str
    plain_us: float
    us: float
    overhead: float
    sessions: list[float]
    millions_a_second: float
    lost: int


@contextmanager
def session(way: str, every: int, pool: int, records: str) -> Iterator[Any]:
    """A session of that way; None for `plain`."""
    if way == "plain":
        yield None
        return
    options: dict[str, Any] = {} if every == 1 else {"block": range(0, 1 << 20, every)}
    options |= {"survive": way} if way != "pool" else {}
    options |= {"records": int(records)} if records != "auto" else {}
    with kscope.profile(pool=pool, **options) as prof:
        if way == "keeper":
            _wait_for_keeper()
        yield prof


def _wait_for_keeper() -> None:
    """Wait until the keeper has created its context, for which it needs the GPU. Raises TimeoutError."""
    until = time.monotonic() + _KEEPER_S
    while not all(open_pool(path).state["keeper"] for path in of_process(os.getpid())):
        if time.monotonic() > until:
            raise TimeoutError("the keeper of survive='keeper' did not start: see its message above")
        time.sleep(0.01)


def captured(name: str, work: Any, way: str, pool: int, records: str, count: int) -> list[torch.cuda.CUDAGraph]:
    """Graphs of the kernel as a session of that way runs it, compiled and loaded anew for each."""
    kernel = on_triton.annotated(name, False)
    with session(way, 1, pool, records):
        return [graph(partial(work.launch, name, kernel, tag), LAUNCHES) for tag in range(count)]


def median_us(made: torch.cuda.CUDAGraph) -> float:
    """A launch in replays of the graph, between which the pool is emptied: the median, without the first two."""
    taken = []
    for _ in range(REPLAYS):
        taken.append(microseconds(made.replay, asleep=ASLEEP) / LAUNCHES)
        time.sleep(DRAIN_S)
    return statistics.median(taken[2:])


def costs(name: str, every: int, records: str, ways: Sequence[str], pool: int, sessions: int) -> list[Cost]:
    """The kernel in every way.

    A time is that of a CUDA graph of many launches, divided by the number of launches; between replays the pool is
    emptied, so no warp is lost (lost ones are printed). Each session has a graph of a kernel loaded anew, because a
    kernel's time may depend on where its code is. A cost is the median over sessions of a session's median compared
    with the mean of its two neighbors' medians without recording.
    """
    work = on_triton.workloads((name,))[name]
    graphs = {way: captured(name, work, way, pool, records, sessions) for way in ("plain", *ways)}
    sequence = list[tuple[str, float]]()
    written, lost = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0)
    order = [(one, number) for number in range(sessions) for each in ways for one in ("plain", each)]
    for way, number in (*order, ("plain", 0)):
        with session(way, every, pool, records) as prof:
            sequence.append((way, median_us(graphs[way][number])))
        if prof is not None:
            written[way] = int(prof.trace.warps.written.sum()) // (REPLAYS * LAUNCHES)
            lost[way] += sum(device.lost for device in prof.capture.devices)
    plain = statistics.median(us for way, us in sequence if way == "plain")
    found = []
    for way in ways:
        at = [number for number, (one, _) in enumerate(sequence) if one == way]
        us = statistics.median(sequence[number][1] for number in at)
        beside = [sequence[n][1] * 2 / (sequence[n - 1][1] + sequence[n + 1][1]) - 1 for n in at]
        rate = written[way] / us
        added = statistics.median(beside)
        found.append(Cost(name, way, every, records, plain, us, added, beside, rate, lost[way]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("bench-survive.json"))
    parser.add_argument("--sessions", type=int, default=5, help="sessions of each kernel and way")
    parser.add_argument("--kernels", nargs="+", default=KERNELS)
    parser.add_argument("--pool", type=int, default=1024, help="MiB")
    parser.add_argument("--every", type=int, nargs="+", default=(1, 16), help="which blocks record")
    parser.add_argument("--records", nargs="+", default=("auto",), help="of a warp that are kept")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    print(torch.cuda.get_device_name())
    heads = f"{'plain us':>10} {'us':>10} {'cost':>8} {'least':>8} {'most':>8} {'M records/s':>12} lost"
    print(f"{'kernel':<12} {'way':<6} {'every':>5} {'records':>7} {heads}", flush=True)
    found = []
    for part in product(options.kernels, options.every, options.records):
        for one in costs(*part, options.ways, options.pool << 20, options.sessions):
            least, most = min(one.sessions), max(one.sessions)
            what = f"{one.kernel:<12} {one.way:<6} {one.every:>5} {one.records:>7}"
            times = f"{one.plain_us:>10.2f} {one.us:>10.2f} {one.overhead:>+8.2%} {least:>+8.2%} {most:>+8.2%}"
            print(f"{what} {times} {one.millions_a_second:>12.1f} {one.lost}", flush=True)
            found.append(one)
    options.json.write_text(json.dumps(list(map(asdict, found)), indent=1) + "\n")


if __name__ == "__main__":
    main()
