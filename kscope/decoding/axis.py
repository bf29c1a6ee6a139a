"""From SM cycles to nanoseconds on one axis.

An anchor is a bracket: clock64 before, %globaltimer, clock64 after. The timer was read somewhere in
the bracket and its true time is less than one tick after what it said. So, on one SM at a steady rate,

    T + x * rate < time + tick        T + (x + width) * rate >= time        x = clock - the SM's reference

Two distant anchors bound the rate, all anchors bound T (the SM's offset). clock64 differs per SM; the
timer does not. Offset and rate are shared by all launches of a device only where all anchors fit one
line per SM; else each launch has offsets of its own, and a rate of its own unless one rate fits all.
What lives here: this fit. What does not: where anchors come from (slabs.py), the host's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..capture import DeviceCapture, Problem
from ..wording import counted
from .slabs import Slabs

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

USUAL_TICK_NS = 32
"""Assumed where neither the device's capture nor the anchors tell (NVIDIA H200, driver 580: measured)."""
_FASTEST, _SLOWEST = 0.2, 10.0
"""ns per cycle of any GPU: 5 GHz to 100 MHz; used only where anchors say less than that."""
_FAR = float(1 << 61)
"""No time lies farther from the origin, in ns: what damaged anchors give is cut to this."""
_WIDE = 0.02
"""A rate that its launch bounds no better than 2 % is taken from the other launches, within the bounds."""


@dataclass(frozen=True)
class Axis:
    """Nanoseconds of each slab: ns = start + (tick - slab's first tick) * rate, after `origin`.

    start, rate, error: (s,) float64; error is half the width of what the anchors allow, in ns.
    origin: %globaltimer, ns. tick: its step, ns. shared: all launches lie on one line per SM.
    """

    start: Float
    rate: Float
    error: Float
    origin: int
    tick: int
    shared: bool
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class _Anchors:
    """All anchors: x, width in cycles and y in ns as float64 after the references, with slab indices."""

    x: Float
    width: Float
    y: Float
    slab: Int64


@dataclass(frozen=True)
class _Rates:
    """Bounds of the rate per group, ns per cycle."""

    least: Float
    most: Float

    @property
    def middle(self) -> Float:
        return (self.least + self.most) / 2


def fit(slabs: Slabs, launch: Int64, device: DeviceCapture, origin: int) -> Axis:
    """The axis of one device's slabs (s,) in launches `launch` (s,). Never raises on data."""
    tick = device.tick_ns or _tick_seen(slabs)
    with np.errstate(all="ignore"):
        if not len(slabs):
            nothing = np.zeros(0)
            return Axis(nothing, nothing, nothing, origin, tick, True)
        return _fit(slabs, launch, tick, origin)


def _fit(slabs: Slabs, launch: Int64, tick: int, origin: int) -> Axis:
    header = slabs.header
    _, sm = np.unique(slabs.sm, return_inverse=True)
    reference = np.full(int(sm.max()) + 1, np.iinfo(np.int64).max)
    clock = header["start_clock"].astype(np.int64)
    np.minimum.at(reference, sm, clock)
    anchors = _anchors(slabs, reference[sm], origin)
    problems: list[Problem] = []
    one = np.zeros(len(slabs), np.int64)
    bounds = _rates(anchors, sm, one, tick)
    rate = np.broadcast_to(_settle(bounds, None), len(slabs)).copy()
    offset, error, misfit = _offsets(anchors, sm, rate, tick)
    shared = bool((bounds.least <= bounds.most).all() and (misfit <= tick).all())
    group = sm
    if not shared:
        _, launch = np.unique(launch, return_inverse=True)
        group = launch * (int(sm.max()) + 1) + sm
        _, group = np.unique(group, return_inverse=True)
        bounds = _rates(anchors, group, launch, tick)
        known = (bounds.most - bounds.least < _WIDE * bounds.middle) & (bounds.most >= bounds.least)
        usual = float(np.median(bounds.middle[known])) if known.any() else None
        common = _Rates(bounds.least.max(keepdims=True), bounds.most.min(keepdims=True))
        if (common.least <= common.most).all():
            rates = np.broadcast_to(_settle(common, usual), len(bounds.least))
        else:
            rates = _settle(bounds, usual)
        rate = rates[launch]
        offset, error, misfit = _offsets(anchors, group, rate, tick)
        # two readings of the timer may each be a tick off
        changed = (misfit > 2 * tick) | (bounds.least > bounds.most)[launch]
        if changed.any():
            launches = len(np.unique(launch[changed]))
            text = (
                f"the SM clock changed within {counted(launches, 'launch')}: times may be off by {misfit.max():,.0f} ns"
            )
            problems.append(Problem("clock", text, launches))
    loose = float(np.max((bounds.most - bounds.least) / np.maximum(bounds.middle, 1e-9)))
    if loose > 0.1 and not slabs.globaltimer.all():
        text = "launches are too short to tell the SM clock's rate from the timer: ns are a guess, cycles are exact"
        problems.append(Problem("rate", text))
    start = offset + (clock - reference[sm]) * rate
    timer = slabs.globaltimer
    start = np.where(timer, (header["start_time"].astype(np.int64) - origin).astype(np.float64), start)
    rate, error = np.where(timer, 1.0, rate), np.where(timer, tick / 2, error)
    start = np.clip(np.nan_to_num(start), -_FAR, _FAR)
    rate, error = (np.nan_to_num(column, nan=0.0, posinf=0.0, neginf=0.0) for column in (rate, error))
    return Axis(start, rate, error, origin, tick, shared, tuple(problems))


def _anchors(slabs: Slabs, reference: Int64, origin: int) -> _Anchors:
    header, ended = slabs.header, np.flatnonzero(slabs.finished)
    every = np.arange(len(slabs))
    clock = np.concatenate([header["start_clock"], header["end_clock"][ended]]).astype(np.int64)
    time = np.concatenate([header["start_time"], header["end_time"][ended]]).astype(np.int64)
    width = np.concatenate([header["start_width"], header["end_width"][ended]]).astype(np.float64)
    slab = np.concatenate([every, ended])
    return _Anchors((clock - reference[slab]).astype(np.float64), width, (time - origin).astype(np.float64), slab)


def _rates(anchors: _Anchors, group: Int64, launch: Int64, tick: int) -> _Rates:
    """Bounds of the rate per launch, from the first and last anchor of every group (an SM in a launch)."""
    of = group[anchors.slab]
    order = np.lexsort((anchors.x, of))
    edges = np.flatnonzero(np.diff(of[order], prepend=-1))
    first, last = order[edges], order[np.append(edges[1:], len(order)) - 1]
    elapsed = anchors.y[last] - anchors.y[first]
    longest = anchors.x[last] + anchors.width[last] - anchors.x[first]
    shortest = anchors.x[last] - anchors.x[first] - anchors.width[first]
    least = np.full(int(launch.max()) + 1, 0.0)
    most = np.full(int(launch.max()) + 1, np.inf)
    where = launch[anchors.slab[first]]
    np.maximum.at(least, where, np.where(longest > 0, (elapsed - tick) / longest, 0.0))
    np.minimum.at(most, where, np.where(shortest > 0, (elapsed + tick) / shortest, np.inf))
    return _Rates(np.maximum(least, _FASTEST), np.minimum(most, _SLOWEST))


def _settle(bounds: _Rates, usual: float | None) -> Float:
    """A rate within each pair of bounds: their middle where they are close, else the usual rate."""
    close = bounds.most - bounds.least < _WIDE * bounds.middle
    guess = np.sqrt(bounds.least * bounds.most) if usual is None else np.full(len(close), usual)
    within = np.clip(guess, np.minimum(bounds.least, bounds.most), np.maximum(bounds.least, bounds.most))
    return np.where(close, bounds.middle, within)


def _offsets(anchors: _Anchors, group: Int64, rate: Float, tick: int) -> tuple[Float, Float, Float]:
    """(offset, error, misfit) per slab: T's middle, half the width of what is allowed, and by how much no T fits."""
    of, pace = group[anchors.slab], rate[anchors.slab]
    least = np.full(int(group.max()) + 1, -np.inf)
    most = np.full(int(group.max()) + 1, np.inf)
    np.maximum.at(least, of, anchors.y - (anchors.x + anchors.width) * pace)
    np.minimum.at(most, of, anchors.y + tick - anchors.x * pace)
    misfit = np.maximum(least - most, 0.0)
    return ((least + most) / 2)[group], (np.abs(most - least) / 2)[group], misfit[group]


def _tick_seen(slabs: Slabs) -> int:
    """The timer's step as the anchors show it: the greatest common divisor of their differences."""
    times = np.unique(np.concatenate([slabs.header["start_time"], slabs.header["end_time"][slabs.finished]]))
    if len(times) < 16:
        return USUAL_TICK_NS
    return int(np.clip(np.gcd.reduce(np.diff(times)), 1, 1 << 20))
