"""Which rank came last to a collective, what made it late, and which ranks are late overall."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...util.arrays import Float, Int64
from ...util.text import counted, some
from .clocks import RankClock, align
from .collectives import collective, common
from .gpus import RankGpu

BETWEEN = "between launches"
"""The time in no recorded launch."""
_Z = 1.96


@dataclass(frozen=True)
class Cause:
    """Excess time of a rank over the median rank since the previous collective.

    Attributes:
        kernel, region: the kernel and its region; both are BETWEEN for time in no recorded launch.
        more_ns: the excess.
    """

    kernel: str
    region: str
    more_ns: float


@dataclass(frozen=True)
class Arrival:
    """A launch of a collective on all ranks.

    Attributes:
        kernel: its name.
        ordinal: index of the launch among this kernel's.
        skew_ns: from the first arrival to the last.
        bound_ns: largest error of the skew.
        last: the last rank to arrive.
        sure: no other rank can have arrived later, given the bound.
        cause: the cause of its delay; None for the first collective, before which nothing is comparable.
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
    """A rank and its delay.

    Attributes:
        rank, device: the GPU.
        late_ns: mean of its arrival minus the median rank's.
        low_ns, high_ns: 95 % interval of that mean, widened by the clocks' bound.
        last: number of launches to which it came last.
        cause: its most frequent cause; "" for none.
        bound_ns: largest error of its clock against the first rank's.
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
    """The result of `kscope ranks`.

    Attributes:
        arrivals: the launches of collectives, in order.
        stragglers: all GPUs, the latest first.
        bound_ns: the largest bound of any GPU's clock.
        problems: problems for readers.
    """

    arrivals: tuple[Arrival, ...]
    stragglers: tuple[Straggler, ...]
    bound_ns: float
    problems: tuple[str, ...]


def report(gpus: Sequence[RankGpu], globs: Sequence[str] = ()) -> RankReport:
    """Compare the ranks of a run.

    Args:
        gpus: the GPUs of the ranks.
        globs: names of collective kernels; without, COLLECTIVES.

    Raises:
        UsageError: fewer than two GPUs, no collective, or counts that differ between ranks.
    """
    launches = common(gpus, collective(globs))
    clocks = align(gpus, launches)
    begin, half = _placed(gpus, launches, clocks, "first")
    end, _ = _placed(gpus, launches, clocks, "last")
    error = np.array([gpu.error[mine] for gpu, mine in zip(gpus, launches, strict=True)], np.float64)
    half = half + error
    first, last, order = begin.argmin(axis=0), begin.argmax(axis=0), np.sort(begin, axis=0)
    causes = _causes(gpus, launches, last)
    names = [gpus[0].kernels[one] for one in gpus[0].kernel[launches[0]].tolist()]
    count, arrivals = Counter[str](), []
    for at, name in enumerate(names):
        who = int(last[at])
        others = np.delete(begin[:, at] + half[:, at], who).max()
        arrivals.append(Arrival(
            name, count[name], float(order[-1, at] - order[0, at]), float(half[who, at] + half[first[at], at]),
            gpus[who].rank, bool(begin[who, at] - half[who, at] > others), causes[at],
            float((order[-1, at] - begin[:, at]).mean()), float(max(0.0, end[:, at].max() - order[-1, at])),
        ))  # fmt: skip
        count[name] += 1
    return RankReport(
        tuple(arrivals), _stragglers(gpus, begin, half, last, causes), float(half.max()), _problems(gpus, clocks)
    )


def _placed(
    gpus: Sequence[RankGpu], launches: Sequence[Int64], clocks: Sequence[RankClock], what: str
) -> tuple[Float, Float]:
    """(gpus, n) times on the first GPU's clock, ns after its first launch, and their bounds."""
    base = int(gpus[0].first[launches[0][0]])
    found = [clock.place(getattr(gpu, what)[mine]) for gpu, mine, clock in zip(gpus, launches, clocks, strict=True)]
    return np.array([one.time - base for one in found], np.float64), np.array([one.half for one in found])


def _causes(gpus: Sequence[RankGpu], launches: Sequence[Int64], last: Int64) -> list[Cause | None]:
    """For each collective, the excess time of its last rank over the median rank since the previous collective."""
    count = len(last)
    table: dict[tuple[str, str], Float] = {}

    def cells(kernel: str, region: str) -> Float:
        return table.setdefault((kernel, region), np.zeros((len(gpus), count)))

    for row, (gpu, mine) in enumerate(zip(gpus, launches, strict=True)):
        following = np.searchsorted(mine, np.arange(len(gpu.first)))  # the collective after each launch, or itself
        between = ~np.isin(np.arange(len(gpu.first)), mine) & (following > 0) & (following < count)
        spent, apart = np.zeros((2, count))
        np.add.at(spent, following[between], (gpu.last - gpu.first)[between])
        apart[1:] = gpu.first[mine[1:]] - gpu.last[mine[:-1]]
        cells(BETWEEN, BETWEEN)[row] = np.maximum(apart - spent, 0)
        keys = gpu.kernel[gpu.launch] * max(1, len(gpu.regions)) + gpu.region
        kept = between[gpu.launch]
        for key in np.unique(keys[kept]).tolist():
            kernel, region = divmod(key, max(1, len(gpu.regions)))
            at = np.flatnonzero(kept & (keys == key))
            np.add.at(cells(gpu.kernels[kernel], gpu.regions[region])[row], following[gpu.launch[at]], gpu.own[at])
    names = list(table)
    excess = np.array([table[name][last, np.arange(count)] - _median(table[name]) for name in names])
    worst = excess.argmax(axis=0)
    return [
        Cause(*names[int(which)], float(excess[which, at])) if at and excess[which, at] > 0 else None
        for at, which in enumerate(worst.tolist())
    ]


def _median(of_ranks: Float) -> Float:
    """The median rank's, (n,) of (ranks, n); for two ranks the lower one, so that they are compared with each other."""
    middle: Float = np.sort(of_ranks, axis=0)[(len(of_ranks) - 1) // 2]
    return middle


def _stragglers(
    gpus: Sequence[RankGpu], begin: Float, half: Float, last: Int64, causes: Sequence[Cause | None]
) -> tuple[Straggler, ...]:
    late = begin - _median(begin)
    count = late.shape[1]
    spread = late.std(axis=1, ddof=1) / np.sqrt(count) * _Z if count > 1 else np.full(len(gpus), np.inf)
    found = []
    for row, gpu in enumerate(gpus):
        blamed = Counter(f"{one.kernel}: {one.region}" if one.kernel != BETWEEN else BETWEEN for at, one in
                         enumerate(causes) if one is not None and last[at] == row)  # fmt: skip
        mean, wide = float(late[row].mean()), float(spread[row] + half[row].mean())
        cause = blamed.most_common(1)[0][0] if blamed else ""
        found.append(Straggler(
            gpu.rank, gpu.device, mean, mean - wide, mean + wide, int((last == row).sum()), cause,
            float(half[row].max()),
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda one: -one.late_ns))


def _problems(gpus: Sequence[RankGpu], clocks: Sequence[RankClock]) -> tuple[str, ...]:
    apart = [gpu.rank for gpu, clock in zip(gpus, clocks, strict=True) if clock.contradicted]
    jumps = sum(clock.by_collectives.jumps for clock in clocks if clock.by_collectives is not None)
    found = []
    if apart:
        found.append(
            f"ranks {some([str(one) for one in apart], 8)}: their host has the name of rank {gpus[0].rank}'s and "
            "another clock, or its clock was set: they are compared by collectives only"
        )
    if jumps:
        found.append(f"clocks of ranks jumped {counted(jumps, 'time')}: times around that are less certain")
    return tuple(found)
