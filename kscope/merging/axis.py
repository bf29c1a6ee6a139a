"""Places a capture on another profiler's time axis, as far as the order of events proves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from ..capture.model import Problem
from ..decoding.causal import Clock, Evidence, solve
from ..errors import UsageError
from ..tracedata.data import T, TraceData
from ..tracedata.recording_facts import Gpu
from ..util.arrays import Float, Int64
from ..util.text import counted
from .kineto import Kernels
from .launch_times import LaunchTimes

Shift = Callable[[Int64], "tuple[Int64, Float]"]

MOST_RATE = 5e-5
"""A GPU's timer and another profiler's clock drift apart by at most this much; up to 8.7 ppm were measured."""
MOST_JUMPS = 4
"""Clocks that jump more often in one capture indicate wrong pairs."""


@dataclass(frozen=True)
class Bound:
    """Bounds of a device's clock.

    Attributes:
        device: ordinal.
        pairs: launches that bound it.
        readings: launches that only read the timer and bound it too.
        half_ns: largest error of a time on the shared axis, besides the time's own error.
        seconds: the time that it covers.
        rate_ppm: the least and the most drift.
        jumps: number of jumps of the clock.
    """

    device: int
    pairs: int
    readings: int
    half_ns: float
    seconds: float
    rate_ppm: tuple[float, float]
    jumps: int

    def __str__(self) -> str:
        jumped = f", {counted(self.jumps, 'jump')} of a clock split off" if self.jumps else ""
        least, most = self.rate_ppm
        read = f" and {counted(self.readings, 'reading')} of the timer" if self.readings else ""
        return (
            f"GPU {self.device}: within \N{PLUS-MINUS SIGN}{self.half_ns:,.0f} ns over {self.seconds:.3g} s, by "
            f"{counted(self.pairs, 'launch')}{read}; clocks drift by {least:.2f} to {most:.2f} ppm{jumped}"
        )


def readings(trace: TraceData, kernels: Kernels, shift: int) -> dict[int, Evidence]:
    """Evidence from the launches that only read a timer, by index of the device; none for a name that the other
    profiler has less often.

    Args:
        trace: the trace.
        kernels: of the other profiler, in order of begin.
        shift: their origin, ns after the trace's.
    """
    found = {}
    for index, gpu in enumerate(trace.recorded.gpus):
        parts = list[Evidence]()
        for name in dict.fromkeys(one.kernel for one in gpu.readings):
            mine = [one for one in gpu.readings if one.kernel == name]
            at = [at for at, one in enumerate(kernels.name) if one == name and kernels.device[at] == gpu.device]
            if len(at) == len(mine):
                first_by, last_from = (
                    np.array([getattr(one, what) - trace.origin for one in mine], np.int64)
                    for what in ("first_by", "last_from")
                )
                parts.append(Evidence.clock_first(first_by, kernels.begin[at] + shift))
                parts.append(Evidence.reference_first(last_from, kernels.end[at] + shift))
        if parts:
            found[index] = Evidence.joined(*parts)
    return found


def clocks(
    times: LaunchTimes, kernel: Int64, begin: Int64, end: Int64, more: Mapping[int, Evidence] = MappingProxyType({})
) -> dict[int, Clock]:
    """The other profiler's clock against the trace's, by index of the device.

    A kernel's slice in another profiler's trace contains the launch: it begins before the first claim and ends after
    the last warp. These are the inequalities of causal.Evidence, for each device's clock. The launches that read the
    timer at a session's begin and end give the tightest ones.

    Args:
        times: the launches (l,), in ns after the trace's origin.
        kernel: (l,) index of each launch's kernel, or -1.
        begin, end: (k,) int64, of the kernels, in ns after the same moment.
        more: further evidence, by index of the device.

    Raises:
        UsageError: the kernels' times contradict those of the launches.
    """
    found = {}
    for device in np.unique(times.device).tolist():
        at = np.flatnonzero((times.device == device) & (kernel >= 0))
        if not len(at):
            continue
        slices = kernel[at]
        before = Evidence.clock_first(times.first_by[at], begin[slices])
        after = Evidence.reference_first(times.last_from[at], end[slices])
        clock = solve(before, after, *([more[device]] if device in more else []), most_rate=MOST_RATE)
        if clock.jumps > MOST_JUMPS:
            raise UsageError(
                f"merge: the times of {counted(len(at), 'launch')} contradict those of their kernels ({clock.jumps:,} "
                "jumps of a clock would be needed): the files are not of the same run, or not of the same launches"
            )
        found[device] = clock
    return found


def bounds(
    trace: TraceData, times: LaunchTimes, kernel: Int64, clocks: dict[int, Clock], more: Mapping[int, Evidence]
) -> list[Bound]:
    """Bounds of each device's clock, while its launches ran. Arguments are those of clocks()."""
    found = []
    for device, clock in clocks.items():
        at = (times.device == device) & (kernel >= 0)
        moments = np.concatenate([times.first[at], times.last[at]])
        half = float(clock.at(moments).half.max())
        rates = clock.pieces[0].rate
        seconds = int(moments.max() - moments.min()) / 1e9
        ppm = rates[0] * 1e6, rates[1] * 1e6
        read = len(more[device]) // 2 if device in more else 0
        found.append(Bound(trace.devices[device], int(at.sum()), read, half, seconds, ppm, clock.jumps))
    return found


def move_to_axis(trace: T, shifts: Mapping[int, Shift], jumps: int = 0) -> T:
    """The trace on another clock's axis; devices without a shift move as the first one that has one.

    `origin` moves by a whole number of ns, so that times stay small; `error_ns` grows by the shift's bound.

    Args:
        trace: the trace.
        shifts: by index of the device, maps times in ns after `origin` to their shift, and its largest error.
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
    gpus = tuple(Gpu(one.device, one.name, one.uuid) for one in trace.recorded.gpus)  # readings are of the old axis
    return replace(
        trace, warps=changed, origin=trace.origin + (base or 0), problems=(*trace.problems, *problems),
        recorded=replace(trace.recorded, gpus=gpus),
    )  # fmt: skip


def shift_of(clock: Clock) -> Shift:
    """The middle of a clock's bounds, and half their width."""

    def move(time: Int64) -> tuple[Int64, Float]:
        found = clock.at(time)
        return found.middle, found.half

    return move
