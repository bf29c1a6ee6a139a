"""Launches that wait for room in the pool."""

from __future__ import annotations

from .conftest import Bench
from .fake import Gpu, Lane
from .fake_time import Clock, Room


class Burst:
    """Lanes that have claimed nearly all of each SM's ring, of which nothing is freed before they leave."""

    def __init__(self, bench: Bench) -> None:
        self.lanes = [Lane(bench.memory, sm=block % 4, block=block).claim().begin() for block in range(80)]

    def leave(self) -> None:
        for lane in self.lanes:
            lane.leave()


def armed(clock: Clock, *gpus: Gpu) -> Bench:
    """A recording GPU with room in its pool."""
    bench = Bench(*gpus).arm()
    bench.drain._passes.room = Room(clock)
    bench.drain._passes.room.set()
    return bench


def drained(bench: Bench) -> int:
    """A pass of the drain's: bytes that it freed."""
    before, bench.driver.current = bench.driver.current, 1
    try:
        bench.drain._passes._again[:] = 0
        return bench.drain._passes.once(share=1 << 20)
    finally:
        bench.driver.current = before


def waited(bench: Bench, clock: Clock, device: int = 0) -> float:
    """For how many seconds a launch on the device waits."""
    bench.driver.current = device + 1
    before = clock.now
    bench.backend.pace()
    return clock.now - before


def looks(bench: Bench) -> int:
    """How often the pool was read."""
    return bench.driver.calls.count("read")
