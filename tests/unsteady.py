"""Simulated SMs whose clocks change their rate while a kernel runs, and the true times of what they record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from simulated import capture as recorded

import kscope
import kscope_sim
from kscope.capture.capture import Capture
from kscope.instrument.recording import Recording
from kscope.trace import Trace, decode
from kscope_sim import Warp
from kscope_sim.machine import POWER_ON_NS

Float = npt.NDArray[np.float64]
Speed = Callable[[int, Float], Float]
"""GHz of an SM at times in ns."""
SMS = 2
FINEST = 400.0
"""ns between which a clock does not change."""


@dataclass(frozen=True)
class Unsteady(kscope_sim.Machine):
    """A machine whose clocks run as `speed` says, up to `length` ns."""

    speed: Speed = field(default=lambda sm, ns: np.full(len(ns), 1.98))
    length: float = 1e6

    @cached_property
    def table(self) -> tuple[Float, list[Float]]:
        at = np.linspace(0, 1.2 * self.length, int(max(40_000, min(self.length / FINEST, 400_000))) + 1)
        speeds = [self.speed(sm, at) for sm in range(self.sms)]
        return at, [np.concatenate([[0.0], np.cumsum((s[1:] + s[:-1]) / 2 * np.diff(at))]) for s in speeds]

    def cycles(self, sm: int, ns: float) -> int:
        at, count = self.table
        return round(float(np.interp(ns, at, count[sm])))

    def ns(self, sm: int, cycles: int) -> float:
        at, count = self.table
        assert cycles <= count[sm][-1], "length is too short"
        return float(np.interp(cycles, count[sm], at))


def falls(sm: int, ns: Float) -> Float:
    """Slower and slower, each SM by another amount."""
    return np.asarray(1.98 - (0.2 + 0.05 * sm) * ns / ns[-1])


def jumps(sm: int, ns: Float) -> Float:
    """A tenth of the time at full speed, then power-limited, and back."""
    phase = (ns / ns[-1] * 3 + 0.1 * sm) % 1
    return np.where(phase < 0.1, 1.98, np.where(phase < 0.7, 1.6, 1.85))


def brakes(sm: int, ns: Float) -> Float:
    """Full speed, and from one moment on none."""
    return np.where(ns < (0.4 + 0.1 * sm) * ns[-1], 1.98, 1.6)


def boosts(sm: int, ns: Float) -> Float:
    """40 us of full speed every 300 us: shorter than the distance of two anchors."""
    return np.where((ns / 300e3 + 0.1 * sm) % 1 < 40 / 300, 1.98, 1.755)


def wanders(sm: int, ns: Float) -> Float:
    """A clock step up or down every 0.3 ms or so, as beside a matmul on an H200."""
    rng = np.random.default_rng(5 + sm)
    edges = np.cumsum(rng.exponential(300e3, int(ns[-1] / 200e3) + 20))
    return rng.choice(np.arange(1.905, 1.981, 0.015), len(edges) + 1)[np.searchsorted(edges, ns)]


def limited(sm: int, ns: Float) -> Float:
    """1 ms of full speed, then less, and every 0.3 ms or so another rate."""
    rng = np.random.default_rng(9 + sm)
    edges = np.cumsum(rng.exponential(300e3, int(ns[-1] / 200e3) + 20))
    low = rng.choice(np.arange(1.83, 1.936, 0.015), len(edges) + 1)[np.searchsorted(edges, ns)]
    return np.where(ns < 1e6 + 1e5 * sm, 1.98, low)


def recovers(sm: int, ns: Float) -> Float:
    """Still power-limited for 3 ms, as an H200 is after a matmul, then full speed."""
    return np.where(ns < 3e6 + 1e5 * sm, 1.8, 1.98)


@dataclass(frozen=True)
class Limit:
    """What a condition of tests/gpu/test_accuracy.py may make: the farthest span, and the median of the error bounds,
    ns: three times what is simulated with the worst of some clocks. pause: cycles of a span."""

    pause: int
    clocks: tuple[Speed, ...]
    farthest: float
    error: float


LIMITS = {
    "2.5 ms beside a matmul": Limit(20_000, (wanders, limited), 7_500, 24_900),
    "40 ms": Limit(320_000, (wanders, recovers), 100, 35_700),
    "40 ms beside a matmul": Limit(320_000, (wanders, limited), 138, 30_700),
    "200 ms": Limit(1_600_000, (wanders, recovers), 147, 178_000),
}


@dataclass(frozen=True)
class Known:
    """A capture of `rounds` spans in each of `warps` warps per SM. ns: (SM, warp, round, 2) true starts and ends, after
    the machine's start; cycles: (SM, warp, round) durations."""

    capture: Capture
    ns: Float
    cycles: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Seen:
    """off: how far starts and ends of records are from the truth, ns; error: what the trace says that they may be."""

    trace: Trace
    off: Float
    error: Float


def known(speed: Speed, length: float, rounds: int = 250, warps: int = 1) -> Known:
    """A recording. Warps begin one after another, within a round; half of a round is a span."""
    machine = Unsteady(sms=SMS, speed=speed, length=length)
    pause = int(1.7 * length / rounds)
    return _known(machine, (pause // 2, pause // 2), pause // warps, rounds, warps)


def in_condition(name: str, speed: Speed) -> Known:
    """A recording in one of LIMITS: span after span, all warps at once."""
    pause, rounds = LIMITS[name].pause, 250
    machine = Unsteady(sms=SMS, speed=speed, length=pause * rounds / 1.8)
    return _known(machine, (pause, 0), 0, rounds, 2)


def _known(machine: Unsteady, work: tuple[int, int], apart: int, rounds: int, warps: int) -> Known:
    """work: cycles in a span and after it. apart: cycles from one warp's begin to the next."""
    truth = np.zeros((SMS, warps, rounds, 2))
    cycles = np.zeros((SMS, warps, rounds), np.int64)

    def kernel(warp: Warp) -> None:
        warp.work(apart * warp.index + 1)
        for number in range(rounds):
            place = warp.smid, warp.index, number
            began = warp.now
            with kscope.region("work", value=number):
                warp.work(work[0])
                ended = warp.now
            truth[place] = machine.ns(warp.smid, began), machine.ns(warp.smid, ended)
            cycles[place] = ended - began
            warp.work(work[1])

    made = recorded(kernel, recording=Recording(records=1024), machine=machine, grid=SMS, block=32 * warps)
    devices = tuple(replace(one, max_clock_khz=1_980_000) for one in made.devices)
    return Known(replace(made, devices=devices), truth, cycles)


def decoded(of: Known) -> Seen:
    """The trace of a recording beside the truth."""
    trace = decode(of.capture)
    place = trace.warps.sm[trace.track], trace.warp, trace.value.astype(int)
    shift, true = trace.origin - POWER_ON_NS, of.ns[place]
    found = np.stack([trace.start_ns, trace.start_ns + trace.dur_ns], axis=1) + shift
    return Seen(trace, np.abs(found - true).max(axis=1), trace.warps.error_ns[trace.track])
