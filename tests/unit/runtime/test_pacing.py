"""When and how long launches wait for room in the pool, in simulated time that passes only in sleeps."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest
from waiting import PATIENCE_S

from kscope.capture import wire
from kscope.capture.model import Problem
from kscope_runtime import drain as module
from kscope_runtime.drain_pass import Passes

from .conftest import Bench
from .fake import Gpu, Lane
from .fake_time import Clock
from .pacing import Burst, armed, drained, waited


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


@pytest.mark.parametrize("times", [3, 24])
def test_a_launch_waits_while_drain_passes_free_memory(by_hand: None, clock: Clock, times: int) -> None:
    bench = armed(clock)
    lanes = iter(Burst(bench).lanes[:times])
    drained(bench)

    def freed() -> None:
        if (lane := next(lanes, None)) is not None:
            lane.leave()
            assert drained(bench) > 0

    clock.meanwhile = freed
    took = waited(bench, clock)
    assert next(lanes, None) is None
    last = times * module._MAX_LAUNCH_WAIT_S / 8  # when something was freed
    assert module._MAX_LAUNCH_WAIT_S <= took - last < 2 * module._MAX_LAUNCH_WAIT_S


class LongPass:
    """A pass in a thread that takes one batch in each step(), and none in between."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self._go, self._held, batch = threading.Semaphore(0), threading.Semaphore(0), Passes._batch

        def held(passes: Passes, *args: object) -> int:
            self._held.release()
            assert self._go.acquire(timeout=PATIENCE_S)
            return batch(passes, *args)  # type: ignore[arg-type]  # as it was called

        monkeypatch.setattr(Passes, "_batch", held)
        self._thread = threading.Thread(target=drained, args=(bench,))

    def __enter__(self) -> LongPass:
        self._thread.start()
        assert self._held.acquire(timeout=PATIENCE_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._go.release(1000)
        self._thread.join(PATIENCE_S)

    def step(self) -> None:
        """Return when the next batch, of which there must be one, is about to be taken."""
        self._go.release()
        assert self._held.acquire(timeout=PATIENCE_S)


@pytest.mark.parametrize("frees", [True, False])
def test_memory_that_is_freed_in_the_middle_of_a_long_pass_is_progress(
    by_hand: None, clock: Clock, monkeypatch: pytest.MonkeyPatch, frees: bool
) -> None:
    """Three of its batches must be freed until there is room. Each takes more than half of a launch's patience."""
    monkeypatch.setattr("kscope_runtime.staging.BATCH", 64 * wire.UNIT)  # a ring
    bench = armed(clock)
    burst = Burst(bench)
    burst.lanes += [Lane(bench.memory, sm=block % 4, block=block).claim().begin() for block in range(80, 104)]
    drained(bench)
    if frees:
        burst.leave()
    with LongPass(bench, monkeypatch) as long:

        def busy() -> None:
            clock.now += 0.6 * module._MAX_LAUNCH_WAIT_S
            long.step()

        clock.meanwhile = busy
        took = waited(bench, clock)
    assert took > module._MAX_LAUNCH_WAIT_S
    assert bench.drain._patient == frees, "a launch that gives up does not wait again"


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
