"""mbarriers, bulk copies and groups of copies of the simulated machine, which know when each phase was over.

Copies land later, after a drawn time. Threads share one clock, which every access and every clock read advances.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random

M32 = 0xFFFFFFFF


@dataclass(eq=False)
class Barrier:
    """count: arrivals of a phase. over: when each phase was over."""

    count: int
    missing: int = 0
    bytes: int = 0
    over: list[int] = field(default_factory=list)
    earlier: list[list[int]] = field(default_factory=list)
    """`over` of the initializations before."""

    def settle(self, now: int) -> None:
        while self.missing <= 0 == self.bytes:
            assert self.missing == 0, "more arrivals than the barrier counts"
            self.over.append(now)
            self.missing = self.count


class Barriers:
    """The barriers of a launch, by block and address.

    Args:
        seed: draws when copies land.
        latency: the shortest and the longest time of a copy, in ticks.
    """

    def __init__(self, seed: int = 0, latency: tuple[int, int] = (1, 60)) -> None:
        self.now = 0
        self.random, self.latency = Random(seed), latency
        self.all: dict[tuple[tuple[int, ...], int], Barrier] = {}
        self._flying: list[tuple[int, int, Barrier, int]] = []
        self._number = 0
        self.groups: dict[tuple[int, ...], list[int]] = {}
        """When each group of a thread had landed, by the thread's key."""
        self._issued: dict[tuple[int, ...], int] = {}

    def tick(self, step: int = 1) -> int:
        self.now += step
        return self.now

    def _at(self, thread, address: int) -> Barrier:
        self.tick()
        while self._flying and self._flying[0][0] <= self.now:
            when, _, barrier, size = heapq.heappop(self._flying)
            barrier.bytes -= size
            barrier.settle(when)
        return self.all[thread.key[:3], address & M32]

    def init(self, thread, address: int, count: int) -> None:
        key = thread.key[:3], address & M32
        before = self.all.get(key)
        self.all[key] = made = Barrier(count, count)
        if before is not None:
            made.earlier = [*before.earlier, before.over]

    def arrive(self, thread, address: int, count: int = 1, expected: int = 0) -> None:
        barrier = self._at(thread, address)
        barrier.bytes += expected
        barrier.missing -= count
        barrier.settle(self.now)

    def copy(self, thread, address: int, size: int) -> None:
        barrier = self._at(thread, address)
        self._number += 1
        heapq.heappush(self._flying, (self.now + self.random.randint(*self.latency), self._number, barrier, size))

    def test(self, thread, address: int, parity: int) -> int:
        return int(len(self._at(thread, address).over) % 2 != parity)

    def issue(self, thread) -> None:
        """A copy of the thread's next group."""
        lands = self.tick() + self.random.randint(*self.latency)
        self._issued[thread.key] = max(self._issued.get(thread.key, 0), lands)

    def commit(self, thread) -> None:
        self.groups.setdefault(thread.key, []).append(max(self.tick(), self._issued.pop(thread.key, 0)))

    def wait(self, thread, left: int) -> None:
        groups = self.groups.get(thread.key, [])
        self.now = max(self.tick(), *groups[: max(0, len(groups) - left)], 0)

    def settled(self) -> None:
        """After the launch: every copy has landed."""
        for when, _, barrier, size in sorted(self._flying):
            barrier.bytes -= size
            barrier.settle(when)
        self._flying.clear()
