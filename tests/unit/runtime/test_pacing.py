"""When and how long launches wait for room in the pool, in simulated time that passes only in sleeps."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest
from waiting import PATIENCE_S

from kscope.capture.model import Problem
from kscope_runtime import drain as module
from kscope_runtime.drain_pass import Passes
from kscope_runtime.forecast import Forecast

from .conftest import Bench
from .fake import FakeDriver, Gpu, Lane


class Clock:
    """A stand-in for the module `time`. meanwhile: called during each sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


class Room(threading.Event):
    """Waiting for it advances the fake clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if not self.is_set():
            self._clock.sleep(timeout)
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for name in ("drain", "drain_pass", "pool_room"):
        monkeypatch.setattr(f"kscope_runtime.{name}.time", made)
    return made


class Burst:
    """Lanes that have claimed nearly all of each SM's ring, of which nothing is freed before they leave."""

    def __init__(self, bench: Bench) -> None:
        self.lanes = [Lane(bench.memory, sm=block % 4, block=block).claim().begin() for block in range(80)]

    def leave(self) -> None:
        for lane in self.lanes:
            lane.leave()


def armed(clock: Clock, *gpus: Gpu) -> Bench:
    """A recording GPU with room in its pool."""
    bench = Bench(*gpus).arm()
    bench.drain._passes.room = Room(clock)
    bench.drain._passes.room.set()
    return bench


def drained(bench: Bench) -> int:
    """A pass of the drain's: bytes that it freed."""
    before, bench.driver.current = bench.driver.current, 1
    try:
        bench.drain._passes._again[:] = 0
        return bench.drain._passes.once(share=1 << 20)
    finally:
        bench.driver.current = before


def waited(bench: Bench, clock: Clock, device: int = 0) -> float:
    """For how many seconds a launch on the device waits."""
    bench.driver.current = device + 1
    before = clock.now
    bench.backend.pace()
    return clock.now - before


def looks(bench: Bench) -> int:
    """How often the pool was read."""
    return bench.driver.calls.count("read")


def test_launches_wait_a_bounded_time_for_their_own_device(by_hand: None, clock: Clock) -> None:
    bench = armed(clock, Gpu(0), Gpu(1))
    bench.driver.current = 2
    bench.driver.gpus[1].module(20)
    bench.backend.module_loaded(20)
    burst = Burst(bench)
    clock.meanwhile = lambda: drained(bench)
    drained(bench)
    assert waited(bench, clock, device=1) == 0
    assert module._MAX_LAUNCH_WAIT_S <= waited(bench, clock) < 2 * module._MAX_LAUNCH_WAIT_S
    assert waited(bench, clock) == 0, "one futile wait: the kernel that fills the pool may wait for this launch"
    burst.leave()
    drained(bench)
    drained(bench)
    assert waited(bench, clock) == 0
    burst = Burst(bench)
    clock.now += 2 * module._FRESH_S
    assert waited(bench, clock) > 0
    burst.leave()
    drained(bench)
    drained(bench)
    assert waited(bench, clock) == 0
    Burst(bench)
    clock.now += 2 * module._FRESH_S
    bench.backend.disarm()
    assert waited(bench, clock) == 0


@pytest.mark.parametrize("times", [3, 100])
def test_a_launch_waits_while_drain_passes_free_memory(by_hand: None, clock: Clock, times: int) -> None:
    drain = (bench := armed(clock)).drain
    Burst(bench)
    drained(bench)
    left = iter(range(times))

    def freed() -> None:
        drain._freed += next(left, None) is not None

    clock.meanwhile = freed
    took = waited(bench, clock)
    assert next(left, None) is None
    last = times * module._MAX_LAUNCH_WAIT_S / 8  # when something was freed
    assert module._MAX_LAUNCH_WAIT_S <= took - last < 2 * module._MAX_LAUNCH_WAIT_S


def test_a_launch_continues_as_soon_as_the_pool_has_room(by_hand: None, clock: Clock) -> None:
    bench = armed(clock)
    burst = Burst(bench)
    drained(bench)

    def seen() -> None:
        burst.leave()
        drained(bench)
        drained(bench)

    clock.meanwhile = seen
    assert 0 < waited(bench, clock) < module._MAX_LAUNCH_WAIT_S
    assert waited(bench, clock) == 0


def test_launches_do_not_wait_for_a_failed_drain(by_hand: None, clock: Clock) -> None:
    bench = armed(clock)
    Burst(bench)
    drained(bench)
    bench.drain.failed = Problem("drain", "the context is broken")
    assert waited(bench, clock) < module._MAX_LAUNCH_WAIT_S / 4
    assert waited(bench, clock) == 0


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


def test_after_a_pause_a_launch_does_not_wait_for_the_drain(by_hand: None, clock: Clock) -> None:
    bench = armed(clock)
    bench.backend.disarm()
    clock.now += 60
    bench.backend.resume()
    assert waited(bench, clock) == 0


def test_a_pass_follows_at_once_when_a_pause_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the thread would sleep."""
    monkeypatch.setattr(module, "_IDLE_S", 3600)
    monkeypatch.setattr(module, "_CLOSED_S", 3600)
    passes, once = SimpleQueue[int](), Passes.once
    monkeypatch.setattr(Passes, "once", lambda *a, **b: (found := once(*a, **b), passes.put(found))[0])
    bench = Bench().arm()
    passes.get(timeout=PATIENCE_S)
    assert passes.empty()
    bench.backend.disarm()
    bench.backend.resume()
    passes.get(timeout=PATIENCE_S)
    bench.backend.disarm()
    bench.backend.collect(wait=True)  # nor does its end wait


def test_a_drain_that_ended_is_started_by_the_next_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user interrupted the session before and did not wait for its end."""
    passes, once = SimpleQueue[int](), Passes.once

    def full(self: Passes, share: int, *, at_once: bool) -> int:
        raise MemoryError("the host is full")

    monkeypatch.setattr(Passes, "once", full)
    bench = Bench().arm()
    thread = bench.drain._thread
    assert thread is not None
    thread.join(PATIENCE_S)
    bench.backend.collect(wait=False)
    monkeypatch.setattr(Passes, "once", lambda *a, **b: (found := once(*a, **b), passes.put(found))[0])
    bench.arm(2)
    passes.get(timeout=PATIENCE_S)
    assert bench.backend.problems() == ()
    bench.backend.collect(wait=True)
