"""The simulated GPU's host side: unfinished warps and concurrent launches."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from forked import refusal

import kscope
import kscope_sim
from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.instrument.subset import Subset
from kscope.marks.grammar import Mark
from kscope.session import session
from kscope_sim import SimBackend, Warp
from kscope_sim.memory import Memory


def work(warp: Warp) -> None:
    with kscope.region("work"):
        warp.work(100)


def first_stops(warp: Warp) -> None:
    work(warp)
    if warp.block[0] == 0:
        warp.trap()


def interrupted(prof: session.Session) -> None:
    with prof:
        kscope_sim.launch(first_stops, grid=9, sms=1)
        assert len(prof.trace) == 9  # in the body
        raise KeyboardInterrupt


def test_warps_that_reach_no_region_are_reported() -> None:
    def never(warp: Warp) -> None:
        with kscope.region("never", when=warp.index > 0):
            warp.work(10)

    with kscope.profile() as prof:
        kscope_sim.launch(never, grid=3)
    assert prof.trace.problems[0].text == "no records: 3 warps ran without reaching a region"


def test_a_hung_warp_does_not_hide_other_warps_of_its_sm() -> None:
    prof = kscope.profile()
    with pytest.raises(KeyboardInterrupt):
        interrupted(prof)
    assert len(prof.trace) == 9
    assert [problem.count for problem in prof.trace.problems if problem.kind == "unfinished"] == [1]


def test_an_unfinished_warp_lasts_until_its_snapshot_is_read() -> None:
    shown: list[tuple[int, int]] = []

    def looks(warp: Warp) -> None:
        if warp.index == 0:
            warp.wait("looked")
        else:
            for cycles in (1000, 50_000):
                warp.work(cycles)
                shown.append((warp.now, int(prof.trace.warps.last_tick.max())))
            warp.arrive("looked")

    machine = kscope_sim.Machine(sms=1, ghz=2.0, tick_ns=1, offsets=(0,))
    with kscope.profile() as prof:
        kscope_sim.launch(work, machine=machine)  # shows the clock's rate
        kscope_sim.launch(looks, block=64, machine=machine)
    # a head has no width before its end: the clock's rate is an estimate
    assert [last for _, last in shown] == pytest.approx([now for now, _ in shown], rel=0.15)
    assert prof.capture.devices[0].read_ns == 0


def test_launches_of_a_session_run_on_one_device_whatever_their_seeds() -> None:
    with kscope.profile() as prof:
        for seed, sms in enumerate([4, 16, 2, 16]):
            kscope_sim.launch(work, grid=32, sms=sms, seed=seed)
    assert len(prof.trace) == 4 * 32 and not prof.trace.problems
    warps = prof.trace.warps
    for sm in range(16):
        mine = np.flatnonzero(warps.sm == sm)
        assert (np.diff(warps.first_tick[mine[np.argsort(warps.start_ns[mine])]]) > 0).all()  # a counter never restarts


def test_a_kernel_that_is_refused_leaves_no_launch_running() -> None:
    def forgets(warp: Warp) -> None:
        kscope.region("load")

    with kscope.profile(), pytest.raises(UsageError, match="statement by itself"):
        kscope_sim.launch(forgets)
    times = []
    for _ in range(2):
        with kscope.profile() as prof:
            kscope_sim.launch(work)
        times.append(prof.trace.origin)
    assert times[0] == times[1]  # time begins anew where nothing runs


def spins(warp: Warp) -> None:
    warp.arrive("all")
    warp.wait("all", 3)
    if warp.index == 1:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # does not wake the main thread
        while True:
            warp.work(1)


def test_ctrl_c_ends_a_launch_whose_kernel_spins_and_one_that_waits() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threads = threading.active_count()
    try:
        with pytest.raises(KeyboardInterrupt):
            kscope_sim.launch(spins, block=96)
        assert threading.active_count() == threads
        with kscope.profile() as prof:
            kscope_sim.launch(work)
        assert len(prof.trace) == 1
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_a_warps_thread_starts_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            kscope_sim.launch(work)


def test_concurrent_launches_lose_and_duplicate_nothing() -> None:
    def launches() -> None:
        for _ in range(60):
            kscope_sim.launch(work, grid=4, block=64, sms=2)

    with kscope.profile() as prof:
        threads = [threading.Thread(target=launches) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(prof.trace) == 2 * 60 * 8
    assert prof.capture.devices[0].lost == 0


def test_interpreted_kernels_may_take_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    with kscope.profile() as prof:
        host = registry.backend("sim")
        assert isinstance(host, SimBackend) and host.recording is not None
        seconds = itertools.count(step=20)  # from one look at the clock to the next
        monkeypatch.setattr("kscope_sim.interpreted.perf_counter_ns", lambda: next(seconds) * 1_000_000_000)
        launch = host.launch_by_thread("kernel", work, (1, 1, 1), (32, 1, 1), host.recording)
        launch.begin("thread", (0, 0, 0), (0, 0, 0))
        for act in ("enter", "exit") * 3:
            launch.mark("thread", Mark(act, "work"), None)
        launch.leave("thread")
        launch.end()
    assert [round(duration / 1e9, 3) for duration in prof.trace.dur_ns.tolist()] == [20, 20, 20]
    assert "wrap" not in {problem.kind for problem in prof.trace.problems}


@pytest.fixture
def host() -> Iterator[SimBackend]:
    with kscope.profile() as prof:
        host = registry.backend("sim")
        assert isinstance(host, SimBackend)
        yield host
    assert len(prof.trace) == 3000 and prof.capture.devices[0].lost == 0


def test_memory_is_freed_between_the_blocks_of_a_launch_that_runs_thread_by_thread(host: SimBackend) -> None:
    assert host.recording is not None
    launch = host.launch_by_thread("kernel", work, (3000, 1, 1), (32, 1, 1), host.recording)
    for block in range(3000):
        launch.begin("thread", (block, 0, 0), (0, 0, 0))
        launch.mark("thread", Mark("enter", "work"), None)
        launch.mark("thread", Mark("exit", "work"), None)
        launch.leave("thread")
    launch.end()


def test_a_forked_child_does_not_write_into_its_parents_memory() -> None:
    memory = Memory.of(1, Subset())

    def write() -> None:
        memory.pool[:4], memory.table["grid_id"][:4] = 7, 7

    assert refusal(write, ValueError) == "no error"
    assert not memory.pool.any() and not memory.table["grid_id"].any()
