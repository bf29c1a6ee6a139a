"""The clocks of a job's GPUs against that of the first one.

    collectives   no rank leaves one before the last one has arrived: each pair of ranks has an inequality both ways
    peers         GPUs of one host were compared with the host's first rank's, by signals (kscope run --ranks)
    hosts         GPUs of one host were compared with the host's clock by each rank
    rank 0        hosts' clocks were compared with that of rank 0's host, over the network (kscope run --ranks)
    offsets       hosts' clocks follow one clock, by PTP or NTP, which measured how far they are from it

Each gives an interval that contains the true offset, so the offset is where all intervals overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...decoding.causal import Clock, Evidence, solve
from ...util.arrays import Float, Int64
from .gpus import RankGpu

_TICK = 32
"""ns: the step of %globaltimer on GPUs that can be recorded."""


@dataclass(frozen=True, eq=False)
class Placed:
    """Times of a GPU on the first GPU's clock.

    Attributes:
        time: (m,) int64 ns.
        half: (m,) their largest error because of the clocks, ns; infinite if nothing compares the two.
    """

    time: Int64
    half: Float


@dataclass(frozen=True, eq=False)
class RankClock:
    """A GPU's clock against the first GPU's.

    Attributes:
        by_collectives: the first GPU's clock, with this GPU's as the reference; None without common collectives.
        by_third: clocks that both were compared with, each as the first GPU and as this one saw it.
        contradicted: the collectives contradict those, which were dropped.
        itself: this is the first GPU.
    """

    by_collectives: Clock | None
    by_third: tuple[tuple[Clock, Clock], ...] = ()
    contradicted: bool = False
    itself: bool = False

    def place(self, time: Int64) -> Placed:
        """Times (m,) of the GPU on the first GPU's clock."""
        if self.itself:
            return Placed(time, np.zeros(len(time)))
        bounds = list[tuple[int, Float, Float]]()
        if self.by_collectives is not None:
            found = self.by_collectives.at(time)
            bounds.append((found.base, found.low, found.high))
        for first, mine in self.by_third:
            third = mine.at(time)
            there = first.at(time + third.middle - first.at(time).middle)  # nearly the third clock's time
            bounds.append((third.base - there.base, third.low - there.high, third.high - there.low))
        if not bounds:
            return Placed(time, np.full(len(time), np.inf))
        base = bounds[0][0]
        low = np.max([low + (shift - base) for shift, low, _ in bounds], axis=0)
        high = np.min([high + (shift - base) for shift, _, high in bounds], axis=0)
        middle = np.where(np.isfinite(low) & np.isfinite(high), (low + high) / 2, 0.0)
        return Placed(time + base + np.rint(middle).astype(np.int64), (high - low) / 2 + 0.5)


def align(gpus: Sequence[RankGpu], launches: Sequence[Int64]) -> list[RankClock]:
    """The clock of every GPU.

    Args:
        gpus: the GPUs.
        launches: of each, its collective launches (n,), the same ones in the same order.
    """
    thirds = _thirds(gpus)
    first = gpus[0]
    found = [RankClock(None, itself=True)]
    for number, (gpu, mine) in enumerate(zip(gpus[1:], launches[1:], strict=True), 1):
        causal = _collectives(first, launches[0], gpu, mine) if len(mine) else None
        both = tuple((thirds[0][key], thirds[number][key]) for key in thirds[0] if key in thirds[number])
        clock = RankClock(causal, both)
        if causal is not None and both and (clock.place(gpu.first[mine]).half < 0).any():
            clock = RankClock(causal, contradicted=True)  # hosts of one name, or a host's clock that was set
        found.append(clock)
    return found


def _thirds(gpus: Sequence[RankGpu]) -> list[dict[str, Clock]]:
    """For each GPU the clocks with which it was compared, each by a name, with the GPU's own as the reference."""
    found = []
    leaders = {peer.gpu: gpu for gpu in gpus if _compared(gpu) for peer in gpu.compared.peers}
    for gpu in gpus:
        own = dict[str, Clock]()
        host = _host(gpu)
        if host is not None and gpu.host:
            own[f"host {gpu.host}"] = host
        if host is not None and len(gpu.compared.rank_0_clock):
            own["rank 0's host"] = _through(host, gpu.compared.rank_0_clock)
        if host is not None and len(gpu.offsets):
            when, ahead, error = gpu.offsets.T
            own["all hosts"] = _through(host, np.stack([when, when - ahead, when], axis=1), error)
        if gpu.compared.peers and _compared(gpu):
            own[f"gpu {gpu.uuid}"] = _exact(gpu)
        elif gpu.uuid in leaders:
            own[f"gpu {leaders[gpu.uuid].uuid}"] = _by_signals(leaders[gpu.uuid], gpu)
        found.append(own)
    return found


def _compared(gpu: RankGpu) -> bool:
    """True if this is the GPU that its rank compared."""
    return gpu.compared.gpu == gpu.uuid != ""


def _exact(gpu: RankGpu) -> Clock:
    """The GPU's own clock as a third one."""
    moments = np.array([gpu.first.min(initial=1 << 62), gpu.last.max(initial=0)], np.int64)
    return solve(Evidence.clock_first(moments, moments), Evidence.reference_first(moments, moments))


def _by_signals(leader: RankGpu, gpu: RankGpu) -> Clock:
    """The leader's clock with the GPU's own as the reference."""
    parts = list[Evidence]()
    for peer in leader.compared.peers:
        if peer.gpu == gpu.uuid:
            before, after = peer.mine_first, peer.its_first
            parts.append(Evidence.clock_first(before[:, 1] + gpu.shift, before[:, 0] + leader.shift, _TICK))
            parts.append(Evidence.reference_first(after[:, 0] + gpu.shift, after[:, 1] + leader.shift, _TICK))
    return solve(*parts)


def _through(host: Clock, readings: Int64, error: Int64 | int = 0) -> Clock:
    """Another clock with the GPU's own as the reference, by that of the GPU's host.

    Args:
        host: the host's clock with the GPU's own as the reference.
        readings: (n, 3) of the host's clock, of the other one, and of the host's again, ns.
        error: largest error of the other one's readings.
    """
    before, there, after = readings.T

    def mine(time: Int64) -> tuple[Int64, Int64]:
        """The GPU's times at its host's, and their largest error."""
        guess = time - host.at(time - host.at(time).middle).middle
        found = host.at(guess)
        return time - found.middle, np.ceil(found.half).astype(np.int64) + 1

    (early, slack), (late, more) = mine(before), mine(after)
    return solve(Evidence.reference_first(early, there, slack + error), Evidence.clock_first(late, there, more + error))


def _collectives(first: RankGpu, theirs: Int64, gpu: RankGpu, mine: Int64) -> Clock:
    """The first GPU's clock with the GPU's own as the reference."""
    slack = first.error[theirs] + gpu.error[mine]
    return solve(
        Evidence.reference_first(gpu.first[mine], first.last[theirs], slack),
        Evidence.clock_first(gpu.last[mine], first.first[theirs], slack),
    )


def _host(gpu: RankGpu) -> Clock | None:
    """The host's clock with the GPU's own as the reference; None if they were never compared."""
    if not len(gpu.syncs):
        return None
    before, timer, after = gpu.syncs.T
    return solve(Evidence.clock_first(timer, before, 2 * _TICK), Evidence.reference_first(timer, after, 2 * _TICK))
