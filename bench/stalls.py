"""What sampling of stalls costs: kernel time with samples beside none, in turns, and shares by clocks and samples.

    python bench/stalls.py [--json FILE] [--periods 8 10 12] [--turns 5]

Kernels: torch's matmul (cuBLAS, no marks); matmul, attention and layer norm in Triton with marks, of which those of one
block record while costs are measured. A time is that of a CUDA graph of many launches, divided by their number, so that
the host's launches do not count. Sessions with and without samples take turns, and begin and end outside of the timed
part; a cost is the median over turns of the sampled session's median beside the mean of its two neighbours' medians.
`before` has the times before this process used CUPTI.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("examples", "bench")]
import on_triton  # noqa: E402  # the examples' folder has its kernels

import kscope  # noqa: E402
from kscope.analysis.crosscheck import crosscheck  # noqa: E402

PERIODS, REPLAYS = (8, 10, 12), 25
GRAPH_US = 4000
"""About how long a graph takes."""
WARM_US = 200_000
"""Replays of this time come before those that are timed: the GPU's clock falls with its temperature and power."""


@dataclass
class Work:
    """A kernel: its launch, the graph of many, and what was measured in microseconds a launch."""

    name: str
    launch: Callable[[], object]
    graph: torch.cuda.CUDAGraph = field(default_factory=torch.cuda.CUDAGraph)
    launches: int = 0
    before: float = 0.0

    def prepare(self) -> None:
        """In a session: compile, and capture the graph."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.launch()
            stream.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            for _ in range(10):
                self.launch()
            end.record(stream)
            end.synchronize()
            self.launches = max(2, min(200, round(GRAPH_US / (begin.elapsed_time(end) * 100))))
        with torch.cuda.graph(self.graph, stream=stream):
            for _ in range(self.launches):
                self.launch()
        torch.cuda.synchronize()
        self.before = self.microseconds()

    def microseconds(self) -> float:
        """A launch of a replayed graph: the median, after the clocks have settled."""
        for _ in range(WARM_US // GRAPH_US):
            self.graph.replay()
        taken = []
        for _ in range(REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self.graph.replay()
            end.record()
            end.synchronize()
            taken.append(begin.elapsed_time(end) * 1000 / self.launches)
        return statistics.median(taken)


@dataclass(frozen=True)
class Cost:
    """A kernel at a period: us a launch before CUPTI, without and with samples; and how many samples there were."""

    kernel: str
    period: int
    before_us: float
    plain_us: float
    sampled_us: float
    overhead: float
    spread: float
    samples: int
    dropped: int
    full: int


@dataclass(frozen=True)
class Share:
    """A region of a kernel by both measures."""

    kernel: str
    region: str
    clocks: float
    samples: float
    margin: float
    verdict: str


def cost(work: Work, period: int, turns: int) -> Cost:
    """Sessions without and with samples, in turns; the first and the last are without."""
    times, samples = list[float](), None
    for turn in range(2 * turns + 1):
        options = {"stalls": True, "period": 1 << period} if turn % 2 else {}
        with kscope.profile(block=0, **options) as prof:  # type: ignore[arg-type]  # options of profile()
            times.append(work.microseconds())
        if turn % 2:
            samples = prof.capture.samples
            for problem in prof.capture.problems:
                print(f"  {work.name}, 2^{period}: {problem.text}")
    plain = [(a + b) / 2 for a, b in zip(times[::2], times[2::2], strict=False)]
    costs = sorted(one / beside - 1 for one, beside in zip(times[1::2], plain, strict=True))
    assert samples is not None
    return Cost(
        work.name, period, work.before, statistics.median(times[::2]), statistics.median(times[1::2]),
        statistics.median(costs), costs[-1] - costs[0], len(samples), samples.dropped, samples.full,
    )  # fmt: skip


def shares(work: Work) -> list[Share]:
    """A session of a few launches, with all records."""
    with kscope.profile(stalls=True, period=1 << 10, pool=1 << 30) as prof:
        for _ in range(20):
            work.launch()
    samples = prof.capture.samples
    assert samples is not None
    found = crosscheck(prof.trace, samples)
    for text in (*(one.text for one in prof.trace.problems), *found.problems):
        print(f"  {work.name}: {text}")
    return [Share(work.name, r.region, r.clocks, r.samples, r.margin, r.verdict) for r in found.rows]


def works() -> Iterator[Work]:
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    out = torch.empty_like(a)
    yield Work("matmul of torch", lambda: torch.mm(a, a, out=out))
    for name, work in on_triton.workloads(("matmul", "persistent", "attention", "layernorm")).items():
        yield Work(name, partial(work.launch, name, on_triton.annotated(name, False), 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("bench-stalls.json"))
    parser.add_argument("--periods", type=int, nargs="+", default=PERIODS, metavar="POWER", help="of two, in cycles")
    parser.add_argument("--turns", type=int, default=5, help="sampled sessions of each kernel and period")
    options = parser.parse_args()
    todo = list(works())
    for work in todo:
        with kscope.profile(block=0):
            work.prepare()
    costs = [cost(work, period, options.turns) for work in todo for period in options.periods]
    agreed = [row for work in todo[1:] for row in shares(work)]
    print(torch.cuda.get_device_name())
    heads = f"{'before us':>10} {'plain us':>10} {'sampled us':>11} {'cost':>8} {'spread':>7} {'samples':>12}"
    print(f"{'kernel':<16} {'period':>7} {heads} {'dropped':>8} full")
    for one in costs:
        times = f"{one.before_us:>10.2f} {one.plain_us:>10.2f} {one.sampled_us:>11.2f}"
        print(f"{one.kernel:<16} {'2^' + str(one.period):>7} {times} {one.overhead:>+8.2%} {one.spread:>7.2%} "
              f"{one.samples:>12,} {one.dropped:>8,} {one.full}")  # fmt: skip
    print(f"\n{'kernel':<16} {'region':<16} {'by clocks':>10} {'by samples':>11} {'+-':>7} verdict")
    for row in agreed:
        parts = f"{row.clocks:>10.2%} {row.samples:>11.2%} {row.margin:>7.2%} {row.verdict}"
        print(f"{row.kernel:<16} {row.region:<16} {parts}")
    found = {"costs": list(map(asdict, costs)), "shares": list(map(asdict, agreed))}
    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
