"""Cost of recording as the work grows, from the launch to the decoded trace, and lost lanes.

    records   10^3 to 10^8 of one launch: kernel, drain, decode
    warps     1 to an SM's maximum, on every SM: four records each
    blocks    grids of 10 to 10^6 blocks of one warp
    launches  1 to 10^5 of one wave

Each row's notes give the records that arrived and the lanes lost; a loss in the default pool is a doubt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from driver import Device, nvcc, ptxas
from rows import Row, row

from kscope import decode
from kscope.capture.capture import Capture
from kscope.capture.capture_data import DeviceCapture
from kscope.capture.model import ModuleMeta
from kscope.decoding.slabs import find
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.lowering import plan

SOURCE = Path(__file__).with_name("growth.cu")
RECORDS = (10**3, 10**4, 10**5, 10**6, 10**7, 10**8)
WARPS = (1, 2, 4, 8, 16, 32, 64)
BLOCKS = (10, 10**3, 10**4, 10**5, 10**6)
LAUNCHES = (1, 10, 10**2, 10**3, 10**4, 10**5)
EPOCHS = count(1)
LARGEST = 1 << 20
"""At most this many records per slab."""
DECODED = 10**7
"""At most this many records are decoded here; make bench decodes more."""


def built(folder: Path, arch: str, records: int, name: str) -> tuple[Path, ModuleMeta]:
    """The kernels for slabs of this many records."""
    text = nvcc(SOURCE, folder / f"{name}.ptx", arch).read_text()
    lowered = plan.lower(text, Recording(records=records), frontend="bench")
    return ptxas(lowered.text, folder / f"{name}.cubin", arch), lowered.meta


def measure(section: str, options: Any) -> Iterator[Row]:
    """The rows of all sweeps."""
    device = Device()
    sms, out = device.sms, device.allocate(1 << 20)
    small, meta = built(options.folder, options.arch, 4, "small")
    four = _prepared(device, small, "four")
    for warps in WARPS:
        blocks, threads = sms * max(1, warps // 32), 32 * min(warps, 32)
        launch = partial(_launch, device, four, blocks, threads, out, 0)
        yield from _sweep(device, meta, f"{sms * warps:,} warps at once", launch, 4 * sms * warps)
    for blocks in BLOCKS:
        launch = partial(_launch, device, four, blocks, 32, out, 0)
        yield from _sweep(device, meta, f"{blocks:,} blocks", launch, 4 * blocks)
    for launches in LAUNCHES:
        launch = partial(_launch, device, four, sms, 32, out, 0, times=launches)
        yield from _sweep(device, meta, f"{launches:,} launches", launch, 4 * sms * launches)
    for total in RECORDS:
        lanes = min(8 * sms, max(1, total // 1000))
        blocks, warps = -(-lanes // 8), min(lanes, 8)
        each = max(1, total // (blocks * warps))
        expected = blocks * warps * each
        cubin, meta = built(options.folder, options.arch, min(LARGEST, each), f"records{total}")
        launch = partial(_launch, device, _prepared(device, cubin, "records"), blocks, 32 * warps, out, each)
        yield from _sweep(device, meta, f"{expected:,} records", launch, expected, 40 * expected + (256 << 20))


def dry(section: str, options: Any) -> Iterator[Row]:
    """Without a GPU: the kernels are compiled for every size of slab."""
    for size in (4, 1024, LARGEST):
        cubin, meta = built(options.folder, options.arch, size, f"dry{size}")
        yield row(
            "kernels", f"slabs of {size:,}", "bytes", [cubin.stat().st_size], kernels=[k.name for k in meta.kernels]
        )


def _prepared(device: Device, cubin: Path, kernel: str) -> Any:
    module = device.load(cubin)
    registry.backend("cuda").module_loaded(int(module))
    return device.function(module, kernel)


def _launch(device: Device, kernel: Any, blocks: int, threads: int, *arguments: int, times: int = 1) -> None:
    """Launches as a frontend does: a pool that is almost full delays it."""
    backend = registry.backend("cuda")
    for _ in range(times):
        backend.pace()
        device.launch(kernel, blocks, threads, *arguments)


def _sweep(
    device: Device, meta: ModuleMeta, where: str, launch: Callable[[], None], expected: int, pool: int | None = None
) -> Iterator[Row]:
    """Times at rest and with recording, records that arrived, and the time to decode them."""
    backend = registry.backend("cuda")
    launch()
    device.synchronize()
    off = [_timed(device, launch) for _ in range(3)]
    on, drained = [], []
    for _ in range(3 if expected <= DECODED else 1):
        epoch = next(EPOCHS)
        backend.arm(epoch, Subset(), pool)
        begin = time.perf_counter()
        on.append(_timed(device, launch))
        backend.disarm()
        devices = backend.collect(wait=True)
        drained.append((time.perf_counter() - begin) * 1e6)
    arrived, lost = _counted(devices, epoch)
    notes: dict[str, Any] = {"records": arrived, "lost": lost}
    if arrived != expected or lost:
        notes["doubt"] = f"{arrived:,} of {expected:,} records arrived, {lost:,} lanes found no room"
    yield row("at rest", where, "us", off)
    yield row("recording", where, "us", on, **notes)
    yield row("until collected", where, "us", drained)
    if expected <= DECODED:
        begin = time.perf_counter()
        trace = decode(Capture(epoch, tuple(devices), (meta,)))
        yield row("decoded", where, "us", [(time.perf_counter() - begin) * 1e6], records=len(trace))


def _timed(device: Device, launch: Callable[[], None]) -> float:
    device.begin()
    launch()
    return device.elapsed_us()


def _counted(devices: list[DeviceCapture], epoch: int) -> tuple[int, int]:
    """(records, lost lanes), from the headers alone."""
    records = 0
    for one in devices:
        slabs, _ = find(one.lines, epoch)
        records += int(slabs.header["count"].astype(np.int64).sum())
    return records, sum(one.lost for one in devices)
