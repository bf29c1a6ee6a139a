"""When launches wait for room in the pool, and for how long: in a time of the test's own, which passes only where
somebody sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from kscope.capture import Problem
from kscope_runtime import drain as module
from kscope_runtime.passes import Passes

from .conftest import Bench
from .fake import Gpu


class Clock:
    """Stands for the module `time`. meanwhile: what others do when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


class Room(threading.Event):
    """Whoever waits for it sleeps by the clock."""

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
    monkeypatch.setattr("kscope_runtime.drain.time", made)
    monkeypatch.setattr("kscope_runtime.passes.time", made)
    return made


def armed(clock: Clock, *gpus: Gpu) -> Bench:
    """A GPU that records, whose pool has room."""
    bench = Bench(*gpus).arm()
    bench.drain._passes.room = Room(clock)
    bench.drain._passes.room.set()
    return bench


def waited(bench: Bench, clock: Clock, device: int = 0) -> float:
    """For how many seconds a launch on the device waits."""
    bench.driver.current = device + 1
    before = clock.now
    bench.backend.pace()
    return clock.now - before


def test_a_launch_waits_for_room_on_its_own_device_and_not_for_ever(by_hand: None, clock: Clock) -> None:
    bench = armed(clock, Gpu(0), Gpu(1))
    bench.driver.current = 2
    bench.driver.gpus[1].module(20)
    bench.backend.module_loaded(20)
    passes = bench.drain._passes
    clock.meanwhile = lambda: setattr(passes, "looked", clock.now)
    passes.room.clear()
    assert waited(bench, clock, device=1) == 0
    assert module._PATIENCE_S <= waited(bench, clock) < 2 * module._PATIENCE_S
    assert waited(bench, clock) == 0, "in vain once: whoever fills the pool may wait for this launch"
    passes.room.set()
    assert waited(bench, clock) == 0
    passes.room.clear()
    assert waited(bench, clock) > 0
    passes.room.set()
    assert waited(bench, clock) == 0
    passes.room.clear()
    bench.backend.disarm()
    assert waited(bench, clock) == 0


@pytest.mark.parametrize("times", [3, 100])
def test_a_launch_waits_as_long_as_passes_free_something(by_hand: None, clock: Clock, times: int) -> None:
    drain = (bench := armed(clock)).drain
    drain._passes.room.clear()
    left = iter(range(times))

    def freed() -> None:
        drain._freed += next(left, None) is not None

    clock.meanwhile = freed
    took = waited(bench, clock)
    assert next(left, None) is None
    last = times * module._PATIENCE_S / 8  # when something was freed
    assert module._PATIENCE_S <= took - last < 2 * module._PATIENCE_S


def test_a_launch_waits_no_longer_than_there_is_no_room(by_hand: None, clock: Clock) -> None:
    bench = armed(clock)
    passes = bench.drain._passes
    passes.room.clear()

    def seen() -> None:
        passes.looked = clock.now
        passes.room.set()

    clock.meanwhile = seen
    assert 0 < waited(bench, clock) < module._PATIENCE_S
    assert waited(bench, clock) == 0


def test_nobody_waits_for_a_drain_that_failed(by_hand: None, clock: Clock) -> None:
    bench = armed(clock)
    bench.drain._passes.room.clear()
    bench.drain.failed = Problem("drain", "the context is broken")
    assert waited(bench, clock) < module._PATIENCE_S / 4
    assert waited(bench, clock) == 0


def test_a_look_of_long_ago_does_not_say_that_there_is_room(by_hand: None, clock: Clock) -> None:
    bench = armed(clock)
    assert waited(bench, clock) == 0
    clock.now += 60
    clock.meanwhile = lambda: bench.drain._passes.once(share=8)
    assert 0 < waited(bench, clock) < module._FRESH_S
    bench.drain.stop()
    clock.now += 60
    assert waited(bench, clock) == 0  # nobody looks any more


def test_after_a_pause_a_launch_does_not_wait_for_a_look(by_hand: None, clock: Clock) -> None:
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
    monkeypatch.setattr(Passes, "once", lambda self, share: (found := once(self, share), passes.put(found))[0])
    bench = Bench().arm()
    passes.get(timeout=60)
    assert passes.empty()
    bench.backend.disarm()
    bench.backend.resume()
    passes.get(timeout=60)
    bench.backend.disarm()
    bench.backend.collect(wait=True)  # nor does its end wait


def test_a_drain_that_ended_is_started_by_the_next_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever interrupted the one before did not wait for its end."""
    passes, once = SimpleQueue[int](), Passes.once

    def full(self: Passes, share: int) -> int:
        raise MemoryError("the host is full")

    monkeypatch.setattr(Passes, "once", full)
    bench = Bench().arm()
    thread = bench.drain._thread
    assert thread is not None
    thread.join(60)
    bench.backend.collect(wait=False)
    monkeypatch.setattr(Passes, "once", lambda self, share: (found := once(self, share), passes.put(found))[0])
    bench.arm(2)
    passes.get(timeout=10)
    assert bench.backend.problems() == ()
    bench.backend.collect(wait=True)
