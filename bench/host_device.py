"""A device in this process's memory whose driver is compiled, as the real one's functions are."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from unit.runtime.fake import FakeDriver, Gpu

from kscope_runtime.entry_points import EntryPoints

SOURCE = """
#include <stdint.h>
#include <string.h>
#include <time.h>

int32_t refill; /* whether rings are full again as soon as they are freed */
int32_t copies = 1; /* whether large copies are made; without them staging memory stays as it is */
int64_t arrival_ns = 5000; /* how long a wait takes */

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
    if (copies || size < 2 << 20)
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
    spin(arrival_ns);
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
    """A driver whose functions are compiled ones. It copies to the host, and clears nothing. released: calls without
    the lock."""

    def __init__(self, library: ctypes.CDLL, gpu: Gpu) -> None:
        super().__init__(gpu)
        self.library, self.released = library, 0
        self.refill, self.copies = (ctypes.c_int32.in_dll(library, name) for name in ("refill", "copies"))
        self.arrival_ns = ctypes.c_int64.in_dll(library, "arrival_ns")
        names = "copy", "keep", "column", "arrive", "ready"
        self.points = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names]

    def entry_points(self) -> EntryPoints:
        return EntryPoints(*self.points)

    def check(self, call: str, result: int) -> None:
        assert not result, call


def compiled() -> ctypes.CDLL:
    """The device's side, and the part of a launch without the lock."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "device.c"), Path(folder, "device.so")
        source.write_text(SOURCE)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", built, source], check=True)
        return ctypes.CDLL(str(built))
