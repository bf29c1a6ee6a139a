"""What survive="shm" costs: kernel time of sessions with it, of ordinary ones, and without recording, in turns.

    python bench/survive.py [--json FILE] [--turns 5] [--kernels matmul attention layernorm softmax]

Every warp records. A time is that of a CUDA graph of a few launches, divided by their number; between replays the pool
is drained, so no record is lost (what is lost is printed). Each way of recording has a graph of its own, because the
kernels differ: with survive= they also store the enters of regions that wait. A cost is the median over turns of a
session's median beside the mean of its two neighbours' medians without recording.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("examples", "bench")]
import on_triton  # noqa: E402  # the examples' folder has its kernels

import kscope  # noqa: E402

KERNELS = ("matmul", "persistent", "attention", "layernorm", "softmax")
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pool": {"pool": 256 << 20},
    "shm": {"pool": 256 << 20, "survive": "shm"},
}
REPLAYS, LAUNCHES, DRAIN_S = 9, 4, 0.03


@dataclass(frozen=True)
class Cost:
    """A kernel and a way: us a launch without recording and with it, what that adds, and records a second."""

    kernel: str
    way: str
    plain_us: float
    us: float
    overhead: float
    spread: float
    millions_a_second: float
    lost: int


def session(way: str) -> AbstractContextManager[Any]:
    return nullcontext() if way == "plain" else kscope.profile(**WAYS[way])


def graph(name: str, work: Any, way: str) -> torch.cuda.CUDAGraph:
    """A graph of the kernel as a session of that way runs it. Each way is another TAG, and so another compilation."""
    made, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    launch = on_triton.annotated(name, False)
    with session(way):
        with torch.cuda.stream(stream):
            for _ in range(3):
                work.launch(name, launch, 0)
            stream.synchronize()
        with torch.cuda.graph(made, stream=stream):
            for _ in range(LAUNCHES):
                work.launch(name, launch, 0)
        torch.cuda.synchronize()
    return made


def microseconds(made: torch.cuda.CUDAGraph, way: str) -> float:
    """A launch of a replayed graph, the median."""
    taken = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        made.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) * 1000 / LAUNCHES)
        if way != "plain":
            time.sleep(DRAIN_S)
    return statistics.median(taken[2:])


def costs(name: str, turns: int) -> list[Cost]:
    work = on_triton.workloads((name,))[name]
    graphs = {way: graph(name, work, way) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    records, lost = dict.fromkeys(WAYS, 0), dict.fromkeys(WAYS, 0)
    order = [way for _ in range(turns) for way in ("plain", "pool", "plain", "shm")] + ["plain"]
    beside: dict[str, list[float]] = {way: [] for way in WAYS}
    sequence = []
    for way in order:
        with session(way) as prof:
            sequence.append((way, microseconds(graphs[way], way)))
        times[way].append(sequence[-1][1])
        if prof is not None:
            records[way] = len(prof.trace) // (REPLAYS * LAUNCHES)
            lost[way] += sum(device.lost for device in prof.capture.devices)
    for at, (way, us) in enumerate(sequence):
        if way != "plain":
            beside[way].append(us * 2 / (sequence[at - 1][1] + sequence[at + 1][1]) - 1)
    plain = statistics.median(times["plain"])
    return [
        Cost(
            name, way, plain, us := statistics.median(times[way]), statistics.median(beside[way]),
            max(beside[way]) - min(beside[way]), records[way] / us, lost[way],
        )
        for way in ("pool", "shm")
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("bench-survive.json"))
    parser.add_argument("--turns", type=int, default=5, help="sessions of each kernel and way")
    parser.add_argument("--kernels", nargs="+", default=KERNELS)
    options = parser.parse_args()
    found = [one for name in options.kernels for one in costs(name, options.turns)]
    print(torch.cuda.get_device_name())
    print(f"{'kernel':<12} {'way':<5} {'plain us':>10} {'us':>10} {'cost':>8} {'spread':>7} {'M records/s':>12} lost")
    for one in found:
        times = f"{one.plain_us:>10.2f} {one.us:>10.2f} {one.overhead:>+8.2%} {one.spread:>7.2%}"
        print(f"{one.kernel:<12} {one.way:<5} {times} {one.millions_a_second:>12.1f} {one.lost}")
    options.json.write_text(json.dumps(list(map(asdict, found)), indent=1) + "\n")


if __name__ == "__main__":
    main()
