"""Which rank came last to a collective, what made it late, and who is late on the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..util.text import counted, some
from .rank_clocks import RankClock, align
from .seats import Seat

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

COLLECTIVES = (
    "*all_reduce*", "*allreduce*", "*all_gather*", "*allgather*", "*reduce_scatter*", "*reducescatter*", "*all_to_all*",
    "*alltoall*", "*barrier*",
)  # fmt: skip
"""Kernels that no rank leaves before the last one has arrived."""
BETWEEN = "between launches"
"""The time in no recorded launch."""
_Z = 1.96


@dataclass(frozen=True)
class Cause:
    """What took a rank longer than the median rank since the collective before.

    Attributes:
        kernel, region: the kernel and its region; both are BETWEEN for time in no recorded launch.
        more_ns: by how much.
    """

    kernel: str
    region: str
    more_ns: float


@dataclass(frozen=True)
class Arrival:
    """A launch of a collective on all ranks.

    Attributes:
        kernel: its name.
        ordinal: which of this kernel's launches, from 0.
        skew_ns: from the first arrival to the last.
        bound_ns: the most by which the skew is wrong.
        last: the rank that came last.
        sure: no other rank can have come later, given the bound.
        cause: what made it late; None for the first collective, before which nothing is comparable.
        wait_ns: mean time from a rank's arrival to the last arrival.
        transfer_ns: from the last arrival to the last end.
    """

    kernel: str
    ordinal: int
    skew_ns: float
    bound_ns: float
    last: int
    sure: bool
    cause: Cause | None
    wait_ns: float
    transfer_ns: float


@dataclass(frozen=True)
class Straggler:
    """A rank, and how late it is.

    Attributes:
        rank, device: the GPU.
        late_ns: mean of its arrival minus the median rank's.
        low_ns, high_ns: 95 % interval of that mean, widened by the clocks' bound.
        last: of how many launches it came last.
        cause: what it was blamed for most often; "" for nothing.
        bound_ns: the most by which its clock is wrong against the first rank's.
    """

    rank: int
    device: int
    late_ns: float
    low_ns: float
    high_ns: float
    last: int
    cause: str
    bound_ns: float


@dataclass(frozen=True)
class RankReport:
    """The answer of `kscope ranks`.

    Attributes:
        arrivals: the launches of collectives, in order.
        stragglers: all GPUs, the latest first.
        bound_ns: the largest bound of any GPU's clock.
        problems: what a reader must know.
    """

    arrivals: tuple[Arrival, ...]
    stragglers: tuple[Straggler, ...]
    bound_ns: float
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain dicts and lists, ready for JSON."""
        return asdict(self)


def collective(globs: Sequence[str] = ()) -> Callable[[str], bool]:
    """Whether a kernel's name is that of a collective."""
    patterns = tuple(globs) or COLLECTIVES
    return lambda name: any(fnmatchcase(name.lower() if not globs else name, pattern) for pattern in patterns)


def report(seats: Sequence[Seat], globs: Sequence[str] = ()) -> RankReport:
    """Compare the ranks of a run.

    Args:
        seats: the GPUs of the ranks.
        globs: names of collective kernels; without, COLLECTIVES.

    Raises:
        UsageError: fewer than two GPUs, no collective, or counts that differ between ranks.
    """
    launches = common(seats, collective(globs))
    clocks = align(seats, launches)
    begin, half = _placed(seats, launches, clocks, "first")
    end, _ = _placed(seats, launches, clocks, "last")
    error = np.array([seat.error[mine] for seat, mine in zip(seats, launches, strict=True)], np.float64)
    half = half + error
    first, last, order = begin.argmin(axis=0), begin.argmax(axis=0), np.sort(begin, axis=0)
    causes = _causes(seats, launches, last)
    names = [seats[0].kernels[one] for one in seats[0].kernel[launches[0]].tolist()]
    count, arrivals = Counter[str](), []
    for at, name in enumerate(names):
        who = int(last[at])
        others = np.delete(begin[:, at] + half[:, at], who).max()
        arrivals.append(
            Arrival(
                name, count[name], float(order[-1, at] - order[0, at]), float(half[who, at] + half[first[at], at]),
                seats[who].rank, bool(begin[who, at] - half[who, at] > others), causes[at],
                float((order[-1, at] - begin[:, at]).mean()), float(max(0.0, end[:, at].max() - order[-1, at])),
            )
        )  # fmt: skip
        count[name] += 1
    return RankReport(
        tuple(arrivals), _stragglers(seats, begin, half, last, causes), float(half.max()), _problems(seats, clocks)
    )


def common(seats: Sequence[Seat], names: Callable[[str], bool]) -> list[Int64]:
    """The collective launches (n,) of each seat: the same kernels in the same order.

    Raises:
        UsageError: fewer than two seats, no collective, or ranks that differ.
    """
    if len(seats) < 2:
        raise UsageError(f"{counted(len(seats), 'GPU')} recorded: ranks are compared from two on")
    found = [seat.of(names) for seat in seats]
    if not len(found[0]):
        kernels = sorted({name for seat in seats for name in seat.kernels})
        raise UsageError(
            f"no collective kernel was recorded; recorded were {some(kernels, 8)}: name those that no rank leaves "
            "before the last one has arrived with --collective GLOB"
        )
    wanted = [seats[0].kernels[one] for one in seats[0].kernel[found[0]].tolist()]
    for seat, mine in zip(seats, found, strict=True):
        have = [seat.kernels[one] for one in seat.kernel[mine].tolist()]
        if have != wanted:
            raise UsageError(
                f"rank {seats[0].rank} recorded {counted(len(wanted), 'launch')} of collectives and rank {seat.rank} "
                f"{counted(len(have), 'launch')}{' in another order' * (len(have) == len(wanted))}: all ranks must "
                "record the same ones; begin after a barrier"
            )
    return found


def _placed(
    seats: Sequence[Seat], launches: Sequence[Int64], clocks: Sequence[RankClock], what: str
) -> tuple[Float, Float]:
    """(seats, n) times on the first seat's clock, ns after its first launch, and their bounds."""
    base = int(seats[0].first[launches[0][0]])
    found = [clock.place(getattr(seat, what)[mine]) for seat, mine, clock in zip(seats, launches, clocks, strict=True)]
    return np.array([one.time - base for one in found], np.float64), np.array([one.half for one in found])


def _causes(seats: Sequence[Seat], launches: Sequence[Int64], last: Int64) -> list[Cause | None]:
    """For each collective, what took its last rank longer than the median rank since the collective before."""
    count = len(last)
    table: dict[tuple[str, str], Float] = {}

    def cells(kernel: str, region: str) -> Float:
        return table.setdefault((kernel, region), np.zeros((len(seats), count)))

    for row, (seat, mine) in enumerate(zip(seats, launches, strict=True)):
        turn = np.searchsorted(mine, np.arange(len(seat.first)))  # the collective that follows each launch, or itself
        own = np.isin(np.arange(len(seat.first)), mine)
        spent = np.zeros(count)
        inside = np.flatnonzero(~own & (turn < count) & (turn > 0))
        np.add.at(spent, turn[inside], (seat.last - seat.first)[inside])
        apart = np.zeros(count)
        apart[1:] = seat.first[mine[1:]] - seat.last[mine[:-1]]
        cells(BETWEEN, BETWEEN)[row] = np.maximum(apart - spent, 0)
        keys = seat.kernel[seat.launch] * max(1, len(seat.regions)) + seat.region
        kept = ~own[seat.launch] & (turn[seat.launch] < count) & (turn[seat.launch] > 0)
        for key in np.unique(keys[kept]).tolist():
            kernel, region = divmod(key, max(1, len(seat.regions)))
            at = np.flatnonzero(kept & (keys == key))
            np.add.at(cells(seat.kernels[kernel], seat.regions[region])[row], turn[seat.launch[at]], seat.own[at])
    names = list(table)
    excess = np.array([table[name][last, np.arange(count)] - np.median(table[name], axis=0) for name in names])
    worst = excess.argmax(axis=0)
    return [
        Cause(*names[int(which)], float(excess[which, at])) if at and excess[which, at] > 0 else None
        for at, which in enumerate(worst.tolist())
    ]


def _stragglers(
    seats: Sequence[Seat], begin: Float, half: Float, last: Int64, causes: Sequence[Cause | None]
) -> tuple[Straggler, ...]:
    late = begin - np.median(begin, axis=0)
    count = late.shape[1]
    spread = late.std(axis=1, ddof=1) / np.sqrt(count) * _Z if count > 1 else np.full(len(seats), np.inf)
    found = []
    for row, seat in enumerate(seats):
        blamed = Counter(f"{one.kernel}: {one.region}" if one.kernel != BETWEEN else BETWEEN for at, one in
                         enumerate(causes) if one is not None and last[at] == row)  # fmt: skip
        mean, wide = float(late[row].mean()), float(spread[row] + half[row].mean())
        cause = blamed.most_common(1)[0][0] if blamed else ""
        found.append(
            Straggler(
                seat.rank, seat.device, mean, mean - wide, mean + wide, int((last == row).sum()), cause,
                float(half[row].max()),
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda one: -one.late_ns))


def _problems(seats: Sequence[Seat], clocks: Sequence[RankClock]) -> tuple[str, ...]:
    apart = [seat.rank for seat, clock in zip(seats, clocks, strict=True) if clock.apart]
    jumps = sum(clock.by_collectives.jumps for clock in clocks if clock.by_collectives is not None)
    found = []
    if apart:
        found.append(
            f"ranks {some([str(one) for one in apart], 8)}: their host has the name of rank {seats[0].rank}'s and "
            "another clock, or its clock was set: they are compared by collectives only"
        )
    if jumps:
        found.append(f"clocks of ranks jumped {counted(jumps, 'time')}: times around that are less certain")
    return tuple(found)
