"""The captures of a job's ranks as one trace, on the clock of the first rank's GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path

from ...capture.capture import load_capture
from ...trace import Trace, decode
from ...tracedata.concatenation import concatenate
from ...tracedata.recording_facts import Gpu
from ...util.arrays import Float, Int64
from ..axis import Shift, move_to_axis
from .clocks import RankClock
from .collectives import clocks_by_collectives
from .gpus import RankGpu, check_ranks, of_trace


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks on one axis.

    Attributes:
        trace: all of them; its devices are those of `gpus`.
        gpus: the GPUs.
        bounds: largest error of each GPU's clock against the first one's, ns.
    """

    trace: Trace
    gpus: tuple[RankGpu, ...]
    bounds: tuple[float, ...]


def merge_ranks(
    files: Sequence[Path], ranks: Sequence[int] | None = None, launch: int | None = None, globs: Sequence[str] = ()
) -> Ranks:
    """Put the captures of a job on one axis.

    Args:
        files: a capture per rank.
        ranks: only these; the first of them is the reference.
        launch: only this launch of each, by its place in the order of begin, from 0.
        globs: names of collective kernels; without, those of COLLECTIVES.

    Raises:
        UsageError: a rank or a launch is missing, or the ranks recorded different collectives.
        FormatError: a file is not a capture.
        OSError: a file cannot be read.
    """
    found = list[tuple[Trace, list[RankGpu]]]()
    for file in files:
        capture = load_capture(file)
        trace = decode(capture)
        gpus = of_trace(capture, trace, str(file))
        if gpus and (ranks is None or gpus[0].rank in ranks):
            found.append((trace, gpus))
    found.sort(key=lambda one: one[1][0].rank)
    every = [gpu for _, gpus in found for gpu in gpus]
    check_ranks(ranks, every, len(files))
    clocks = clocks_by_collectives(every, globs)
    starts = [0, *accumulate(len(gpus) for _, gpus in found)]
    parts = [
        move_to_axis(trace, {at: shift_on(clocks[start + at], trace.origin) for at in range(len(gpus))})
        for (trace, gpus), start in zip(found, starts, strict=False)
    ]
    if launch is not None:
        parts = [part.filter(launch=launch) for part in parts]
    bounds = [float(clock.place(gpu.first).half.max(initial=0.0)) for clock, gpu in zip(clocks, every, strict=True)]
    labels = [f"rank {gpus[0].rank}: " for _, gpus in found]
    return Ranks(concatenate(parts, _gpus(found), labels), tuple(every), tuple(bounds))


def shift_on(clock: RankClock, origin: int) -> Shift:
    """The shift of times in ns after `origin` to the first rank's clock."""

    def move(time: Int64) -> tuple[Int64, Float]:
        placed = clock.place(time + origin)
        return placed.time - time - origin, placed.half

    return move


def _gpus(found: Sequence[tuple[Trace, list[RankGpu]]]) -> list[list[Gpu]]:
    """The GPUs of each trace. Their number is the rank if every rank has one."""
    single = all(len(gpus) == 1 for _, gpus in found)
    numbers = count()
    return [
        [
            Gpu(gpu.rank if single else next(numbers), f"rank {gpu.rank}, {one.name}")
            for gpu, one in zip(gpus, trace.recorded.gpus, strict=True)
        ]
        for trace, gpus in found
    ]
