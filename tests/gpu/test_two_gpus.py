"""Two GPUs in one process and one session: each records with its own memory, its own clocks, on one axis.

make gpu PYTEST_ARGS='-k two_gpus'
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kscope

from .checks import doubts

Table = Callable[[str, str], None]
BLOCKS, WARPS = 264, 4

pytestmark = pytest.mark.usefixtures("two_gpus")


@pytest.fixture
def k() -> ModuleType:
    from . import kernels

    return kernels


@pytest.fixture
def both(k: ModuleType) -> dict[int, Any]:
    """The prepared kernels loaded on both GPUs, with pools; an output for each."""
    import torch

    kscope.enable()
    outs = {}
    for device in (1, 0):
        with torch.cuda.device(device):
            outs[device] = k.ints(100_000)
            k.four[(BLOCKS,)](outs[device], num_warps=WARPS)
            k.loop[(4,)](outs[device], 10, num_warps=1)
    with kscope.profile():
        sync()
    return outs


def sync() -> None:
    """Wait for both."""
    import torch

    for device in (0, 1):
        torch.cuda.synchronize(device)


def times(trace: kscope.Trace, launch: int) -> tuple[float, float]:
    """A launch's first start and last end, ns after the origin."""
    warps = trace.warps.launch == launch
    return float(trace.warps.start_ns[warps].min()), float(trace.warps.end_ns[warps].max())


def slack(capture: Any) -> float:
    """Allowed distance between the axes of two devices in ns: half of each host bracket, a tick, and some drift."""
    widths = [min(sync.host_after - sync.host_before for sync in device.syncs) for device in capture.devices]
    return sum(widths) / 2 + sum(device.tick_ns for device in capture.devices) + 1000


def test_concurrent_threads_filling_both_pools_lose_nothing(k: ModuleType, both: dict[int, Any], table: Table) -> None:
    """More is recorded on each than its pool holds, and both drains run at once."""
    import torch

    launches, blocks, pool = 1500, 132, 64 << 20

    def work(device: int) -> None:
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(launches):
                k.four[(blocks,)](both[device], num_warps=WARPS)
            torch.cuda.synchronize()

    start = time.perf_counter()
    with kscope.profile(pool=pool) as prof:
        threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seconds = time.perf_counter() - start
    used = prof.capture.devices
    recorded = {device.ordinal: device.lines.nbytes for device in used}
    assert [device.lost for device in used] == [0, 0]
    counts = [len(prof.trace.filter(device=device)) for device in (0, 1)]
    assert counts == [launches * blocks * WARPS * k.RECORDS] * 2
    assert min(recorded.values()) > pool, recorded
    assert {(launch.device, launch.replay) for launch in prof.trace.launches} == {(0, 0), (1, 0)}
    assert len(prof.trace.launches) == 2 * launches
    table("two GPUs, drained at once", f"{sum(recorded.values()) / seconds / 1e9:.2f} GB/s")


def test_a_pool_that_is_too_small_names_its_own_device(k: ModuleType, both: dict[int, Any]) -> None:
    import torch

    with kscope.profile(pool=2 << 20) as prof:
        k.four[(BLOCKS,)](both[0], num_warps=WARPS)
        with torch.cuda.device(1):
            k.four[(100_000,)](both[1], num_warps=WARPS)
    lost = {device.ordinal: device.lost for device in prof.capture.devices}
    assert lost[0] == 0 and lost[1] > 0
    (problem,) = [problem for problem in prof.trace.problems if problem.kind == "lost"]
    assert problem.text.startswith("device 1: ") and problem.count == lost[1]
    assert len(prof.trace.filter(device=0)) == BLOCKS * WARPS * k.RECORDS


def test_both_clocks_are_on_the_axis_of_the_host(k: ModuleType, both: dict[int, Any], table: Table) -> None:
    """Each launch lies between the host's clock before it and after it, and the devices take turns."""
    import torch

    turns = [0, 1] * 10
    bounds = []
    with kscope.profile() as prof:
        for device in turns:
            with torch.cuda.device(device):
                before = time.time_ns()
                k.loop[(4,)](both[device], 200, num_warps=1)
                torch.cuda.synchronize()
                bounds.append((before, time.time_ns()))
    trace, allowed = prof.trace, slack(prof.capture)
    assert [launch.device for launch in trace.launches] == turns
    early, late = [], []
    for launch, (before, after) in enumerate(bounds):
        start, end = times(trace, launch)
        early.append(start - (before - trace.origin))
        late.append((after - trace.origin) - end)
    table("two GPUs on the host's axis", f"+-{allowed / 1000:.1f} us; nearest {min(early + late) / 1000:.1f} us inside")
    assert min(early) > -allowed and min(late) > -allowed
    assert not doubts(trace)


def test_a_stream_that_waits_for_one_of_the_other_gpu_is_seen_to_wait(k: ModuleType, both: dict[int, Any]) -> None:
    """Ping-pong over events and a copy: nothing is waited for on the host, and the order is there in the trace."""
    import torch

    streams = {device: torch.cuda.Stream(device=device) for device in (0, 1)}
    turns = [0, 1] * 5
    event = None
    with kscope.profile() as prof:
        for device in turns:
            with torch.cuda.device(device), torch.cuda.stream(streams[device]):
                if event is not None:
                    streams[device].wait_event(event)
                k.loop[(4,)](both[device], 2000, num_warps=1)
                event = torch.cuda.Event()
                event.record(streams[device])
        streams[0].wait_event(event)
        with torch.cuda.stream(streams[0]):
            copied = both[1][:4].to("cuda:0", non_blocking=True)
    trace = prof.trace
    assert copied.tolist() == [1999] * 4
    assert [launch.device for launch in trace.launches] == turns
    spans = [times(trace, launch) for launch in range(len(turns))]
    assert min(end - start for start, end in spans) > 10_000  # long enough that an overlap would be seen
    allowed = slack(prof.capture)
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start > end - allowed


def test_sms_launches_and_metadata_are_separate_per_gpu(k: ModuleType, both: dict[int, Any], tmp_path: Path) -> None:
    import torch

    with kscope.profile(tmp_path / "two.kscope") as prof:
        for device, blocks in ((0, 700), (1, 500)):
            with torch.cuda.device(device):
                k.four[(blocks,)](both[device], num_warps=WARPS)
    for trace in (prof.trace, kscope.load(tmp_path / "two.kscope")):
        # by device: the order is unknown if they began closer together than the axis's error
        seen = sorted((launch.device, launch.grid) for launch in trace.launches)
        assert seen == [(0, (700, 1, 1)), (1, (500, 1, 1))]
        for device, blocks in ((0, 700), (1, 500)):
            mine = trace.filter(device=device)
            assert len(mine) == blocks * WARPS * k.RECORDS
            assert np.unique(mine.block).tolist() == list(range(blocks))
            assert len(np.unique(mine.sm)) <= torch.cuda.get_device_properties(device).multi_processor_count
            assert set(mine.region_names()[mine.region]) == {"one", "two", "three", "four"}
        assert not doubts(trace)
        trace.export(tmp_path / "two.pftrace")


def test_a_graph_of_one_gpu_and_launches_of_the_other_do_not_mix(k: ModuleType, both: dict[int, Any]) -> None:
    import torch

    with torch.cuda.device(1):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # the default is of the GPU that captured first
            k.four[(BLOCKS,)](both[1], num_warps=WARPS)
    with kscope.profile() as prof:
        for _ in range(20):
            with torch.cuda.device(1):
                graph.replay()
            k.four[(BLOCKS,)](both[0], num_warps=WARPS)
    trace = prof.trace
    assert sorted(launch.replay for launch in trace.launches if launch.device == 1) == list(range(20))
    assert [launch.replay for launch in trace.launches if launch.device == 0] == [0] * 20
    assert not doubts(trace)


def test_pauses_resets_and_snapshots_are_of_both_gpus(k: ModuleType, both: dict[int, Any]) -> None:
    import torch

    def launch() -> None:
        for device in (0, 1):
            with torch.cuda.device(device):
                k.four[(BLOCKS,)](both[device], num_warps=WARPS)
        sync()

    each = BLOCKS * WARPS * k.RECORDS
    with kscope.profile() as prof:
        launch()
        assert [len(prof.trace.filter(device=device)) for device in (0, 1)] == [each, each]
        with prof.paused():
            launch()
        launch()
        assert [len(prof.trace.filter(device=device)) for device in (0, 1)] == [2 * each, 2 * each]
        prof.reset()
        launch()
    assert [len(prof.trace.filter(device=device)) for device in (0, 1)] == [each, each]


@pytest.mark.parametrize("survive", ["shm", "keeper"])
def test_each_gpu_has_its_own_file_that_another_process_reads(
    survive: Any, k: ModuleType, both: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv("KSCOPE_SURVIVE_FOLDER", folder)
        with kscope.profile(survive=survive) as prof:
            for device in (0, 1):
                with torch.cuda.device(device):
                    k.four[(BLOCKS,)](both[device], num_warps=WARPS)
            sync()
            watch = [sys.executable, "-m", "kscope", "watch", "--once", "--json", str(os.getpid())]
            answer = subprocess.run(watch, capture_output=True, text=True, check=True).stdout
        devices = [json.loads(line)["device"] for line in answer.splitlines()]
        # an earlier test may have imported the simulator
        assert [one[-1] for one in devices if not one.startswith("simulated")] == ["0", "1"]
        assert not list(Path(folder).glob("*.pool"))
    each = BLOCKS * WARPS * k.RECORDS
    assert [len(prof.trace.filter(device=device)) for device in (0, 1)] == [each, each]


@pytest.mark.parametrize("current", [0, 1])
def test_sessions_do_not_change_the_current_device(k: ModuleType, both: dict[int, Any], current: int) -> None:
    import torch
    from cuda.bindings import driver

    def where() -> tuple[int, int]:
        return torch.cuda.current_device(), int(driver.cuCtxGetCurrent()[1])

    with torch.cuda.device(current):
        before = where()
        with kscope.profile() as prof:
            assert where() == before
            k.four[(BLOCKS,)](both[current], num_warps=WARPS)
            snapshot = prof.trace
            assert where() == before
        assert where() == before and len(snapshot) <= len(prof.trace)
    assert {launch.device for launch in prof.trace.launches} == {current}
