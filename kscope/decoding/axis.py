"""Maps SM cycles to nanoseconds on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import native
from ..capture.capture_data import DeviceCapture
from ..capture.model import Problem
from ..tracedata.clock_curves import Curves
from ..util.arrays import Bools, Float, Int64
from ..util.parallel import each, filled, least, map_ahead, shares
from ..util.runs import group_equal, least_of, most_of
from ..util.text import counted
from . import clock_curves, clock_drift, time_bounds
from .anchors import FASTEST, SLOWEST, Anchors, Rates, Rows, rate_between, tightest
from .inner_anchors import InnerAnchors, with_inner_anchors
from .slabs import Slabs

USUAL_TICK_NS = 32
"""Assumed if neither the capture nor the anchors show it (measured on an NVIDIA H200, driver 580)."""
_FAR = float(1 << 61)
"""Times are clipped to this distance from the origin, ns; only damaged anchors exceed it."""
_ROUNDING = 1 / 16
"""Anchors that miss a line by less than this part of a tick still fit: the rate was rounded."""
_ROUNDS = 16
"""Iterations in search of a rate that fits all anchors; each adds the bounds of two anchors that the last rate did not
fit.
"""


@dataclass(frozen=True)
class Axis:
    """Nanoseconds of each slab: ns = start + (even tick - slab's first tick) * rate, after `origin`.

    Attributes:
        start, rate: (s,) float64.
        curve: (s,) int32, index into `curves`, by which the slab's ticks become even ones; -1 if they are.
        curves: curves of SMs whose clocks changed.
        error: (s,) float64, bound on the error of any time of the slab, ns (time_bounds.py).
        ends_error: (s,) float64, the same at the warp's start and end.
        origin: %globaltimer, ns.
        tick: its step, ns.
        shared: all launches are on one line per SM.
        problems: problems of the fit.
    """

    start: Float
    rate: Float
    curve: npt.NDArray[np.int32]
    curves: Curves
    error: Float
    ends_error: Float
    origin: int
    tick: int
    shared: bool
    problems: tuple[Problem, ...] = ()


def fit_axis(
    slabs: Slabs, launch: Int64, last_tick: Int64, device: DeviceCapture, origin: int, inner: InnerAnchors | None = None
) -> Axis:
    """Fit the axis of one device's slabs (s,) in launches `launch` (s,). Never raises on data.

    Anchors (anchors.py) bound, for one SM at a steady rate, a line

        time = T + x * rate        x = clock - the SM's reference

    Two distant anchors bound the rate, and all anchors bound T, the SM's offset. clock64 differs per SM; the timer does
    not. All launches of a device share offset and rate only if all anchors fit one line per SM; else each launch has
    separate offsets, and a separate rate unless one rate fits all; and if no line fits an SM's anchors in a launch,
    each of its blocks has a line (clock_drift.py), or, with anchors among records, the SM has a curve
    (clock_curves.py).

    Args:
        slabs: of one device.
        launch: (s,) number of each slab's launch.
        last_tick: (s,) the end of each warp, or of its last record.
        device: its timer's step and highest clock.
        origin: %globaltimer at 0 ns of the axis.
        inner: anchors among the records of these slabs.
    """
    tick = device.tick_ns or _tick_seen(slabs)
    with np.errstate(all="ignore"):
        if not len(slabs):
            nothing = np.zeros(0)
            return Axis(nothing, nothing, np.zeros(0, np.int32), Curves.none(), nothing, nothing, origin, tick, True)
        return _fit(slabs, launch, last_tick, tick, device.max_clock_khz, origin, inner or InnerAnchors.none())


def _fit(
    slabs: Slabs, launch: Int64, last_tick: Int64, tick: int, max_clock_khz: int, origin: int, inner: InnerAnchors
) -> Axis:
    header = slabs.header
    sm = _sms(slabs)
    clock = header["start_clock"].view(np.int64)
    reference = least(int(sm.max()) + 1, sm, clock)
    anchors, rows = _anchors(slabs, sm, reference, origin)
    if len(inner):
        anchors, rows = with_inner_anchors(inner, anchors, slabs, sm, reference, origin, max_clock_khz)
    problems: list[Problem] = []
    one = np.broadcast_to(np.int64(0), len(slabs))
    bounds, rate = _narrowed(anchors, rows, one, _rates(anchors, rows, one, tick), None, tick)
    offset, misfit = _offsets(anchors, rows, rate, one, tick)
    shared = bool((bounds.least <= bounds.most).all() and (misfit <= tick * _ROUNDING).all())
    changed = np.zeros(0, np.int64)
    curved = np.zeros(len(slabs), bool)
    group = one
    if shared:
        rate = np.broadcast_to(rate[:1], len(slabs))
        within = time_bounds.limits(anchors, rows, tick, max_clock_khz)
    else:
        _, _, launch = group_equal(launch)
        group = _numbered(launch, sm)
        anchors = anchors.at(np.argsort(group[anchors.slab], kind="stable"))
        rows = Rows.of(group[anchors.slab])
        offset, rate, bounds, drifted = _per_launch(anchors, rows, launch, tick)
        offset, rate = offset[group], rate[launch]
        which = drifted[launch]
        within = time_bounds.limits(anchors, rows, tick, max_clock_khz)
        if which.any():
            blocks = _numbered(group, header["ctaid_x"], header["ctaid_yz"])
            numbers = [_numbered(of[which]) for of in (group, blocks)]
            lines = clock_drift.lines(
                anchors.of(which), numbers[0], numbers[1], rate[which], tick, (within.fast, within.slow)
            )
            offset[which], rate[which] = lines.offset, lines.rate
            changed = np.flatnonzero(which)[lines.bend > 2 * tick]
            curved = _curved(anchors, rows, group, which & ~slabs.globaltimer, inner)
    timer = slabs.globaltimer
    first_tick, paces = slabs.first_tick, rate
    (start, rate), cycles = np.empty((2, len(slabs))), np.empty(len(slabs))

    def place(part: slice) -> None:
        of = sm[part]
        rate[part] = paces[part]
        start[part] = (offset[of] if shared else offset[part]) + (clock[part] - reference[of]) * rate[part]
        np.multiply(last_tick[part] - first_tick[part], ~timer[part], out=cycles[part])

    each(place, shares(len(slabs)))
    ends_error, error = time_bounds.errors(anchors, rows, tick, within, start, rate, cycles)
    curve, curves = np.broadcast_to(np.int32(-1), len(slabs)), Curves.none()
    if curved.any():
        curve = np.full(len(slabs), -1, np.int32)
        some = anchors.of(curved)
        row = Rows.of(group[curved][some.slab])
        where = sm[curved][some.slab[row.first]]
        fitted = clock_curves.fit(some, row, tick, within, reference[where], cycles[curved])
        curve[curved], curves, start[curved] = fitted.curve, fitted.curves, fitted.start
        rate[curved] = np.where(fitted.rate > 0, fitted.rate, rate[curved])
        ends_error[curved], error[curved] = fitted.ends_error, fitted.error + rate[curved]  # even ticks are whole ones
    changed = changed[~timer[changed]]
    if len(changed):
        launches = len(np.unique(launch[changed]))
        text = (
            f"the SM clocks changed during {counted(launches, 'launch')}: times inside a block may be off by up to"
            f' {error[changed].max():,.0f} ns; with clock="globaltimer" each time is exact to a tick'
        )
        problems.append(Problem("clock", text, launches))
    loose = float(np.max((bounds.most - bounds.least) / np.maximum(bounds.middle, 1e-9)))
    if loose > 0.1 and not slabs.globaltimer.all():
        text = "launches are too short to measure the SM clock's rate: ns are estimates, cycles are exact"
        problems.append(Problem("rate", text))

    timed = timer.any()

    def finish(part: slice) -> None:
        for bound in (error[part], ends_error[part]):
            bound += tick * _ROUNDING
        if timed:
            here = np.flatnonzero(timer[part]) + part.start
            start[here] = (header["start_time"][here].astype(np.int64) - origin).astype(np.float64)
            rate[here] = 1.0
            error[here] = ends_error[here] = tick / 2
        np.clip(np.nan_to_num(start[part], copy=False), -_FAR, _FAR, out=start[part])
        for column in (rate[part], error[part], ends_error[part]):
            column[~np.isfinite(column)] = 0.0

    each(finish, shares(len(slabs)))
    return Axis(start, rate, curve, curves, error, ends_error, origin, tick, shared, tuple(problems))


def joined_curves(axes: Sequence[Axis]) -> npt.NDArray[np.int32]:
    """The slabs' curves among those of all devices."""
    before = np.cumsum([0, *(len(axis.curves) for axis in axes)]).tolist()
    if not before[-1]:
        return np.broadcast_to(np.int32(-1), sum(len(axis.curve) for axis in axes))
    parts = [np.where(axis.curve >= 0, axis.curve + n, -1) for axis, n in zip(axes, before, strict=False)]
    return np.concatenate([*parts, np.zeros(0, np.int32)]).astype(np.int32)


def _curved(anchors: Anchors, rows: Rows, group: Int64, among: Bools, inner: InnerAnchors) -> Bools:
    """(s,) bool: the slabs among these whose group, an SM in a launch, has anchors among records.

    rows: of groups, in order of their numbers.
    """
    there = np.zeros(len(rows.first), bool)
    there[group[inner.slab]] = True
    there &= anchors.x[rows.last] > anchors.x[rows.first]
    return np.asarray(among & there[group])


def _sms(slabs: Slabs) -> Int64:
    """The slabs' SMs (s,), numbered from 0 without gaps."""
    sm = slabs.sm
    there = np.zeros(int(sm.max()) + 1, bool)

    def note(part: slice) -> None:
        there[sm[part]] = True

    each(note, shares(len(sm)))
    number = np.cumsum(there) - 1
    return filled(len(sm), np.int64, lambda part: number[sm[part]])


def _anchors(slabs: Slabs, sm: Int64, reference: Int64, origin: int) -> tuple[Anchors, Rows]:
    """The anchors of slabs (s,) on SMs `sm` (s,), and a row for each SM. reference: (sms,)."""
    if native.available():
        return _compiled_anchors(slabs, sm, reference, origin)

    def of(which: Int64) -> Anchors:
        header, ended = slabs.take(which).header, np.flatnonzero(slabs.finished[which])
        clock = np.concatenate([header["start_clock"], header["end_clock"][ended]]).astype(np.int64)
        time = np.concatenate([header["start_time"], header["end_time"][ended]]).astype(np.int64)
        width = np.concatenate([header["start_width"], header["end_width"][ended]]).astype(np.float64)
        width += 1  # the second reading may be a cycle older
        slab = np.concatenate([which, which[ended]])
        x = (clock - reference[sm[slab]]).astype(np.float64)
        anchors = Anchors(x, width, (time - origin).astype(np.float64), slab)
        return anchors.at(np.lexsort((x, sm[slab])))

    order = np.argsort(sm.astype(np.uint16), kind="stable")  # numpy sorts 16-bit keys in two passes
    parts = list(map_ahead(of, [order[where] for _, where, _ in Rows.of(sm[order]).parts()]))
    names = ("x", "width", "y", "slab")
    anchors = Anchors(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    return anchors, Rows.of(sm[anchors.slab])


def _compiled_anchors(slabs: Slabs, sm: Int64, reference: Int64, origin: int) -> tuple[Anchors, Rows]:
    begin, order = np.empty(len(reference) + 1, np.int64), np.empty(len(sm), np.int64)
    native.call("order", sm, len(sm), len(reference), begin, order)
    ended = slabs.finished
    out = 2 * begin if ended.all() else begin + np.append(0, np.cumsum(ended[order]))[begin]
    x, width, y = np.empty((3, int(out[-1])))
    anchors = Anchors(x, width, y, np.empty(int(out[-1]), np.int64))
    names = ("start_clock", "start_time", "start_width", "end_clock", "end_time", "end_width")
    inputs = *(slabs.header[name] for name in names), slabs.finished
    columns = *inputs, anchors.x, anchors.width, anchors.y, anchors.slab
    native.call("anchors", len(reference), order, begin, out, reference, origin, native.threads(), *columns)
    return anchors, Rows.starting(out[:-1], int(out[-1]))


def _per_launch(anchors: Anchors, rows: Rows, launch: Int64, tick: int) -> tuple[Float, Float, Rates, Bools]:
    """Lines with offsets per launch.

    Returns:
        Offset per row, rate per launch, bounds of the rate per launch, and whether a launch's clocks drifted, so that
        no line fits.
    """
    bounds = _rates(anchors, rows, launch, tick)
    known = bounds.close & (bounds.most >= bounds.least)
    usual = float(np.median(bounds.middle[known])) if known.any() else None
    within = Rates(bounds.least.max(keepdims=True), bounds.most.min(keepdims=True))
    # one rate for all launches if it fits: most launches are too short to bound their own
    one = np.zeros(len(launch), np.int64)
    within, rate = _narrowed(anchors, rows, one, within, usual, tick)
    if (within.least <= within.most).all():
        within, rate = within.spread(len(bounds.least)), np.broadcast_to(rate, len(bounds.least))
    else:
        within, rate = _narrowed(anchors, rows, launch, bounds, usual, tick)
    offset, misfit = _offsets(anchors, rows, rate, launch, tick)
    drifted = within.least > within.most
    drifted[launch[anchors.slab[rows.first[misfit > tick * _ROUNDING]]]] = True
    return offset, rate, bounds, drifted


def _rates(anchors: Anchors, rows: Rows, launch: Int64, tick: int) -> Rates:
    """Bounds of the rate per launch, from the first and the last anchor of every row (an SM in a launch)."""
    bounds = rate_between(anchors, rows.first, rows.last, tick)
    where, count = launch[anchors.slab[rows.first]], int(launch.max()) + 1
    return Rates(most_of(where, bounds.least, count, FASTEST), least_of(where, bounds.most, count, SLOWEST))


def _narrowed(
    anchors: Anchors, rows: Rows, launch: Int64, bounds: Rates, usual: float | None, tick: int
) -> tuple[Rates, Float]:
    """Narrow the rate's bounds per launch by all anchors, and choose a rate within.

    Lines of that rate, one per row, fit all anchors, unless the bounds contradict each other, or _ROUNDS were not
    enough.
    """
    where = launch[anchors.slab[rows.first]]
    for _ in range(_ROUNDS):
        rate = _rate_within(bounds, usual)
        after, before = tightest(anchors, rows, rate[where])
        gap = anchors.y[after] - anchors.y[before] - tick
        cycles = anchors.x[after] + anchors.width[after] - anchors.x[before]
        wrong = (gap > cycles * rate[where]) & (bounds.least <= bounds.most)[where]
        if not wrong.any():
            break
        least, most = bounds.least.copy(), bounds.most.copy()
        for which, side, take in ((cycles > 0, least, np.maximum), (cycles < 0, most, np.minimum)):
            wrong_here = wrong & which
            take.at(side, where[wrong_here], (gap / cycles)[wrong_here])
        bounds = Rates(least, most)
    return bounds, _rate_within(bounds, usual)


def _rate_within(bounds: Rates, usual: float | None) -> Float:
    """A rate within each pair of bounds: their middle if they are close, else the usual rate."""
    guess = np.sqrt(bounds.least * bounds.most) if usual is None else np.full(len(bounds.least), usual)
    within = np.clip(guess, np.minimum(bounds.least, bounds.most), np.maximum(bounds.least, bounds.most))
    return np.where(bounds.close, bounds.middle, within)


def _offsets(anchors: Anchors, rows: Rows, rates: Float, launch: Int64, tick: int) -> tuple[Float, Float]:
    """Offsets at a rate per launch: per row the middle of T's bounds, and the distance by which no T fits."""
    rate = rates[launch[anchors.slab[rows.first]]]
    after, before = tightest(anchors, rows, rate)
    least = anchors.y[after] - (anchors.x[after] + anchors.width[after]) * rate
    most = anchors.y[before] + tick - anchors.x[before] * rate
    return (least + most) / 2, np.maximum(least - most, 0.0)


def _numbered(*keys: npt.NDArray[np.generic]) -> Int64:
    """A number for each distinct tuple of keys, from 0 without gaps."""
    order = np.lexsort(keys)
    new = np.zeros(len(order), bool)
    for key in keys:
        new[1:] |= key[order[1:]] != key[order[:-1]]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new)
    return number


def _tick_seen(slabs: Slabs) -> int:
    """The timer's step according to the anchors: the greatest common divisor of their differences."""
    times = np.unique(np.concatenate([slabs.header["start_time"], slabs.header["end_time"][slabs.finished]]))
    if len(times) < 16:
        return USUAL_TICK_NS
    return int(np.clip(np.gcd.reduce(np.diff(times)), 1, 1 << 20))
