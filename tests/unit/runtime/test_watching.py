"""Readings of stripes by compiled calls, and the wait for claims: what ends it, and what it leaves to passes."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from waiting import PATIENCE_S

from kscope import native
from kscope_runtime import drain as drain_module
from kscope_runtime.launch_table import WINDOW
from kscope_runtime.wake_event import Wake

from .compiled import Points
from .conftest import Bench
from .fake import FakeDriver, Lane

pytestmark = pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")
_SHARE = 8
_LONG_S = 600.0


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[Points]:
    points = Points()
    monkeypatch.setattr(FakeDriver, "entry_points", lambda self: points.of(self))
    return (yield points)


@pytest.fixture
def bench(by_hand: None, points: Points) -> Bench:
    bench = Bench().arm()
    bench.drain._wake.clear()
    return bench


def watch(bench: Bench, most: float = _LONG_S) -> bool:
    return bench.drain._passes.watch(_SHARE, bench.drain._wake.file, (1e-5, 1e-4), most)


def test_skipped_is_read_before_head_by_a_compiled_call(bench: Bench, points: Points) -> None:
    """A claim that is refused between the two copies is in the later one alone."""

    def refused() -> None:
        points.meanwhile = lambda: None
        bench.memory.atom_add(0, "head", 6)
        bench.memory.atom_add(0, "skipped", 6)

    head = int(bench.memory.stripes["head"][0])
    points.meanwhile = refused
    skipped, after = bench.drain._passes._read_stripes()
    assert (int(skipped[0]), int(after[0])) == (0, head + 6)


def test_a_claim_worth_a_copy_ends_the_wait(bench: Bench, points: Points) -> None:
    claims = iter(range(4))  # three claim the 8 units of 64 that are worth a copy; one follows their reading
    points.meanwhile = lambda: Lane(bench.memory, sm=2, block=next(claims)).run()
    assert watch(bench)
    points.meanwhile = lambda: None
    assert next(claims, None) is None
    assert bench.drain._passes.once(_SHARE) > 0


def test_claims_on_several_rings_are_not_added_up(bench: Bench, points: Points) -> None:
    for sm in range(4):
        Lane(bench.memory, sm=sm, block=sm).run()
    assert watch(bench, 1e-3)
    assert points.waits > 3


def test_the_wait_ends_while_later_entries_can_still_be_read(bench: Bench, points: Points) -> None:
    """Launches that claim little on many SMs: their entries are read before later launches overwrite them."""
    for block in range(4):
        Lane(bench.memory, block=block).run()
    assert bench.drain._passes.once(_SHARE)
    first = bench.drain._passes._launches.next
    assert first is not None
    launches = iter(range(first, first + WINDOW))

    def launch() -> None:
        bench.memory.table["grid_id"][next(launches)] = 1

    points.meanwhile = launch
    assert watch(bench)
    assert next(launches) == first + WINDOW // 2 + 2  # with the one that follows the reading


def test_a_wake_ends_the_wait(bench: Bench) -> None:
    waiting = threading.Thread(target=watch, args=(bench,))
    waiting.start()
    bench.drain._wake.set()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_the_interpreters_exit_ends_the_wait_for_good(bench: Bench) -> None:
    waiting = threading.Thread(target=watch, args=(bench,))
    waiting.start()
    drain_module._watch_no_more(weakref.ref(bench.drain))
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    bench.drain._wake.clear()
    assert not watch(bench)


def test_a_cleared_wake_waits_again() -> None:
    wake = Wake()
    wake.set()
    wake.set()
    wake.clear()
    wake.clear()
    assert not wake.is_set() and not wake.wait(0)


def test_an_error_of_the_driver_is_left_to_the_next_pass(bench: Bench, points: Points) -> None:
    points.result = 700
    assert watch(bench)
    assert not watch(bench), "it would fail again at once"


@pytest.mark.parametrize("reason", ["open", "launches", "file"])
def test_passes_follow_each_other_where_the_wait_would_miss_something(
    bench: Bench, points: Points, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "open":  # a slab that stays open holds up its ring: only passes see its end
        for block in range(4):
            Lane(bench.memory, block=block).claim().begin()
        bench.drain._passes.once(_SHARE)
    elif reason == "launches":  # that claim nothing yet, but may claim much
        for kernel in range(8):
            bench.drain._passes.forecast.launched(kernel, 0.0)
    else:  # its readers know the launches that passes have read
        monkeypatch.setattr(type(bench.drain.device), "mapped", object())
    waits = points.waits
    assert not watch(bench) and points.waits == waits


def test_a_pool_that_is_copied_to_its_file_is_watched(
    bench: Bench, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its readers see the launches on the device."""
    monkeypatch.setattr(type(bench.drain.device), "file", object())
    waits = points.waits
    assert watch(bench, most=0.0) and points.waits > waits


def test_a_launch_without_room_ends_the_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "_MAX_LAUNCH_WAIT_S", 0.0)
    for kernel in range(20):
        bench.drain._passes.forecast.launched(kernel, time.monotonic())
    bench.backend.pace("other")
    assert bench.drain._wake.is_set()


def test_a_session_with_a_thread_takes_everything(points: Points) -> None:
    bench = Bench()
    bench.pool = 1 << 20
    bench.arm()
    for block in range(300):
        bench.backend.pace(0)
        Lane(bench.memory, sm=block % 4, block=block).run()
    (device,) = bench.backend.collect(wait=True)
    lines = np.asarray(device.lines)
    assert device.lost == 0 and "write_column" in points.calls
    assert len(lines) == 300 * 3
