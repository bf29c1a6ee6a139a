"""Speed of the host's side of draining, without a GPU: passes over full rings of a device in memory of this process.

    PYTHONPATH=.:frontends:runtime:tests python bench/drain.py [--records 4] [--rings 16] [--open 4] [--file]

Prints the wall time and the CPU time of a pass in ns per slab and in GB/s of wire memory, the best of the runs, without
copies, which a GPU's copy engines make, and page faults: all passes write to the same memory of the host.
--open: so many of each ring's last slabs are open during the pass, every second one, and are taken by another one.
--file: slabs are kept in a file in /dev/shm, too, as with survive="keeper".
"""

from __future__ import annotations

import argparse
import atexit
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from host_device import CompiledDriver, Direct, compiled
from unit.runtime.fake import KERNEL, Gpu, Memory
from wired import TIME

from kscope.capture import layout, wire
from kscope.capture.layout import Kind
from kscope.capture.pools.pool_file import PoolDevice, PoolFile
from kscope_runtime.device import Device
from kscope_runtime.drain_pass import Passes
from kscope_runtime.slab_search import looks_whole
from kscope_runtime.staging import PLACES

EPOCH, RING, PER_LAUNCH = 1, 4 << 20, 8
"""The session, bytes of a ring (the default on an H200), and warps of a launch on an SM."""
OTHER = 60_000
"""The launch of the slabs that fill a ring up to its edge."""


def log2_of(records: int) -> int:
    """log2 of the room of slabs for this many records."""
    return max(2, (records - 1).bit_length())


def ring(records: int, sm: int) -> tuple[np.ndarray, int]:
    """The units of a full ring, and its slabs: of equal numbers of records, and at the end what fills it."""
    log2 = log2_of(records)
    units = np.zeros((RING // wire.UNIT, wire.UNIT // 4), np.uint32)
    sizes = wire.slab_units(log2), wire.slab_units(3), wire.slab_units(2)
    rest = next(
        (b, c) for b in range(9) for c in range(9) if (len(units) - b * sizes[1] - c * sizes[2]) % sizes[0] == 0
    )
    many = (len(units) - rest[0] * sizes[1] - rest[1] * sizes[2]) // sizes[0]
    counts = [(log2, many), (3, rest[0]), (2, rest[1])]
    log2s = np.concatenate([np.full(count, size) for size, count in counts])
    index = np.arange(len(log2s))
    grid = np.where(log2s == log2, 1 + index // PER_LAUNCH, OTHER + log2s)
    size = 1 + (1 << log2s) // wire.RECORDS_PER_UNIT
    at = np.cumsum(size) - size
    start = TIME + index // PER_LAUNCH * 5_000 + index % PER_LAUNCH * 64
    clock, end = start * 2, start + 2_048
    head = units[at].view(wire.HEAD)[:, 0]
    head["who"] = index % 8 | (EPOCH & 1) << wire.EPOCH_SHIFT | sm << wire.SM_SHIFT | grid << wire.SLOT_SHIFT
    head["block"] = index % 132 << wire.BLOCK_SHIFT
    head["start_clock"], head["end_clock"] = clock & 0xFFFFFFFF, clock + 4_096 & 0xFFFFFFFF
    head["start_time"] = start >> wire.TIME_SHIFT & (1 << wire.LOG2_SHIFT) - 1 | log2s << wire.LOG2_SHIFT
    head["end_time"], head["count"] = end >> wire.TIME_SHIFT & 0xFFFFFFFF, np.minimum(records, 1 << log2s)
    high = [(both[0] >> 32 & 255) << 8 | both[1] >> 32 & 255 for both in ((clock, start), (clock + 4_096, end))]
    head["seal"] = 1 | (grid >> wire.SLOT_BITS & 255) << wire.GRID_SHIFT | (high[1] - high[0] & 0xFFFF) << 16
    units[at] = head.view(np.uint32).reshape(-1, 8)
    others = np.setdiff1d(np.arange(len(units)), at)
    rows = units.reshape(-1, 4)
    for row in (2 * others, 2 * others + 1):
        rows[row] = [1000, layout.record_id("load", Kind.SPAN), 2000, 0]
    return units, len(at)


def entries(log2: int, count: int) -> np.ndarray:
    """The launch table of such rings."""
    table = np.zeros(wire.SLOTS, wire.LAUNCH)
    grids = np.arange(1, count + 1)
    for grid, size in ((grids, log2), (np.array([OTHER + 3]), 3), (np.array([OTHER + 2]), 2)):
        rows = np.zeros(len(grid), wire.LAUNCH)
        rows["grid_id"], rows["kernel"], rows["time"] = grid, KERNEL, TIME + (grid - 1) * 5_000
        rows["nctaid_x"], rows["nctaid_yz"], rows["ntid"] = 132, 1 | 1 << 16, 255
        rows["layout"] = size << layout.LOG2_SHIFT
        rows["check"] = wire.launch_check(rows, EPOCH)
        table[grid] = rows
    return table


def device(rings: int) -> tuple[Any, Device]:
    """A device with so many rings."""
    driver = CompiledDriver(compiled(), Direct(0, rings, 1 << 33))
    driver.arrival_ns.value = 0
    made = Device(driver)
    made.open_pool(2 * rings * RING)
    assert made.rings is not None and made.rings.each == RING
    return driver, made


def close(gpu: Gpu, base: int, slabs: np.ndarray, words: np.ndarray | int) -> None:
    """Write the second halves of heads; 0 opens them."""
    gpu.view(base, RING).view(np.uint32).reshape(-1, wire.UNIT // 4)[slabs, 4:] = words


def copy_all(passes: Passes, rings: list[np.ndarray]) -> None:
    """Make the copies of a pass over full rings."""
    size = RING // wire.UNIT
    each = passes._staging.units // size
    assert len(rings) <= PLACES * each, "more rings than staging memory holds"
    for number, one in enumerate(rings):
        at = number % each * size
        passes._staging.place(number // each)[at : at + size] = one.view("<u4").reshape(size, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=4)
    parser.add_argument("--rings", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--open", type=int, default=0)
    parser.add_argument("--file", action="store_true")
    options = parser.parse_args()
    log2 = log2_of(options.records)
    driver, metal = device(options.rings)
    gpu = driver.gpus[0]
    full = [ring(options.records, sm) for sm in range(options.rings)]
    slabs = sum(count for _, count in full)
    late = [np.flatnonzero(looks_whole(units))[::-2][: options.open] for units, _ in full]
    if options.file:
        path = Path(f"/dev/shm/kscope-bench-{os.getpid()}.pool")
        Device.file = PoolFile(path, PoolDevice(0, "", options.rings), EPOCH, 1 << 28, is_copy=True)  # type: ignore[assignment]
        atexit.register(path.unlink)
    passes = Passes(metal)
    passes.begin(EPOCH)
    memory = Memory(gpu, metal.control)
    memory.table[:] = entries(log2, full[0][1] // PER_LAUNCH + 1)
    stripes = memory.stripes
    best: list[tuple[float, float]] = []
    for _ in range(options.repeat):
        for sm, (units, _) in enumerate(full):
            gpu.view(int(stripes["base"][sm]), RING)[:] = units.reshape(-1).view(np.uint8)
            close(gpu, int(stripes["base"][sm]), late[sm], 0)
        stripes["head"][:-1] += np.uint32(RING // wire.UNIT)
        passes._again[:] = 0
        passes.arena._used = 0  # the same memory again: without page faults
        copy_all(passes, [gpu.view(int(base), RING) for base in stripes["base"][: len(full)].tolist()])
        driver.copies.value = 0
        wall, cpu = time.perf_counter(), time.process_time()
        freed = passes.once(1 << 20)
        best.append((time.perf_counter() - wall, time.process_time() - cpu))
        driver.copies.value = 1
        for sm, (units, _) in enumerate(full if options.open else ()):
            close(gpu, int(stripes["base"][sm]), late[sm], units[late[sm], 4:])
        passes._again[:] = 0
        freed += passes.once(1 << 20) if options.open else 0
        assert freed == options.rings * RING, freed
    lines = passes.arena.lines()
    assert passes.problems() == []
    assert np.count_nonzero(lines[:, 0] == layout.HEADER_WORD) == slabs
    wall, cpu = min(one for one, _ in best), min(one for _, one in best)
    rate = options.rings * RING / wall / 1e9
    print(
        f"{slabs:,} slabs of {options.records} records: {wall / slabs * 1e9:.1f} ns a slab, {rate:.2f} GB/s; "
        f"CPU {cpu / slabs * 1e9:.1f} ns a slab"
    )


if __name__ == "__main__":
    main()
