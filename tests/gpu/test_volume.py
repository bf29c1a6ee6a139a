"""Large volumes: the default pool loses nothing, and losses from smaller pools are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

import kscope
from kscope.capture.capture import Capture

from .checks import sync

Table = Callable[[str, str], None]


@pytest.fixture
def k() -> ModuleType:
    from . import kernels

    return kernels


def slabs(capture: Capture) -> tuple[int, int]:
    """(slabs, records) of a capture too large to decode at leisure: finished slabs that are all there."""
    from kscope.decoding.slabs import find

    found = records = 0
    for device in capture.devices:
        step = 3 << 22  # `four` takes slabs of three lines, without gaps except at a ring's edge
        for at in range(0, len(device.lines), step):
            part, _ = find(device.lines[at : at + step + 2], capture.epoch)
            mine = part.finished & (part.line < step)
            found += int(np.count_nonzero(mine))
            records += int(part.header["count"][mine].sum())
    return found, records


def lost(capture: Capture) -> int:
    return sum(device.lost for device in capture.devices)


def test_a_hundred_thousand_launches_drop_nothing(k: ModuleType, table: Table) -> None:
    launches, blocks, warps = 100_000, 132, 8
    out = k.ints(blocks)
    kscope.enable()
    k.four[(blocks,)](out, num_warps=warps)
    sync()
    compiled = k.four[(blocks,)]
    start = time.perf_counter()
    for _ in range(10_000):
        compiled(out, num_warps=warps)
    sync()
    off = (time.perf_counter() - start) * 10
    start = time.perf_counter()
    with kscope.profile() as prof:
        for _ in range(launches):
            compiled(out, num_warps=warps)
        sync()
        on = time.perf_counter() - start
    whole = time.perf_counter() - start
    capture = prof.capture
    size = sum(device.lines.nbytes for device in capture.devices) / 1e9
    table(
        "10^5 launches of 132 x 8 warps",
        f"{on:.2f} s with recording, {off:.2f} s without; {whole:.2f} s until collected",
    )
    table("  drained", f"{size:.1f} GB, {size / whole:.1f} GB/s, {lost(capture):,} lanes lost")
    assert lost(capture) == 0
    assert slabs(capture) == (launches * blocks * warps, launches * blocks * warps * k.RECORDS)


def test_a_grid_of_a_million_blocks_loses_no_records(k: ModuleType, table: Table) -> None:
    blocks = 1_000_000
    out = k.ints(blocks)
    kscope.enable()
    k.four[(10,)](out, num_warps=1)
    sync()
    start = time.perf_counter()
    with kscope.profile() as prof:
        k.four[(blocks,)](out, num_warps=1)
        sync()
        on = time.perf_counter() - start
    capture = prof.capture
    table("a grid of 10^6 blocks", f"{on * 1000:.1f} ms with recording; {lost(capture):,} lanes lost")
    assert lost(capture) == 0
    assert slabs(capture) == (blocks, blocks * k.RECORDS)


def test_losses_from_a_small_pool_name_the_option_to_raise(k: ModuleType) -> None:
    out = k.ints(100_000)
    with kscope.profile(pool=2 << 20) as prof:
        k.four[(100_000,)](out, num_warps=4)
    capture = prof.capture
    found, records = slabs(capture)
    assert lost(capture) > 0 and found + lost(capture) == 400_000 and records == found * k.RECORDS
    (problem,) = [problem for problem in prof.trace.problems if problem.kind == "lost"]
    assert "pool=" in problem.text
