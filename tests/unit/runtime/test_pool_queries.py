"""When launches read the pool themselves, in simulated time that passes only in sleeps."""

from __future__ import annotations

import math
import threading
import time

import pytest
from waiting import PATIENCE_S

from kscope_runtime import drain as module
from kscope_runtime.drain_pass import Passes
from kscope_runtime.forecast import Forecast

from .conftest import Bench
from .fake import FakeDriver, Lane
from .fake_time import Clock
from .pacing import Burst, armed, drained, looks, waited


def test_a_stale_pool_query_is_renewed_without_waiting_for_the_drain(by_hand: None, clock: Clock) -> None:
    """It may be busy with a batch for longer than a look is good for, while nearly all of the pool is free."""
    bench = armed(clock)
    Lane(bench.memory).run()
    clock.now += 60
    before = looks(bench)
    assert [waited(bench, clock) for _ in range(9)] == [0] * 9
    assert looks(bench) == before + 1, "one look is good for all of them"
    clock.now += 2 * module._FRESH_S
    assert waited(bench, clock) == 0
    assert looks(bench) == before + 2


def test_stale_pool_queries_are_not_trusted(by_hand: None, clock: Clock) -> None:
    bench = armed(clock)
    assert waited(bench, clock) == 0
    burst = Burst(bench)
    clock.now += 60
    clock.meanwhile = lambda: (burst.leave(), drained(bench), drained(bench))
    assert 0 < waited(bench, clock) < module._FRESH_S
    Burst(bench)
    clock.meanwhile = lambda: None
    bench.drain.stop()
    clock.now += 60
    assert waited(bench, clock) == 0  # no more pool queries


def test_a_waiting_launch_limits_its_pool_queries(by_hand: None, clock: Clock) -> None:
    bench = armed(clock)
    Burst(bench)
    clock.now += 60
    before = looks(bench)
    took = waited(bench, clock)
    assert took >= module._MAX_LAUNCH_WAIT_S
    assert 1 < looks(bench) - before <= took / module._FRESH_S + 1


def test_freed_memory_counts_as_room_only_after_the_device_write(
    by_hand: None, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host frees memory before the device's counter is written; until then claims there are refused."""
    bench = armed(clock)
    burst = Burst(bench)
    drained(bench)
    burst.leave()
    reported: list[bool] = []
    free = Passes._free

    def look() -> None:
        clock.now += 2 * module._FRESH_S
        reported.append(bench.drain._reading.has_room(module._FRESH_S, bench.drain._passes.forecast))

    def watched(self: Passes, *batch: object) -> int:
        found = free(self, *batch)  # type: ignore[arg-type]  # as it was called
        look()
        return found

    monkeypatch.setattr(Passes, "_free", watched)
    assert drained(bench) > 0
    look()
    assert reported == [False, True]


@pytest.mark.parametrize("again", [False, True])
def test_a_refused_pool_query_does_not_fail_the_launch(by_hand: None, clock: Clock, again: bool) -> None:
    bench = armed(clock)
    clock.now += 60
    bench.driver.broken = ("CUDA_ERROR_ILLEGAL_ADDRESS", 700)

    def mended() -> None:
        if again:
            bench.driver.broken = None
            drained(bench)

    clock.meanwhile = mended
    if again:
        assert 0 < waited(bench, clock) < module._FRESH_S
    else:
        assert module._MAX_LAUNCH_WAIT_S <= waited(bench, clock) < 2 * module._MAX_LAUNCH_WAIT_S
        assert waited(bench, clock) == 0
    assert bench.driver.strict == [0]


def test_a_launch_does_not_wait_for_a_blocked_pool_query(
    by_hand: None, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is before it there may wait for this launch."""
    bench = armed(clock)
    clock.now += 60
    stuck = True

    def ready(stream: int) -> bool:
        clock.now += 1e-4
        if stuck and bench.driver.streams[stream]:
            return False
        bench.driver._finish(stream)
        return True

    monkeypatch.setattr(bench.driver, "ready", ready)
    before = looks(bench)
    assert module._MAX_LAUNCH_WAIT_S <= waited(bench, clock) < 2 * module._MAX_LAUNCH_WAIT_S
    assert looks(bench) == before + 1, "copies that do not come pile up"
    stuck = False
    clock.now += 2 * module._FRESH_S
    assert waited(bench, clock) < module._FRESH_S / 10


def test_pool_queries_work_during_a_graph_capture(by_hand: None, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = armed(clock)
    clock.now += 60
    modes: list[int] = []
    call = FakeDriver._call
    monkeypatch.setattr(FakeDriver, "_call", lambda self, name: (modes.append(self.strict[-1]), call(self, name))[1])
    assert waited(bench, clock) == 0
    assert modes and set(modes) == {1}
    assert bench.driver.strict == [0]


def test_concurrent_launches_query_the_pool_once(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench().arm()
    monkeypatch.setattr(Forecast, "fits", lambda self, kernel: True)
    monkeypatch.setattr(module, "_FRESH_S", 3600)
    monkeypatch.setattr(module, "_MAX_LAUNCH_WAIT_S", 60)
    bench.drain._passes.seen = -math.inf, True
    before, together, ready = looks(bench), threading.Barrier(16), bench.driver.ready

    def slow(stream: int) -> bool:
        time.sleep(0.02)
        return ready(stream)

    monkeypatch.setattr(bench.driver, "ready", slow)

    def launch() -> None:
        together.wait(PATIENCE_S)
        for _ in range(100):
            bench.backend.pace()

    threads = [threading.Thread(target=launch) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert looks(bench) == before + 1
    assert bench.drain._patient
