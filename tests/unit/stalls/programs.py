"""Simulated kernels with known truth, recorded with samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import kscope
import kscope_sim
from kscope.capture.capture import Capture
from kscope.capture.samples import SampledFunction, Samples
from kscope_sim.warp import Warp

FILE = __file__


def three(warp: Warp, turns: int) -> None:
    """Sixty, thirty-five and five of a hundred cycles, and a barrier outside."""
    for _ in range(turns):
        with kscope.region("load"):
            warp.work(6000, why="long_scoreboard")
        with kscope.region("math"):
            warp.work(3400)
            with kscope.region("inner"):
                warp.work(93 + 100 * (warp.index == 1))
        warp.sync()


def plain(warp: Warp, turns: int) -> None:
    """Without marks."""
    for _ in range(turns):
        warp.work(6000, why="long_scoreboard")
        warp.work(2000)


def line(text: str) -> int:
    """The number of the line of this file that contains a text."""
    return next(number for number, one in enumerate(Path(FILE).read_text().splitlines(), 1) if text in one)


def recorded(*, period: int = 64, turns: int = 20, **options: object) -> Capture:
    """Eight blocks of two warps."""
    with kscope.profile(stalls=True, period=period, **options) as prof:  # type: ignore[arg-type]  # passed on
        kscope_sim.launch(three, 8, 64, (turns,))
    return prof.capture


def samples(capture: Capture) -> Samples:
    """Its samples."""
    assert capture.samples is not None
    return capture.samples


def function(capture: Capture) -> SampledFunction:
    """Its only sampled function."""
    return samples(capture).functions[0]


def changed(capture: Capture, **fields: object) -> Capture:
    """The capture with another function."""
    assert capture.samples is not None
    [function] = capture.samples.functions
    return replace(capture, samples=replace(capture.samples, functions=(replace(function, **fields),)))  # type: ignore[arg-type]
