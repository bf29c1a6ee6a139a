"""What sampling of stalls costs: kernel time with samples beside none, in turns, and shares by clocks and samples.

    python bench/stalls.py [--json FILE] [--quick]

Kernels: torch's matmul (cuBLAS, no marks), matmul, attention and layer norm in Triton with marks. Times are medians of
CUDA events over batches of launches, each variant between two runs without samples.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("examples", "bench")]
import on_triton  # noqa: E402  # the examples' folder has its kernels

import kscope  # noqa: E402
from kscope.analysis.crosscheck import crosscheck  # noqa: E402

PERIODS = (8, 10, 12)
BATCH = 10


@dataclass(frozen=True)
class Cost:
    """A kernel at a period: us a launch without and with samples, and how many samples there were."""

    kernel: str
    marks: bool
    period: int
    plain_us: float
    sampled_us: float
    samples: int
    dropped: int
    full: int

    @property
    def overhead(self) -> float:
        return self.sampled_us / self.plain_us - 1


@dataclass(frozen=True)
class Share:
    """A region of a kernel by both measures."""

    kernel: str
    region: str
    clocks: float
    samples: float
    margin: float
    verdict: str


def microseconds(launch: Callable[[], object], batches: int) -> float:
    taken = []
    for _ in range(batches):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(BATCH):
            launch()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) * 1000 / BATCH)
    return statistics.median(taken)


@contextmanager
def session(marks: bool, period: int | None) -> Iterator[kscope.Session | None]:
    """With marks: a session, with samples or without. Without marks: samples alone, or nothing."""
    options: dict[str, object] = {} if period is None else {"stalls": True, "period": 1 << period}
    if not marks and period is None:
        yield None
        return
    with kscope.profile(**options) as prof:  # type: ignore[arg-type]  # options of profile()
        yield prof


def measured(name: str, launch: Callable[[], object], *, marks: bool, batches: int) -> tuple[list[Cost], list[Share]]:
    costs, shares = list[Cost](), list[Share]()
    for _ in range(3 * BATCH):
        launch()
    for period in PERIODS:
        times, samples = list[float](), None
        for chosen in (None, period, None):
            with session(marks, chosen) as prof:
                for _ in range(BATCH):
                    launch()
                times.append(microseconds(launch, batches))
                torch.cuda.synchronize()
            if chosen is not None:
                assert prof is not None
                samples = prof.capture.samples
                for problem in prof.capture.problems:
                    print(f"  {name}: {problem.text}")
                if marks and samples is not None and period == PERIODS[1]:
                    rows = crosscheck(prof.trace, samples).rows
                    shares += [Share(name, r.region, r.clocks, r.samples, r.margin, r.verdict) for r in rows]
        count, dropped, full = (0, 0, 0) if samples is None else (len(samples), samples.dropped, samples.full)
        costs.append(Cost(name, marks, period, (times[0] + times[2]) / 2, times[1], count, dropped, full))
    return costs, shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("bench-stalls.json"))
    parser.add_argument("--quick", action="store_true", help="fewer batches")
    options = parser.parse_args()
    batches = 5 if options.quick else 25
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    work: list[tuple[str, Callable[[], object], bool]] = [("matmul of torch", lambda: a @ a, False)]
    work += [(name, launch, True) for name, launch in triton_launches()]
    costs, shares = list[Cost](), list[Share]()
    for name, launch, marks in work:
        found, agreed = measured(name, launch, marks=marks, batches=batches)
        costs += found
        shares += agreed
    print(torch.cuda.get_device_name())
    heads = f"{'plain us':>10} {'sampled us':>11} {'cost':>8} {'samples':>12} {'dropped':>9} full"
    print(f"{'kernel':<20} {'period':>7} {heads}")
    for one in costs:
        print(f"{one.kernel:<20} {'2^' + str(one.period):>7} {one.plain_us:>10.1f} {one.sampled_us:>11.1f} "
              f"{one.overhead:>+8.2%} {one.samples:>12,} {one.dropped:>9,} {one.full}")  # fmt: skip
    print(f"\n{'kernel':<20} {'region':<16} {'by clocks':>10} {'by samples':>11} {'+-':>7} verdict")
    for row in shares:
        parts = f"{row.clocks:>10.1%} {row.samples:>11.1%} {row.margin:>7.1%} {row.verdict}"
        print(f"{row.kernel:<20} {row.region:<16} {parts}")
    found = {"costs": list(map(asdict, costs)), "shares": list(map(asdict, shares))}
    options.json.write_text(json.dumps(found, indent=1) + "\n")


def triton_launches() -> Iterator[tuple[str, Callable[[], object]]]:
    kscope.enable()  # the first launch in a session then compiles nothing
    for name, work in on_triton.workloads(("matmul", "persistent", "attention", "layernorm")).items():
        yield name, partial(work.launch, name, on_triton.annotated(name, False), 0)


if __name__ == "__main__":
    main()
