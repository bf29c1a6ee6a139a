"""Numba on a GPU: records are complete and results are correct."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kscope

from .checks import doubts

numba_cuda = pytest.importorskip("contract.frontend_numba", exc_type=ImportError).cuda
Table = Callable[[str, str], None]


@pytest.fixture
def n() -> ModuleType:
    from . import numba_kernels

    return numba_kernels


def sync() -> None:
    numba_cuda.synchronize()


def counted(trace: kscope.Trace) -> Counter[str]:
    """Records by region."""
    names = trace.region_names()
    return Counter(names[region] for region in trace.region.tolist())


def test_every_warp_of_every_block_records(n: ModuleType) -> None:
    out, blocks = n.ints(1000), 1000
    with kscope.profile() as prof:
        n.four[blocks, 128](out)
        sync()
    assert not doubts(prof.trace)
    assert len(prof.trace) == blocks * 4 * n.RECORDS
    assert bool((out.copy_to_host() == 4).all())
    assert prof.trace.kernels == ("four",) or list(prof.trace.kernels) == ["four"]


def test_values_are_those_of_the_kernel(n: ModuleType) -> None:
    out = n.ints(10)
    with kscope.profile() as prof:
        n.four[10, 64](out)
        sync()
    trace = prof.trace
    names = trace.region_names()
    found: dict[str, set[tuple[int, float]]] = {}
    for region, block, value in zip(trace.region.tolist(), trace.block.tolist(), trace.value.tolist(), strict=True):
        found.setdefault(names[region], set()).add((block, value))
    assert found["outer"] == {(block, block) for block in range(10)}
    assert found["step"] == {(block, k) for block in range(10) for k in range(4)}
    assert found["end"] == {(block, first) for block in range(10) for first in (0, 32)}


def test_blocks_and_grids_of_three_dimensions(n: ModuleType) -> None:
    out = n.ints(60)
    with kscope.profile() as prof:
        n.four[(5, 4, 3), (8, 4, 4)](out)
        sync()
    trace = prof.trace
    assert not doubts(trace)
    assert len(trace) == 60 * 4 * n.RECORDS
    assert trace.warps.threads[0].tolist() == [8, 4, 4] and trace.warps.grid[0].tolist() == [5, 4, 3]
    assert len({tuple(block) for block in trace.warps.block_xyz.tolist()}) == 60
    assert bool((out.copy_to_host() == 4).all())


def test_1000_launches(n: ModuleType) -> None:
    out = n.ints(132)
    with kscope.profile() as prof:
        for _ in range(1000):
            n.four[132, 128](out)
        sync()
    assert not doubts(prof.trace)
    assert len(prof.trace.launches) == 1000 and len(prof.trace) == 1000 * 132 * 4 * n.RECORDS


def test_early_returns_and_device_functions(n: ModuleType) -> None:
    out = n.ints(64)
    with kscope.profile() as prof:
        n.leaves[64, 64](out, 40)
        sync()
    assert not doubts(prof.trace)
    assert counted(prof.trace) == {"outer": 128, "inner": 128, "helper": 80, "rest": 80}
    assert out.copy_to_host().tolist() == [64] * 40 + [0] * 24


def test_regions_close_when_a_kernel_raises(n: ModuleType) -> None:
    out = n.ints(8)
    with kscope.profile() as prof:
        n.raises[8, 32](out, 2)
        n.raises[8, 32](out, 0)
        sync()
    assert not doubts(prof.trace)
    assert counted(prof.trace) == {"outer": 16, "loop": 16, "step": 16}


def test_explicit_enter_and_exit_record(n: ModuleType) -> None:
    out = n.ints(8)
    with kscope.profile() as prof:
        n.explicit[8, 32](out, 5)
        sync()
    assert counted(prof.trace) == {"load": 8}
    assert set(prof.trace.value.tolist()) == {5.0}


def test_barriers(n: ModuleType) -> None:
    x = np.random.default_rng(0).standard_normal((66, 128), dtype=np.float32)
    out = numba_cuda.to_device(np.zeros(66, np.float32))
    with kscope.profile(strategy=kscope.AllThreads()) as prof:
        n.summed[66, 128](numba_cuda.to_device(x), out)
        sync()
    np.testing.assert_allclose(out.copy_to_host(), x.sum(1), rtol=1e-4, atol=1e-4)
    assert counted(prof.trace) == {"read": 66 * 128, "level": 66 * 128 * 7, "write": 66}


@pytest.mark.parametrize("lto", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"lineinfo": True}, {"opt": False}, {"max_registers": 32}, {"fastmath": True}], ids=str
)
def test_kernels_record_with_every_numba_compile_option(n: ModuleType, lto: bool, options: dict[str, Any]) -> None:
    kernel, out = numba_cuda.jit(n.four.py_func, lto=lto, **options), n.ints(50)
    with kscope.profile() as prof:
        kernel[50, 128](out)
        sync()
    assert not doubts(prof.trace)
    assert len(prof.trace) == 50 * 4 * n.RECORDS
    assert bool((out.copy_to_host() == 4).all())


def test_linked_source_with_regions(n: ModuleType, tmp_path: Path) -> None:
    x = numba_cuda.to_device(np.ones(64, np.float32))
    with kscope.profile() as prof:
        n.linked(tmp_path, lto=True)[2, 32](x)
        sync()
    assert counted(prof.trace) == {"python": 2, "in c++": 2}
    assert bool((x.copy_to_host() == 2).all())


def test_linked_source_with_regions_without_lto_is_refused(n: ModuleType, tmp_path: Path) -> None:
    x = numba_cuda.to_device(np.ones(64, np.float32))
    with kscope.profile(), pytest.raises(kscope.UnsupportedError, match=r"kernel .*kernel links scaled\.cu"):
        n.linked(tmp_path, lto=False)[2, 32](x)


def test_a_cooperative_grid(n: ModuleType) -> None:
    out = n.ints(1)
    with kscope.profile() as prof:
        n.together[64, 64](out, 5)
        sync()
    assert not doubts(prof.trace)
    assert counted(prof.trace) == {"round": 64 * 2 * 5}
    assert out.copy_to_host().tolist() == [320]


def test_forall_and_specialize(n: ModuleType) -> None:
    out = n.ints(8)
    special = n.explicit.specialize(out, 5)
    for _ in range(2):
        special[8, 32](out, 5)
        with kscope.profile() as prof:
            special[8, 32](out, 5)
            sync()
        assert counted(prof.trace) == {"load": 8}


def test_debug_is_refused_by_name(n: ModuleType) -> None:
    kernel = numba_cuda.jit(n.four.py_func, debug=True, opt=False)
    with kscope.profile(), pytest.raises(kscope.UnsupportedError, match="four is compiled with debug=True"):
        kernel[1, 32](n.ints(1))


def test_streams_and_a_graph_replayed_100_times(n: ModuleType) -> None:
    from contract.frontend_numba import _captured, _driver

    out, stream = n.ints(66), numba_cuda.stream()
    kscope.enable()
    n.four[66, 128, stream](out)
    stream.synchronize()
    graph = _captured(lambda: n.four[66, 128, stream](out), stream)
    with kscope.profile() as prof:
        for _ in range(100):
            _driver().cuGraphLaunch(graph, stream.handle)
        stream.synchronize()
    assert not doubts(prof.trace)
    assert len(prof.trace.launches) == 100 and len(prof.trace) == 100 * 66 * 4 * n.RECORDS


def test_two_gpus(n: ModuleType, two_gpus: None) -> None:
    with kscope.profile() as prof:
        for device in (0, 1, 0):
            with numba_cuda.gpus[device]:
                n.four[100, 128](n.ints(100))
                sync()
    assert not doubts(prof.trace)
    assert len(prof.trace) == 3 * 100 * 4 * n.RECORDS
    assert len(prof.trace.launches) == 3


def test_a_kernel_costs_little(n: ModuleType, table: Table) -> None:
    kernel, out = n.four, n.ints(1000)

    def milliseconds() -> float:
        begin, end = numba_cuda.event(), numba_cuda.event()
        kernel[1000, 128](out)
        sync()
        begin.record()
        for _ in range(20):
            kernel[1000, 128](out)
        end.record()
        end.synchronize()
        return float(numba_cuda.event_elapsed_time(begin, end)) / 20

    plain = milliseconds()
    with kscope.profile():
        armed = milliseconds()
    table("numba: 1000 blocks of 4 warps, 6 records each: plain, armed", f"{plain * 1e3:.1f} us, {armed * 1e3:.1f} us")
    assert kernel.overloads
