"""The clocks of a job's GPUs against that of the first one.

    collectives   no rank leaves one before the last one has arrived: each pair of ranks has an inequality both ways
    hosts         GPUs of one host were compared with the host's clock by each rank

Both are intervals that hold the truth, so it is where they overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..decoding.causal import Clock, Evidence, solve
from .seats import Seat

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Placed:
    """Times of a seat on the first seat's clock.

    Attributes:
        time: (m,) int64 ns.
        half: (m,) the most by which they are wrong because of the clocks, ns; infinite if nothing compares the two.
    """

    time: Int64
    half: Float


@dataclass(frozen=True, eq=False)
class RankClock:
    """A seat's clock against the first seat's.

    Attributes:
        by_collectives: the first seat's clock, with this seat's as the reference; None without common collectives.
        by_host: the host's clock, as the first seat's GPU and as this one's sees it; None on different hosts.
        apart: the two contradict each other, and `by_host` was dropped.
    """

    by_collectives: Clock | None
    by_host: tuple[Clock, Clock] | None
    apart: bool = False
    itself: bool = False

    def place(self, time: Int64) -> Placed:
        """Times (m,) of the seat on the first seat's clock."""
        if self.itself:
            return Placed(time, np.zeros(len(time)))
        bounds = []
        base = 0
        if self.by_collectives is not None:
            found = self.by_collectives.at(time)
            base = found.base
            bounds.append((found.low, found.high))
        if self.by_host is not None:
            first, mine = self.by_host
            host = mine.at(time)
            there = first.at(time + host.middle - _near(first, time))
            shift = host.base - there.base
            base = shift if self.by_collectives is None else base
            bounds.append((host.low - there.high + (shift - base), host.high - there.low + (shift - base)))
        if not bounds:
            return Placed(time, np.full(len(time), np.inf))
        low = np.max([one for one, _ in bounds], axis=0)
        high = np.min([one for _, one in bounds], axis=0)
        middle = np.where(np.isfinite(low) & np.isfinite(high), (low + high) / 2, 0.0)
        return Placed(time + base + np.rint(middle).astype(np.int64), (high - low) / 2 + 0.5)


def _near(clock: Clock, time: Int64) -> Int64:
    """By how much the host is ahead of a clock, roughly: what turns its time into the clock's."""
    return clock.at(time).middle


def align(seats: Sequence[Seat], launches: Sequence[Int64]) -> list[RankClock]:
    """The clock of every seat.

    Args:
        seats: the seats.
        launches: of each, its collective launches (n,), the same ones in the same order.
    """
    hosts = [_host(seat) for seat in seats]
    first = seats[0]
    found = [RankClock(None, None, itself=True)]
    for seat, mine, host in zip(seats[1:], launches[1:], hosts[1:], strict=True):
        causal = _collectives(first, launches[0], seat, mine) if len(mine) else None
        same = seat.host == first.host != "" and host is not None and hosts[0] is not None
        clock = RankClock(causal, (hosts[0], host) if same and hosts[0] is not None and host is not None else None)
        if causal is not None and clock.by_host is not None and (clock.place(seat.first[mine]).half < 0).any():
            clock = RankClock(causal, None, apart=True)  # hosts of one name, or a host's clock that was set
        found.append(clock)
    return found


def _collectives(first: Seat, theirs: Int64, seat: Seat, mine: Int64) -> Clock:
    """The first seat's clock with the seat's own as the reference."""
    slack = first.error[theirs] + seat.error[mine]
    return solve(
        Evidence.joined(
            Evidence.reference_first(seat.first[mine], first.last[theirs], slack),
            Evidence.clock_first(seat.last[mine], first.first[theirs], slack),
        )
    )


def _host(seat: Seat) -> Clock | None:
    """The host's clock with the seat's own as the reference; None if they were never compared."""
    if not len(seat.syncs):
        return None
    before, timer, after = seat.syncs.T
    return solve(Evidence.joined(Evidence.clock_first(timer, before, 64), Evidence.reference_first(timer, after, 64)))
