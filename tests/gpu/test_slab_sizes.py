"""records="auto": rings of kernels with regions in loops follow the records of earlier launches."""

from __future__ import annotations

from types import ModuleType

import pytest

import kscope
from kscope.instrument import registry

from .checks import sync


@pytest.fixture
def k() -> ModuleType:
    from . import kernels

    return kernels


def claimed() -> int:
    """Units of slabs that the device's stripes have handed out."""
    (device,) = registry.backend("cuda")._devices.values()  # type: ignore[attr-defined]  # the CUDA backend's
    return int(device.words()["head"].astype(int).sum())


def launched(k: ModuleType, iterations: int, launches: int = 1, blocks: int = 264) -> tuple[int, int, int]:
    """(records per warp made, dropped, units claimed) of launches in one session, one after the other."""
    out = k.ints(blocks)
    k.loop[(blocks,)](out, iterations, num_warps=4)
    sync()
    with kscope.profile() as prof:
        before = claimed()
        for _ in range(launches):
            k.loop[(blocks,)](out, iterations, num_warps=4)
        sync()
        after = claimed()
    trace = prof.trace
    warps = launches * blocks * 4
    assert len(trace.warps) == warps and int(trace.warps.written.sum()) == warps * (iterations + 1)
    return iterations + 1, warps * (iterations + 1) - len(trace), (after - before) // warps


def test_rings_shrink_to_what_launches_need_and_grow_where_they_were_too_small(k: ModuleType, table: object) -> None:
    kscope.enable()
    try:
        launched(k, 20, launches=6)
        made, dropped, units = launched(k, 20)
        assert dropped == 0 and units == 1 + 32 // 2, "21 records, and a quarter more: 32"
        launched(k, 500)
        made, dropped, units = launched(k, 500)
        assert (made, dropped, units) == (501, 0, 1 + 1024 // 2)
    finally:
        kscope.disable()
