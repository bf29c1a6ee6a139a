"""What sampling of stalls costs: kernel time with samples beside none, in turns, and shares by clocks and samples.

    python bench/stalls.py [--json FILE] [--periods 8 10 12] [--sessions 5] [--kernels matmul] [--only shares launches]

Kernels: torch's matmul (cuBLAS, no marks); matmuls, attention and layer norm in Triton, and a warp-specialized matmul
in CuTe DSL if that is installed, with marks, of which those of one block record while costs are measured. A time is
that of a CUDA graph of many launches, divided by their number, so that the host's launches do not count. Sessions with
and without samples take turns, and begin and end outside of the timed part; a cost is the median over sessions of the
sampled session's median beside the mean of its two neighbors' medians. The GPU changes its clock by more than sampling
costs, so cycles of the SMs are compared as well: small kernels at the graph's begin and end read their clocks. `before`
has the times before this process used CUPTI.

Proton's PC sampling (mode "pcsampling") serializes kernels, so it is compared by launches from the host: the time of
LAUNCHES of them, from the first one's begin to the last one's end, by both profilers in separate processes, without
and with sampling. kscope compiles no marks then: both only sample.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("examples", "bench")]
import on_triton  # noqa: E402  # the examples' folder has its kernels
from gpu_time import graph, microseconds  # noqa: E402

import kscope  # noqa: E402
from kscope.analysis.samples.crosscheck import crosscheck  # noqa: E402
from kscope.session.sample_session import sample  # noqa: E402

PERIODS, REPLAYS = (8, 10, 12), 25
LAUNCHES, REPEATS, MOST_S = 100, 7, 3.0
INTERVAL = 1024
"""Cycles between two samples where profilers are compared."""
TORCH, CUTE = "matmul of torch", "matmul of CuTe"
KERNELS = (TORCH, "matmul", "persistent", "attention", "layernorm", CUTE)
PARTS = ("costs", "shares", "launches")
SHARES_PERIOD, SHORT_PERIOD = 10, {"layernorm": 7}
"""Of two, in cycles, where shares are compared. A warp of the layer norm lives for 9 us: at 2^10 it has 15 samples."""
ALONE = "ALONE "
"""Begins the line of results that a separate process prints."""
GRAPH_US = 4000
"""About how long a graph takes."""
WARM_US = 200_000
"""Replays of this time come before those that are timed: the GPU's clock falls with its temperature and power."""


@triton.jit
def stamp(clocks):
    """Write the clock of each SM that a block of this kernel runs on."""
    clock = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    sm = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(clocks + sm, clock)


@dataclass(frozen=True)
class Took:
    """A launch: us, and thousands of cycles of an SM."""

    us: float
    kilocycles: float


@dataclass
class Work:
    """A kernel: its launch, the graph of many, and how long a launch took before this process used CUPTI."""

    name: str
    launch: Callable[[], object]
    graph: torch.cuda.CUDAGraph = field(default_factory=torch.cuda.CUDAGraph)
    launches: int = 0
    before: Took = field(default_factory=lambda: Took(0.0, 0.0))
    clocks: torch.Tensor = field(default_factory=lambda: torch.zeros(2, 1024, dtype=torch.int64, device="cuda"))

    def prepare(self) -> None:
        """Capture the graph, and time it before this process uses CUPTI."""
        microseconds(self.launch, 3)
        self.launches = max(2, min(200, round(GRAPH_US / microseconds(self.launch, 10))))
        self.graph = graph(self._stamped, 1)
        self.before = self.took()

    def _stamped(self) -> None:
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        stamp[(sms,)](self.clocks[0], num_warps=1)
        for _ in range(self.launches):
            self.launch()
        stamp[(sms,)](self.clocks[1], num_warps=1)

    def took(self) -> Took:
        """A launch in replays of the graph, after others that warm up the GPU: the medians."""
        for _ in range(WARM_US // GRAPH_US):
            self.graph.replay()
        times, cycles = list[float](), list[float]()
        for _ in range(REPLAYS):
            self.clocks.zero_()
            times.append(microseconds(self.graph.replay) / self.launches)
            begin, end = (column for column in self.clocks[:, (self.clocks != 0).all(0)])
            cycles.append(float((end - begin).double().median()) / self.launches / 1000)
        return Took(statistics.median(times), statistics.median(cycles))


@dataclass(frozen=True)
class Cost:
    """A kernel at a period: us a launch before CUPTI, without and with samples, and what samples add in time and in
    cycles, each with the range over sessions; and how many samples there were.
    """

    kernel: str
    period: int
    before_us: float
    plain_us: float
    sampled_us: float
    overhead: float
    spread: float
    cycles_overhead: float
    cycles_spread: float
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


@dataclass(frozen=True)
class Launches:
    """A kernel launched from the host: us a launch without and with sampling."""

    kernel: str
    profiler: str
    plain_us: float
    sampled_us: float

    @property
    def overhead(self) -> float:
        return self.sampled_us / self.plain_us - 1


def launched_us(work: Work) -> float:
    """A launch among many from the host: the median of some rows, fewer if they take long."""
    rows, until = list[float](), time.monotonic() + MOST_S
    while len(rows) < REPEATS and (not rows or time.monotonic() < until):
        rows.append(microseconds(work.launch, LAUNCHES))
    return statistics.median(rows)


@contextmanager
def by_kscope() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, sample(f"{folder}/x.kscope", period=INTERVAL):
        yield


@contextmanager
def by_proton() -> Iterator[None]:
    import triton.profiler as proton

    with tempfile.TemporaryDirectory() as folder:
        proton.start(f"{folder}/proton", backend="cupti", mode=f"pcsampling:interval={INTERVAL}")
        try:
            yield
        finally:
            proton.finalize()


PROFILERS = {"kscope": by_kscope, "Proton": by_proton}


def alone(profiler: str, names: list[str]) -> None:
    """In a separate process, because only one profiler at a time can use the GPU's counters: print each result."""
    for work in works(names):
        work.launch()
        torch.cuda.synchronize()
        before = launched_us(work)
        with PROFILERS[profiler]():
            work.launch()
            sampled = launched_us(work)
        plain = (before + launched_us(work)) / 2
        print(ALONE + json.dumps(asdict(Launches(work.name, profiler, plain, sampled))), flush=True)


def launches(names: list[str]) -> Iterator[Launches]:
    """Both profilers, one after the other."""
    for profiler in PROFILERS:
        command = [sys.executable, __file__, "--alone", profiler, "--kernels", *names]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(ALONE):
                    print(line, end="", flush=True)
                    yield Launches(**json.loads(line.removeprefix(ALONE)))
        if process.returncode:
            print(f"  {profiler} ended with {process.returncode}")


def cost(work: Work, period: int, sessions: int) -> Cost:
    """Sessions without and with samples, in turns; the first and the last are without."""
    took, samples = list[Took](), None
    for number in range(2 * sessions + 1):
        options = {"stalls": True, "period": 1 << period} if number % 2 else {}
        with kscope.profile(block=0, **options) as prof:  # type: ignore[arg-type]  # options of profile()
            took.append(work.took())
        if number % 2:
            samples = prof.capture.samples
            for problem in prof.capture.problems:
                print(f"  {work.name}, 2^{period}: {problem.text}")
    assert samples is not None
    times = [one.us for one in took]
    return Cost(
        work.name, period, work.before.us, statistics.median(times[::2]), statistics.median(times[1::2]),
        *added(times), *added([one.kilocycles for one in took]), len(samples), samples.dropped, samples.full,
    )  # fmt: skip


def added(measured: list[float]) -> tuple[float, float]:
    """What every second one has more than the mean of its neighbors, as a share: the median and the range."""
    plain = [(a + b) / 2 for a, b in zip(measured[::2], measured[2::2], strict=False)]
    costs = sorted(one / beside - 1 for one, beside in zip(measured[1::2], plain, strict=True))
    return statistics.median(costs), costs[-1] - costs[0]


def shares(work: Work) -> list[Share]:
    """A session of a few launches, with all records."""
    period = 1 << SHORT_PERIOD.get(work.name, SHARES_PERIOD)
    with kscope.profile(stalls=True, period=period, pool=1 << 30) as prof:
        for _ in range(20):
            work.launch()
    samples = prof.capture.samples
    assert samples is not None
    found = crosscheck(prof.trace, samples)
    for text in (*(one.text for one in prof.trace.problems), *found.problems):
        print(f"  {work.name}: {text}")
    return [Share(work.name, r.region, r.clocks, r.samples, r.margin, r.verdict) for r in found.rows]


def works(names: list[str]) -> Iterator[Work]:
    if TORCH in names:
        a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
        out = torch.empty_like(a)
        yield Work(TORCH, lambda: torch.mm(a, a, out=out))
    for name, work in on_triton.workloads([one for one in names if one not in (TORCH, CUTE)]).items():
        yield Work(name, partial(work.launch, name, on_triton.annotated(name, False), 0))
    if CUTE in names and importlib.util.find_spec("cutlass") is not None:
        yield Work(CUTE, _cute())


def _cute() -> Callable[[], object]:
    """A launch of the example's matmul."""
    import cute_gemm
    from cuda.bindings import driver
    from cutlass.cute.runtime import from_dlpack

    size, sms = cute_gemm.SIZE, torch.cuda.get_device_properties(0).multi_processor_count
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    tensors = [from_dlpack(one, assumed_align=16) for one in (a, b, torch.empty_like(a))]
    blocks = sms // cute_gemm.PAIR * cute_gemm.PAIR

    def launch() -> None:
        cute_gemm.matmul(*tensors, blocks, driver.CUstream(torch.cuda.current_stream().cuda_stream))

    return launch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("bench-stalls.json"))
    parser.add_argument("--periods", type=int, nargs="+", default=PERIODS, metavar="POWER", help="of two, in cycles")
    parser.add_argument("--sessions", type=int, default=5, help="sampled sessions of each kernel and period")
    parser.add_argument("--kernels", nargs="+", default=KERNELS, choices=KERNELS)
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--alone", choices=PROFILERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        alone(options.alone, options.kernels)
        return
    print(torch.cuda.get_device_name())
    compared = list(launches(options.kernels)) if "launches" in options.only else []
    todo = list(works(options.kernels))
    costs = list[Cost]()
    if "costs" in options.only:
        for work in todo:
            with kscope.profile(block=0):
                work.prepare()
        costs = [cost(work, period, options.sessions) for work in todo for period in options.periods]
    agreed = [row for work in todo if work.name != TORCH and "shares" in options.only for row in shares(work)]
    heads = (
        f"{'before us':>10} {'plain us':>10} {'sampled us':>11} {'cost':>8} {'spread':>7} {'cycles':>8} {'spread':>7}"
    )
    print(f"{'kernel':<16} {'period':>7} {heads} {'samples':>12} {'dropped':>8} full")
    for one in costs:
        times = f"{one.before_us:>10.2f} {one.plain_us:>10.2f} {one.sampled_us:>11.2f}"
        adds = f"{one.overhead:>+8.2%} {one.spread:>7.2%} {one.cycles_overhead:>+8.2%} {one.cycles_spread:>7.2%}"
        print(f"{one.kernel:<16} {'2^' + str(one.period):>7} {times} {adds} "
              f"{one.samples:>12,} {one.dropped:>8,} {one.full}")  # fmt: skip
    print(f"\n{'kernel':<16} {'region':<16} {'by clocks':>10} {'by samples':>11} {'+-':>7} verdict")
    for row in agreed:
        parts = f"{row.clocks:>10.2%} {row.samples:>11.2%} {row.margin:>7.2%} {row.verdict}"
        print(f"{row.kernel:<16} {row.region:<16} {parts}")
    print(f"\n{'kernel':<16} {'profiler':<9} {'plain us':>10} {'sampled us':>11} {'cost':>10}")
    for pair in compared:
        times = f"{pair.plain_us:>10.2f} {pair.sampled_us:>11.2f} {pair.overhead:>+10.1%}"
        print(f"{pair.kernel:<16} {pair.profiler:<9} {times}")
    lists = {"costs": costs, "shares": agreed, "launches": compared}
    found = {name: [asdict(one) for one in rows] for name, rows in lists.items()}
    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
