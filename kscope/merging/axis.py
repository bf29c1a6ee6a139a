"""A capture on another profiler's time axis, as far as the order of events proves it.

A kernel's slice in another profiler's trace holds the launch: it begins before the first claim and ends after the last
warp. These are the inequalities of the causal clock. Each device has its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..capture.model import Problem
from ..decoding.causal import Clock, Evidence, solve
from ..errors import UsageError
from ..tracedata.data import T, TraceData
from ..util.text import counted
from .lives import Lives

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Shift = Callable[[Int64], "tuple[Int64, Float]"]

MOST_JUMPS = 4
"""Clocks that jump more often in one capture are taken for wrong pairs."""


@dataclass(frozen=True)
class Bound:
    """What is known of a device's clock.

    Attributes:
        device: ordinal.
        pairs: launches that bound it.
        half_ns: the most by which a time on the shared axis is wrong, besides the time's own error.
        seconds: the time that it covers.
        rate_ppm: the least and the most drift.
        jumps: how often the clock jumped.
    """

    device: int
    pairs: int
    half_ns: float
    seconds: float
    rate_ppm: tuple[float, float]
    jumps: int

    def __str__(self) -> str:
        jumped = f", {counted(self.jumps, 'jump')} of a clock split off" if self.jumps else ""
        least, most = self.rate_ppm
        return (
            f"GPU {self.device}: within \N{PLUS-MINUS SIGN}{self.half_ns:,.0f} ns over {self.seconds:.3g} s, by "
            f"{counted(self.pairs, 'launch')}; clocks drift by {least:.2f} to {most:.2f} ppm{jumped}"
        )


def clocks(lives: Lives, kernel: Int64, begin: Int64, end: Int64) -> dict[int, Clock]:
    """The other profiler's clock against the trace's, by index of the device.

    Args:
        lives: the launches (l,), in ns after the trace's origin.
        kernel: (l,) index of each launch's kernel, or -1.
        begin, end: (k,) int64, of the kernels, in ns after the same moment.

    Raises:
        UsageError: the kernels' times contradict those of the launches.
    """
    found = {}
    for device in np.unique(lives.device).tolist():
        at = np.flatnonzero((lives.device == device) & (kernel >= 0))
        if not len(at):
            continue
        slices = kernel[at]
        before = Evidence.clock_first(lives.first_by[at], begin[slices])
        after = Evidence.reference_first(lives.last_from[at], end[slices])
        clock = solve(Evidence.joined(before, after))
        if clock.jumps > MOST_JUMPS:
            raise UsageError(
                f"merge: the times of {counted(len(at), 'launch')} contradict those of their kernels ({clock.jumps:,} "
                "jumps of a clock would be needed): the files are not of the same run, or not of the same launches"
            )
        found[device] = clock
    return found


def bounds(trace: TraceData, lives: Lives, kernel: Int64, clocks: dict[int, Clock]) -> list[Bound]:
    """What is known of each device's clock, while its launches ran."""
    found = []
    for device, clock in clocks.items():
        at = (lives.device == device) & (kernel >= 0)
        times = np.concatenate([lives.first[at], lives.last[at]])
        half = float(clock.at(times).half.max())
        rates = clock.pieces[0].rate
        seconds = int(times.max() - times.min()) / 1e9
        ppm = rates[0] * 1e6, rates[1] * 1e6
        found.append(Bound(trace.devices[device], int(at.sum()), half, seconds, ppm, clock.jumps))
    return found


def moved(trace: T, shifts: Mapping[int, Shift], jumps: int = 0) -> T:
    """The trace on another clock's axis; devices without a shift move as the first one that has one.

    `origin` moves by a whole number of ns, so that times stay small; `error_ns` grows by what is not known.

    Args:
        trace: the trace.
        shifts: by index of the device, what turns times in ns after `origin` into how far they move, and the most by
            which that is wrong.
        jumps: of clocks, for a problem.
    """
    warps = trace.warps
    start, end = warps.start_ns, warps.start_ns + (warps.last_tick - warps.first_tick) * warps.tick_ns
    shift, half, stretch = np.zeros((3, len(warps)))
    base: int | None = None
    for device in range(len(trace.devices)):
        move = shifts.get(device) or next(iter(shifts.values()))
        at = np.flatnonzero(warps.device == device)
        if not len(at):
            continue
        (first, early), (last, late) = (move(np.rint(one[at]).astype(np.int64)) for one in (start, end))
        base = int(first[0]) if base is None else base
        shift[at], half[at] = first - base, np.maximum(early, late)
        life = end[at] - start[at]
        stretch[at] = np.divide(last - first, life, out=np.zeros_like(life), where=life > 0)
    text = (
        f"a clock jumped {counted(jumps, 'time')}: the recording is split there, and times around it are less certain"
    )
    problems = (Problem("clock", text, jumps),) if jumps else ()
    changed = replace(
        warps, start_ns=start + shift, end_ns=warps.end_ns + shift + (end - start) * stretch,
        tick_ns=warps.tick_ns * (1 + stretch), error_ns=warps.error_ns + half,
        ends_error_ns=warps.ends_error_ns + half,
    )  # fmt: skip
    return replace(trace, warps=changed, origin=trace.origin + (base or 0), problems=(*trace.problems, *problems))


def shift_of(clock: Clock) -> Shift:
    """The middle of what is proven of a clock, and half its width."""

    def move(time: Int64) -> tuple[Int64, Float]:
        found = clock.at(time)
        return found.middle, found.half

    return move
