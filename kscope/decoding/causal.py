"""Bounds on the difference of two clocks that the order of events proves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..util.arrays import Bools, Float, Int64

MOST_RATE = 5e-4
"""Clocks drift apart by at most this much: oscillators by some 10 ppm, a host's clock that NTP corrects by 500 ppm."""
_ROUNDING = 1 / 64
"""ns by which bounds are widened, and tolerance of a line's fit: float64 rounds."""
_BEFORE_ALL, _AFTER_ALL = -(1 << 63), (1 << 63) - 1
_PART = 1 / 8
"""A pass that removes a smaller part of the points is the last one; the rest is done point by point."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Inequalities on d, (n,): at reference `time`, d is at most `value` where `upper`, else at least; int64 ns.

    A clock is ahead of the reference by d(t) at the reference's time t, and d is a line: an offset and a rate. "This
    happened before that", with one reading on each clock, is an inequality on d:

        the reference's event r first, then the clock's event c     d(r) <= c - r
        the clock's event c first, then the reference's event r     d(r) >= c - r

    Readings are whole ns: differences are taken in int64, because float64 holds UNIX ns only to 256 ns.
    """

    time: Int64
    value: Int64
    upper: Bools

    def __len__(self) -> int:
        return len(self.time)

    @staticmethod
    def reference_first(reference: Int64, clock: Int64, slack: Int64 | int = 0) -> Evidence:
        """Events on the reference that happened before others on the clock.

        Args:
            reference, clock: (n,) int64 ns, the readings.
            slack: ns by which both readings together may be wrong: the clocks' steps, or a bound of a fit.
        """
        return Evidence(reference, clock - reference + slack, np.ones(len(reference), bool))

    @staticmethod
    def clock_first(reference: Int64, clock: Int64, slack: Int64 | int = 0) -> Evidence:
        """Events on the reference that happened after others on the clock; arguments as for reference_first()."""
        return Evidence(reference, clock - reference - slack, np.zeros(len(reference), bool))

    @staticmethod
    def joined(*parts: Evidence) -> Evidence:
        """All inequalities of the parts."""
        return Evidence(
            np.concatenate([one.time for one in parts]),
            np.concatenate([one.value for one in parts]),
            np.concatenate([one.upper for one in parts]),
        )


@dataclass(frozen=True, eq=False)
class Interval:
    """Bounds of d at times (m,): base + low to base + high, ns; infinite where nothing bounds it."""

    base: int
    low: Float
    high: Float

    @property
    def middle(self) -> Int64:
        """(m,) int64 ns; for a half-open interval its end."""
        low = np.where(np.isfinite(self.low), self.low, self.high)
        high = np.where(np.isfinite(self.high), self.high, low)
        return self.base + np.rint(np.nan_to_num((low + high) / 2, posinf=0.0, neginf=0.0)).astype(np.int64)

    @property
    def half(self) -> Float:
        """(m,) the most by which `middle` is wrong, ns."""
        return np.asarray((self.high - self.low) / 2 + 0.5)


@dataclass(frozen=True, eq=False)
class _Hull:
    """The lower hull of points: times (h,) and values (h,), and the h - 1 slopes between them, which rise."""

    time: Float
    value: Float
    slope: Float

    def lowest(self, rate: Float) -> Float:
        """The least value - rate * time of all points, at rates (m,); infinite without points."""
        if not len(self.time):
            return np.full(len(rate), np.inf)
        at = np.searchsorted(self.slope, rate)
        found = self.value[at] - rate * self.time[at]
        return np.asarray(found)

    def under(self, time: Float, least: float, most: float) -> Float:
        """At times (m,) the highest line under all points, with a rate from `least` to `most`."""
        steps = np.concatenate([[-np.inf], self.slope, [np.inf]])
        rate = np.clip(steps[np.searchsorted(self.time, time, side="right")], least, most)
        return np.asarray(self.lowest(rate) + rate * time)


@dataclass(frozen=True, eq=False)
class Piece:
    """A time without a jump.

    Attributes:
        first, last: the reference's time of its first and last event.
        events: number of inequalities that bound it; 0 between two jumps without any event that is certainly
            between them.
        rate: the least and the most drift of the clock against the reference, in ns per ns.
        origin, base: of the hulls' times and values.
        rounding: ns by which bounds are widened.
        above, below: the hulls; below one with the sign of its values changed.
    """

    first: int
    last: int
    events: int
    rate: tuple[float, float]
    origin: int
    base: int
    rounding: float
    above: _Hull
    below: _Hull

    def at(self, time: Int64, base: int) -> tuple[Float, Float]:
        """(low, high) of d minus base at times (m,) of the reference."""
        after, shift = (time - self.origin).astype(np.float64), float(self.base - base)
        high = self.above.under(after, *self.rate) + self.rounding + shift
        low = -self.below.under(after, -self.rate[1], -self.rate[0]) - self.rounding + shift
        return low, high


@dataclass(frozen=True, eq=False)
class Clock:
    """The bounds of a clock.

    Attributes:
        pieces: in order of time; more than one if it jumped.
    """

    pieces: tuple[Piece, ...]

    @property
    def jumps(self) -> int:
        """Least number of jumps of the clock."""
        return len(self.pieces) - 1

    def at(self, time: Int64) -> Interval:
        """How far the clock is ahead at times (m,) of the reference, int64 ns. Where the clock may or may not have
        jumped, both are possible.
        """
        base = self.pieces[0].base
        low, high = np.full(len(time), np.inf), np.full(len(time), -np.inf)
        ends = [_BEFORE_ALL, *(piece.last for piece in self.pieces[:-1])]
        begins = [*(piece.first for piece in self.pieces[1:]), _AFTER_ALL]
        for piece, end, begin in zip(self.pieces, ends, begins, strict=True):
            at = np.flatnonzero((time > end) & (time < begin))
            least, most = piece.at(time[at], base)
            low[at], high[at] = np.minimum(low[at], least), np.maximum(high[at], most)
        return Interval(base, low, high)


def solve(*parts: Evidence, most_rate: float = MOST_RATE) -> Clock:
    """Find the bounds that the evidence proves.

    The lines that satisfy all inequalities pass below the lower hull of the first kind and above the upper hull of the
    second. At a rate b they lie within max(c - r - b t) and min(c - r - b t), which is concave in b, so the rates are
    an interval; and at a time the highest line touches the hull there, or has the nearest rate of that interval: exact
    bounds. If no line satisfies all, a clock jumped. The evidence is then cut in time into as few pieces as possible. A
    jump is somewhere between its earliest and its latest possible place; inequalities between them are evidence for
    neither side.

    Args:
        parts: the inequalities, at least one, in any order.
        most_rate: the clocks drift apart by at most this much, ns per ns.
    """
    evidence = Evidence.joined(*parts)
    whole = _piece(evidence, most_rate)
    if whole is not None:
        return Clock((whole,))
    order = np.argsort(evidence.time, kind="stable")
    sorted_ = Evidence(evidence.time[order], evidence.value[order], evidence.upper[order])
    backward = Evidence(-sorted_.time[::-1], sorted_.value[::-1], sorted_.upper[::-1])
    latest = _cuts(sorted_, most_rate)
    earliest = [len(order) - cut for cut in reversed(_cuts(backward, most_rate))]
    begins, ends = [0, *latest], [*earliest, len(order)]
    pieces = []
    for begin, end in zip(begins, ends, strict=True):
        piece = _piece(_part(sorted_, begin, max(begin, end)), most_rate, int(sorted_.time[min(begin, end)]))
        assert piece is not None  # it is part of a prefix that has a line
        pieces.append(piece)
    return Clock(tuple(pieces))


def _part(evidence: Evidence, begin: int, end: int) -> Evidence:
    return Evidence(evidence.time[begin:end], evidence.value[begin:end], evidence.upper[begin:end])


def _cuts(evidence: Evidence, most_rate: float) -> list[int]:
    """The latest places (pieces - 1,) where evidence in order of time may be cut into as few pieces as possible."""
    cuts, begin, count = list[int](), 0, len(evidence)
    while begin < count:
        good, step = begin + 1, 1  # a single inequality has a line
        while good < count:  # doubling, then bisection
            end = min(begin + 2 * step, count)
            if _piece(_part(evidence, begin, end), most_rate) is None:
                bad = end
                while bad - good > 1:
                    middle = (good + bad) // 2
                    fits = _piece(_part(evidence, begin, middle), most_rate) is not None
                    good, bad = (middle, bad) if fits else (good, middle)
                break
            good, step = end, 2 * step
        cuts.append(good)
        begin = good
    return cuts[:-1]


def _piece(evidence: Evidence, most_rate: float, moment: int = 0) -> Piece | None:
    """All lines that satisfy the evidence; None if there is none. moment: the piece's time if it has no evidence."""
    count = len(evidence)
    origin, base = (int(evidence.time[0]), int(evidence.value[0])) if count else (moment, 0)
    time, value = (evidence.time - origin).astype(np.float64), (evidence.value - base).astype(np.float64)
    upper = evidence.upper
    above, below = _hull(time[upper], value[upper]), _hull(time[~upper], -value[~upper])
    size = np.abs(time).max(initial=0.0) * most_rate + np.abs(value).max(initial=0.0)
    rounding = _ROUNDING + float(size) * 2.0**-48
    rate = _rates(above, below, most_rate, rounding)
    if rate is None:
        return None
    first, last = origin + int(time.min(initial=0.0)), origin + int(time.max(initial=0.0))
    return Piece(first, last, count, rate, origin, base, rounding, above, below)


def _rates(above: _Hull, below: _Hull, most_rate: float, rounding: float) -> tuple[float, float] | None:
    """The least and the most rate of a line below one hull and above the other."""
    inner = np.concatenate([above.slope, -below.slope])
    rate = np.unique(np.append(inner[np.abs(inner) < most_rate], [-most_rate, most_rate]))
    room = above.lowest(rate) + below.lowest(-rate) + rounding
    fits = np.flatnonzero(room >= 0)  # room is concave and straight between these rates
    if not len(fits):
        return None
    least, most = _zero(rate, room, fits[0], fits[0] - 1), _zero(rate, room, fits[-1], fits[-1] + 1)
    return least, most


def _zero(rate: Float, room: Float, inside: int, outside: int) -> float:
    """The rate, between one that fits and its neighbor that does not, at which the room is 0."""
    if not 0 <= outside < len(rate):
        return float(rate[inside])
    part = room[inside] / (room[inside] - room[outside])
    return float(rate[inside] + part * (rate[outside] - rate[inside]))


def _hull(time: Float, value: Float) -> _Hull:
    """The lower hull of points (n,)."""
    order = np.lexsort((value, time))
    time, value = time[order], value[order]
    first = np.diff(time, prepend=-np.inf) > 0
    time, value = time[first], value[first]
    part = 1.0
    while len(time) > 2 and part >= _PART:  # a point above a line between two others is none of the hull's
        slope = np.diff(value) / np.diff(time)
        kept = np.concatenate([[True], slope[1:] > slope[:-1], [True]])
        part = 1 - float(kept.mean())
        time, value = time[kept], value[kept]
    if part > 0 and len(time) > 2:
        time, value = _chain(time, value)
    return _Hull(time, value, np.diff(value) / np.diff(time))


def _chain(time: Float, value: Float) -> tuple[Float, Float]:
    """The same, point by point."""
    found: list[tuple[float, float]] = []
    for t, v in zip(time.tolist(), value.tolist(), strict=True):
        while len(found) > 1:
            (t0, v0), (t1, v1) = found[-2:]
            if (v1 - v0) * (t - t1) < (v - v1) * (t1 - t0):
                break
            found.pop()
        found.append((t, v))
    columns = np.array(found)
    return columns[:, 0], columns[:, 1]
