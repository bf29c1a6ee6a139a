"""Launches that only read the timer, at both ends of a session, over a fake driver."""

from __future__ import annotations

from collections.abc import Callable

from kscope_runtime.timer_readings import COUNT, SPIN

from .conftest import Bench

Make = Callable[..., Bench]
NAMES = ["kscope_timer_begin"] * COUNT + ["kscope_timer_end"] * COUNT


def test_a_session_has_the_readings_of_its_begin_and_end(bench: Make) -> None:
    rig = bench().arm()
    rig.backend.read_timers("begin")
    rig.backend.read_timers("end")
    [device] = rig.backend.collect(wait=True)
    assert [one.kernel for one in device.readings] == NAMES
    assert [one.first for one in device.readings] == sorted({one.first for one in device.readings})
    assert {one.last - one.first for one in device.readings} == {SPIN}


def test_a_session_has_no_readings_of_the_one_before(bench: Make) -> None:
    rig = bench().arm()
    rig.backend.read_timers("begin")
    rig.backend.read_timers("end")
    rig.backend.collect(wait=True)
    rig.arm(2)
    rig.backend.read_timers("end")
    [device] = rig.backend.collect(wait=True)
    assert [one.kernel for one in device.readings] == NAMES[COUNT:]
    rig.arm(3)
    assert rig.backend.collect(wait=True)[0].readings == ()


def test_on_a_device_without_room_nothing_waits_for_them(bench: Make) -> None:
    rig = bench().arm()
    rig.driver.full = True
    launched = rig.driver.calls.count("launch")
    rig.backend.read_timers("begin")
    rig.backend.read_timers("end")  # those of the begin have not run
    assert rig.driver.calls.count("launch") == launched + COUNT
    rig.driver.full = False
    assert rig.backend.collect(wait=False)[0].readings == ()
