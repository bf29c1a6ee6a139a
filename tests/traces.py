"""Traces with a known truth for tests of analyses: nested spans of random lanes, on a clock of whole nanoseconds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import synth
from synth import Rec

from kscope.trace import Trace, decode

NAMES = ("load", "dot", "wait", "tile")
START = 1000


@dataclass
class Lane:
    """One recording lane: spans as (name, start, end) in ns, in order of end."""

    block: int = 0
    warp: int = 0
    sm: int = 0
    grid_id: int = 1
    start: int = START
    end: int = 0
    spans: list[tuple[str, int, int]] = field(default_factory=list)

    def innermost(self, time: int) -> str | None:
        """The region that the lane is in during [time, time + 1)."""
        inside = [(end - start, name) for name, start, end in self.spans if start <= time < end]
        return min(inside, default=(0, None))[1]


def lane(rng: random.Random, depth: int = 3, shortest: int = 1, **where: Any) -> Lane:
    """Spans that nest, of random names, lengths and gaps; none has length 0 but where that is the shortest."""
    made = Lane(**where)
    made.start += rng.randrange(30)
    time = _fill(rng, made, made.start, depth, shortest) if rng.random() < 0.95 else made.start
    made.end = time + rng.randrange(1, 20)
    return made


def _fill(rng: random.Random, made: Lane, time: int, depth: int, shortest: int) -> int:
    for _ in range(rng.randrange(4)):
        time += rng.randrange(8)
        start = time
        time = _fill(rng, made, time, depth - 1, shortest) if depth > 1 and rng.random() < 0.5 else time
        time += rng.randrange(0 if time > start else shortest, 12)
        made.spans.append((rng.choice(NAMES), start, time))
    return time


def lanes(rng: random.Random, blocks: int = 3, warps: int = 2, launches: int = 1, shortest: int = 1) -> list[Lane]:
    """Warps of blocks on two SMs."""
    return [
        lane(rng, 3, shortest, block=block, warp=warp, sm=block % 2, grid_id=launch + 1, start=START + 300 * launch)
        for launch in range(launches)
        for block in range(blocks)
        for warp in range(warps)
    ]


def trace(made: list[Lane], **slab: int) -> Trace:
    """The recording of a GPU with a timer of 1 ns."""
    grid = max((one.block for one in made), default=0) + 1
    return decode(
        synth.capture(
            *(
                synth.slab(
                    [Rec(*span) for span in one.spans], log2=7, start=one.start, end=one.end, start_time=one.start,
                    end_time=one.end, block=(one.block, 0, 0), grid=(grid, 1, 1), warp=one.warp, sm=one.sm, flags=1,
                    grid_id=one.grid_id, **slab,
                )
                for one in made
            ),
            names=NAMES,
        )
    )  # fmt: skip


def origin(made: list[Lane]) -> int:
    """The trace's time 0."""
    return min(one.start for one in made)
