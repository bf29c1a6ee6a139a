"""What both placements add to whole Triton kernels, at rest and recording: CUDA graphs of 20 launches, in one process.

Each round replays the graphs of all variants in a new random order. While a session records, the host takes what was
recorded during a pause in front of each replay: without it, its copies run beside the kernel.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from on_triton import KERNELS, SEED, Workload, annotated, workloads
from rows import Row, row

import kscope

LAUNCHES, WARM = 20, 10
"""Launches in a graph; launches before, so that slabs have the size that the records need."""
ROUNDS, QUICK, DROPPED = 34, 16, 4
"""Turns of all variants, in full and with --quick, and how many of the first are not counted."""
PAUSE = 0.012
"""Seconds in front of a replay while a session records."""
POOL = 16 << 30
"""Bytes for records, so that none is lost while a graph runs."""
TAGS = {"off": 30, "schedule": 31, "fence": 32}
"""Variants, each with the TAG of its compilation."""
STATES = ("at rest", "recording")
_Key = TypeVar("_Key")


def measure(section: str, options: Any) -> Iterator[Row]:
    """Rows of one kernel after the other: microseconds of a launch."""
    for name in options.kernels or KERNELS:
        load = workloads([name])[name]
        graphs, doubts = captured(name, load)
        wrong = load.error()
        for state in STATES:
            with recording(state == "recording") as lost:
                times = rounds(
                    graphs, replayed, QUICK if options.quick else ROUNDS, PAUSE if state == "recording" else 0
                )
            for variant, values in times.items():
                notes = {"doubt": why} if (why := doubts.get(variant) or wrong or lost()) else {}
                yield row(name, f"{variant} {state}", "us", values, **notes)
                if variant != "off":
                    yield row(f"{name}, added", f"{variant} {state}", "%", added(values, times["off"]))


def added(values: Sequence[float], plain: Sequence[float]) -> list[float]:
    """Percent that a variant adds in each round."""
    return [100 * (one / other - 1) for one, other in zip(values, plain, strict=True)]


def captured(name: str, load: Workload) -> tuple[dict[str, Any], dict[str, str]]:
    """A graph for each variant, and why one is not what it should be."""
    graphs, doubts = {"off": graph(name, load, TAGS["off"])}, dict[str, str]()
    for placement in ("schedule", "fence"):
        with kscope.profile(placement=placement, pool=POOL) as prof:
            launch(name, load, TAGS[placement], WARM)
            graphs[placement] = graph(name, load, TAGS[placement])
        doubts[placement] = "; ".join(one.text for one in prof.trace.problems if one.kind == "placement")
    return graphs, doubts


def launch(name: str, load: Workload, tag: int, times: int) -> None:
    """Launch a kernel, each time when the one before is finished."""
    import torch

    for _ in range(times):
        load.launch(name, annotated(name, False), tag)
        torch.cuda.synchronize()


def graph(name: str, load: Workload, tag: int) -> Any:
    """A graph of launches; the kernel is loaded before."""
    import torch

    launch(name, load, tag, 1)
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(LAUNCHES):
            load.launch(name, annotated(name, False), tag)
    return made


@contextmanager
def recording(on: bool) -> Iterator[Callable[[], str]]:
    """A session, or none; a function that says afterwards what was lost."""
    if not on:
        yield lambda: ""
        return
    with kscope.profile(placement="schedule", pool=POOL) as prof:
        yield lambda: "; ".join(one.text for one in prof.trace.problems if one.kind == "lost")


def replayed(made: Any) -> float:
    """Microseconds of one of a graph's launches."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    made.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1000 / LAUNCHES


def rounds(
    variants: Mapping[str, _Key], timed: Callable[[_Key], float], many: int, pause: float
) -> dict[str, list[float]]:
    """Times of each variant, without those of the first rounds; every round has another order."""
    found: dict[str, list[float]] = {name: [] for name in variants}
    dice = random.Random(SEED)
    for number in range(many):
        for name in dice.sample(list(variants), len(variants)):
            time.sleep(pause)
            value = timed(variants[name])
            if number >= DROPPED:
                found[name].append(value)
    return found
