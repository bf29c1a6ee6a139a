"""Every record that a launch must leave is there: the count follows from the launch alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import kscope

from .checks import CLOCKS, doubts, sync

Table = Callable[[str, str], None]


@pytest.fixture
def k() -> ModuleType:
    from . import kernels

    return kernels


def test_every_warp_of_every_block_records(k: ModuleType, table: Table) -> None:
    out, blocks = k.ints(1000), 1000
    with kscope.profile() as prof:
        k.four[(blocks,)](out, num_warps=4)
    trace = prof.trace
    assert not doubts(trace)
    assert len(trace) == blocks * 4 * k.RECORDS
    assert len(trace.launches) == 1 and len(trace.warps) == blocks * 4
    assert bool((out == 4).all())
    device = prof.capture.devices[0]
    widths = [sync.host_after - sync.host_before for sync in device.syncs]
    table("device", f"{device.name}, {device.sms} SMs, globaltimer ticks every {device.tick_ns} ns")
    table("host clock around globaltimer", " ".join(f"+-{width / 2000:.1f} us" for width in widths))


def test_spans_are_nested_and_times_go_forward(k: ModuleType) -> None:
    out = k.ints(64)
    with kscope.profile() as prof:
        k.loop[(64,)](out, 50, num_warps=2)
    trace = prof.trace
    assert not doubts(trace) and len(trace) == 64 * 2 * 51
    names = np.array([region.name for region in trace.regions])[trace.region]
    assert set(trace.depth[names == "loop"]) == {0} and set(trace.depth[names == "step"]) == {1}
    assert (trace.dur_cycles >= 0).all()
    for track in range(4):
        mine = trace.track == track
        ends = (trace.start_ticks + trace.dur_cycles)[mine]
        assert (np.diff(ends) >= 0).all()
        steps = mine & (names == "step")
        assert trace.value[steps].tolist() == list(range(50))


def test_a_graph_replayed_100_times_shows_as_100_launches(k: ModuleType) -> None:
    import torch

    out = k.ints(66)
    kscope.enable()
    k.four[(66,)](out, num_warps=4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k.four[(66,)](out, num_warps=4)
    with kscope.profile() as prof:
        for _ in range(100):
            graph.replay()
    trace = prof.trace
    assert not doubts(trace)
    assert len(trace.launches) == 100 and len(trace) == 100 * 66 * 4 * k.RECORDS


def test_a_module_may_be_loaded_inside_of_a_capture(k: ModuleType) -> None:
    import torch

    out = k.ints(8)
    graph = torch.cuda.CUDAGraph()
    with kscope.profile(records=32) as prof:
        with torch.cuda.graph(graph):
            k.other[(8,)](out, num_warps=1)
        for _ in range(3):
            graph.replay()
    assert not doubts(prof.trace)
    assert len(prof.trace) == 24


def test_16_streams_record_at_once(k: ModuleType) -> None:
    import torch

    streams = [torch.cuda.Stream() for _ in range(16)]
    outs = [k.ints(33) for _ in streams]
    sync()
    with kscope.profile() as prof:
        for _ in range(50):
            for stream, out in zip(streams, outs, strict=True):
                with torch.cuda.stream(stream):
                    k.four[(33,)](out, num_warps=4)
    trace = prof.trace
    assert not doubts(trace)
    assert len(trace.launches) == 800 and len(trace) == 800 * 33 * 4 * k.RECORDS


def test_sessions_may_be_toggled_while_kernels_run(k: ModuleType, table: Table) -> None:
    kscope.enable()
    out = k.ints(132)
    k.four[(132,)](out, num_warps=4)
    sync()
    stop = threading.Event()

    def launch() -> None:
        while not stop.is_set():
            k.four[(132,)](out, num_warps=4)
            time.sleep(0.0001)

    thread = threading.Thread(target=launch)
    thread.start()
    launches = 0
    try:
        for _ in range(20):
            with kscope.profile() as prof:
                time.sleep(0.02)
            trace = prof.trace
            assert {problem.kind for problem in trace.problems} <= {"partial", *CLOCKS}
            assert len(trace) == len(trace.warps) * k.RECORDS
            launches += len(trace.launches)
    finally:
        stop.set()
        thread.join()
    assert launches > 100
    table("20 sessions over running kernels", f"{launches} launches recorded")


def test_a_pause_records_nothing_and_compiles_nothing(k: ModuleType) -> None:
    out = k.ints(10)
    with kscope.profile() as prof:
        k.other[(10,)](out, num_warps=1)
        sync()
        with prof.paused():
            k.other[(10,)](out, num_warps=1)
            sync()
        k.other[(10,)](out, num_warps=1)
    assert len(prof.trace) == 20 and len(prof.trace.launches) == 2


def test_a_reset_drops_what_was_recorded(k: ModuleType) -> None:
    out = k.ints(10)
    with kscope.profile() as prof:
        k.four[(10,)](out, num_warps=1)
        sync()
        prof.reset()
        k.other[(10,)](out, num_warps=1)
    assert len(prof.trace) == 10 and prof.trace.kernels[prof.trace.kernel[0]].startswith("other")


def test_kernels_are_selected_by_name(k: ModuleType) -> None:
    out = k.ints(10)
    with kscope.profile(kernel="oth*") as prof:
        k.four[(10,)](out, num_warps=1)
        k.other[(10,)](out, num_warps=1)
    assert len(prof.trace) == 10


def test_blocks_warps_and_strategies_are_sampled(k: ModuleType) -> None:
    out = k.ints(1000)
    with kscope.profile(block=range(100, 1000, 7), warp=(0, 2)) as prof:
        k.four[(1000,)](out, num_warps=4)
    assert len(prof.trace) == len(range(100, 1000, 7)) * 2 * k.RECORDS
    with kscope.profile(strategy=kscope.Lane0Warp0()) as prof:
        k.four[(1000,)](out, num_warps=4)
    assert len(prof.trace) == 1000 * k.RECORDS
    with kscope.profile(strategy=kscope.AllThreads()) as prof:
        k.four[(10,)](out, num_warps=2)
    assert len(prof.trace) == 10 * 64 * k.RECORDS


def test_a_ring_keeps_the_newest_and_counts_the_rest(k: ModuleType) -> None:
    out = k.ints(4)
    with kscope.profile(records=16) as prof:
        k.loop[(4,)](out, 100, num_warps=1)
    trace = prof.trace
    assert len(trace) == 4 * 16
    assert sum(problem.count for problem in trace.problems if problem.kind == "overwritten") == 4 * (101 - 16)


def test_an_unloaded_module_keeps_its_names(k: ModuleType) -> None:
    import torch
    from cuda.bindings import driver

    out = k.ints(12)
    with kscope.profile(records=128) as prof:
        compiled = k.other[(12,)](out, num_warps=1)
        sync()
        (error,) = driver.cuModuleUnload(compiled.module)
        assert int(error) == 0
    compiled.module = None
    k.other.device_caches.clear()
    assert len(prof.trace) == len(prof.trace.filter(region="other")) == 12
    assert torch.cuda.is_available()


def test_a_capture_is_saved_and_read_again(k: ModuleType, tmp_path: Path) -> None:
    out = k.ints(10)
    with kscope.profile(tmp_path / "run.kscope") as prof:
        k.four[(10,)](out, num_warps=1)
    again = kscope.load(tmp_path / "run.kscope")
    assert len(again) == len(prof.trace) == 40
    assert again.start_ns.tolist() == prof.trace.start_ns.tolist()


def test_snapshots_are_available_during_a_session(k: ModuleType) -> None:
    out = k.ints(10)
    with kscope.profile() as prof:
        k.four[(10,)](out, num_warps=1)
        sync()
        assert len(prof.trace) == 40
        k.four[(10,)](out, num_warps=1)
        sync()
        assert len(prof.trace) == 80
    assert len(prof.trace) == 80


def test_nothing_is_written_outside_of_claimed_slabs(k: ModuleType) -> None:
    """All memory outside slabs is zero: between them in drained data, and in the pool afterwards."""
    from kscope.capture import layout
    from kscope.decoding import slabs
    from kscope.instrument import registry

    out = k.ints(3000)
    with kscope.profile(records=16, pool=8 << 20) as prof:
        for _ in range(20):
            k.four[(3000,)](out, num_warps=4)
            k.loop[(300,)](out, 100, num_warps=2)
    (device,) = prof.capture.devices
    found, problems = slabs.find(device.lines, prof.capture.epoch)
    assert problems == []
    inside = np.zeros(len(device.lines) + 1, np.int64)
    np.add.at(inside, found.line, 1)
    np.add.at(inside, found.line + layout.HEADER_LINES + (1 << found.log2) // layout.RECORDS_PER_LINE, -1)
    assert not device.lines[np.cumsum(inside[:-1]) == 0].any()
    drains = registry.backend("cuda")._drains.values()  # type: ignore[attr-defined]  # the backend's own
    for drain in drains:
        memory = drain.device.read(drain.device.pool.address, drain.device.rings.total)
        assert not np.frombuffer(memory, np.uint64).any()
