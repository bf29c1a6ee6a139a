"""What a drain costs a Python thread that launches, and what it takes beside one, without a GPU.

    PYTHONPATH=.:frontends:runtime:tests python bench/beside.py [--seconds 2]

A launch is 20 us of Python and 4 us without the interpreter's lock. Prints the time of a launch in batches of 20, each
followed by a pause, alone and beside a drain that finds little to take; how often a second the drain released the lock;
and the slabs that a drain takes a second beside launches without pause. The device's memory is this process's: its
rings are full again as soon as they are freed, and its copies to staging memory, which a GPU makes, are left out.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from typing import Any

import numpy as np
from drain import EPOCH, PER_LAUNCH, RING, entries, ring
from host_device import CompiledDriver, Direct, compiled
from unit.runtime.fake import Memory

from kscope import native
from kscope.capture import layout, wire
from kscope_runtime.arena import Arena, Lines
from kscope_runtime.device import Device
from kscope_runtime.drain import Drain

RINGS, LAUNCH_NS, PAUSE_NS, BATCH = 24, 4_000, 100_000, 20


class SameMemory(Arena):
    """The same 256 MiB again and again: without page faults."""

    kept = 0

    def reserve(self, count: int) -> Lines:
        self._used = 0 if self._used + count > (256 << 20) // layout.LINE else self._used
        return super().reserve(count)

    def keep(self, count: int) -> None:
        self.kept += count
        super().keep(count)


class Program:
    """A thread that launches."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._spin, self._loops = library.spin, 1000
        self._spin.argtypes = (ctypes.c_int64,)
        took = min(self._took() for _ in range(50))
        self._loops = int(self._loops * 20e-6 / took)

    def _took(self) -> float:
        began = time.perf_counter()
        self._python()
        return time.perf_counter() - began

    def _python(self) -> None:
        for _ in range(self._loops):
            pass

    def run(self, seconds: float, pause: bool, each: Any = lambda: None) -> list[float]:
        """Seconds that a launch took, of each batch. each: called before each launch."""
        took, until = [], time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            for _ in range(BATCH):
                each()
                self._python()
                self._spin(LAUNCH_NS)
            took.append((time.perf_counter() - began) / BATCH)
            if pause:
                self._spin(PAUSE_NS)
        return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    driver = CompiledDriver(compiled(), Direct(0, RINGS, 1 << 33))
    metal, gpu = Device(driver), driver.gpus[0]
    metal.open_pool(2 * RINGS * RING)
    drain, memory, program = Drain(metal), Memory(gpu, metal.control), Program(driver.library)
    call = native.call

    def counted(name: str, *arguments: Any) -> int:
        driver.released += 1
        return call(name, *arguments)

    native.call = counted
    units, count = ring(4, 0)
    drain.begin(EPOCH, 2 * RINGS * RING)
    memory.table[:] = entries(2, count // PER_LAUNCH + 1)
    for base in memory.stripes["base"][:RINGS].tolist():
        gpu.view(base, RING)[:] = units.reshape(-1).view(np.uint8)
    memory.stripes["head"][:RINGS] += np.uint32(RING // wire.UNIT)
    drain._passes.arena = arena = SameMemory()
    drain.opened()
    drain.start()
    time.sleep(0.2)
    launches, stripes = iter(range(1 << 60)), memory.stripes

    def claim() -> None:
        drain.wait_for_room("kernel")
        stripes["head"][next(launches) % RINGS] += np.uint32(3)

    both: tuple[list[float], list[float]] = [], []
    released, cpu = 0, 0.0
    for part in range(10):  # in turn
        if part % 2:
            drain.start()
            drain._passes.seen = time.monotonic(), True
        else:
            drain.stop()
        drain._passes.forecast.reset()
        drain._passes.forecast._each["kernel"] = 3.0  # learned
        before, used = driver.released, spent(drain)
        both[part % 2].extend(program.run(seconds / 5, pause=True, each=claim))
        if part % 2:
            released, cpu = released + driver.released - before, cpu + spent(drain) - used
    print(
        f"a launch, median and least: alone {show(both[0])}, beside the drain {show(both[1])}; a second of it: "
        f"{released / seconds:,.0f} releases, {cpu / seconds * 1e3:.1f} ms of CPU time"
    )
    driver.refill.value = 1
    memory.stripes["head"][:RINGS] = memory.stripes["limit"][:RINGS]
    time.sleep(0.2)
    driver.copies.value = 0
    before, lines, began = driver.released, arena.kept, time.perf_counter()
    used = spent(drain)
    busy = program.run(seconds, pause=False)
    used = spent(drain) - used
    slabs, wall = (arena.kept - lines) / 3, time.perf_counter() - began
    batches = slabs / count / RINGS
    print(
        f"{slabs / wall / 1e6:.1f} million slabs/s, {wall / batches * 1e3:.2f} ms and "
        f"{(driver.released - before) / batches:.0f} releases a pass of {count * RINGS:,}, "
        f"{used / batches * 1e3:.2f} ms of CPU time of the thread; a launch {show(busy)}"
    )
    driver.refill.value = 0
    drain.stop()


def spent(drain: Drain) -> float:
    """CPU time of the drain's thread, s."""
    thread = drain._thread
    return 0.0 if thread is None else time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


def show(took: list[float]) -> str:
    """Median and least, us."""
    return f"{statistics.median(took) * 1e6:.1f} ({min(took) * 1e6:.1f}) us"


if __name__ == "__main__":
    main()
