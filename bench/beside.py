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
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from drain import EPOCH, PER_LAUNCH, RING, entries, ring
from unit.runtime.fake import FakeDriver, Gpu, Memory

from kscope import native
from kscope.capture import wire
from kscope_runtime.arena import Arena, Lines
from kscope_runtime.device import Device
from kscope_runtime.drain import Drain
from kscope_runtime.entry_points import EntryPoints

RINGS, LAUNCH_NS, PAUSE_NS, BATCH = 24, 4_000, 100_000, 20
SOURCE = """
#include <stdint.h>
#include <string.h>
#include <time.h>

int32_t refill; /* whether rings are full again as soon as they are freed */

void spin(int64_t ns)
{
    struct timespec now, from;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < ns);
}

int copy(char *to, const char *from, uint64_t size, uint64_t stream)
{
    if (size < 2 << 20 || memcmp(to, from, 32) || memcmp(to + size - 32, from + size - 32, 32))
        memcpy(to, from, size);
    return (int)(stream & 0);
}

int keep(uint64_t to, uint64_t from, uint64_t size, uint64_t stream)
{
    return (int)((to ^ from ^ size ^ stream) & 0);
}

int column(const uint64_t *about, uint64_t stream)
{
    for (uint64_t row = 0; row < about[15]; row++) {
        uint32_t *const limit = (uint32_t *)(about[11] + row * about[13]);
        *limit = *(const uint32_t *)(about[3] + row * about[6]);
        if (refill && row + 1 < about[15])
            limit[-1] = *limit;
    }
    return (int)(stream & 0);
}

int arrive(uint64_t stream)
{
    spin(5000);
    return (int)(stream & 0);
}

int ready(uint64_t stream)
{
    return (int)(stream & 0);
}
"""


class Direct(Gpu):
    """Its addresses are those of this process."""

    def allocate(self, size: int, fill: int = 0xAB) -> int:
        made = np.full(size, fill, np.uint8)
        self.blocks[made.ctypes.data] = made
        return made.ctypes.data


class CompiledDriver(FakeDriver):
    """A driver whose functions are compiled ones. released: calls without the lock."""

    def __init__(self, library: ctypes.CDLL, gpu: Gpu) -> None:
        super().__init__(gpu)
        self.library, self.released = library, 0
        self.refill = ctypes.c_int32.in_dll(library, "refill")
        names = "copy", "keep", "column", "arrive", "ready"
        self.points = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names]

    def entry_points(self) -> EntryPoints:
        return EntryPoints(*self.points)

    def check(self, call: str, result: int) -> None:
        assert not result, call


def compiled() -> ctypes.CDLL:
    """The device's side, and the part of a launch without the lock."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "beside.c"), Path(folder, "beside.so")
        source.write_text(SOURCE)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", built, source], check=True)
        return ctypes.CDLL(str(built))


class SameMemory(Arena):
    """Two parts of it in turn, for slabs that are being written and the next ones: without page faults."""

    taken = 0

    def take(self, count: int) -> Lines:
        self._used = 0 if self._used > count else self._used
        self.taken += count
        return super().take(count)


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
    units, count = ring(2, 0)
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
    before, lines, began = driver.released, arena.taken, time.perf_counter()
    used = spent(drain)
    busy = program.run(seconds, pause=False)
    used = spent(drain) - used
    slabs, wall = (arena.taken - lines) / 3, time.perf_counter() - began
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
