"""The simulator as a machine: geometry, states, time, waiting."""

from __future__ import annotations

from typing import Any

import pytest
from simulated import capture, marked, record

import kscope
import kscope_sim
from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope_sim import Machine, Warp, module

# geometry


def test_a_kernel_is_called_once_per_warp_of_every_block() -> None:
    seen: list[tuple[Any, ...]] = []

    def kernel(warp: Warp) -> None:
        seen.append((warp.block, warp.index, len(warp.lanes)))

    kscope_sim.launch(kernel, grid=(2, 2), block=(10, 5))
    assert seen == [((x, y, 0), w, lanes) for y in (0, 1) for x in (0, 1) for w, lanes in ((0, 32), (1, 18))]


def test_lanes_are_threads_in_linear_order() -> None:
    def kernel(warp: Warp) -> None:
        for lane in warp.lanes:
            x, y, z = warp.thread(lane)
            assert x + 4 * (y + 3 * z) == 32 * warp.index + lane

    kscope_sim.launch(kernel, block=(4, 3, 5))


def test_arguments_reach_the_kernel() -> None:
    out: list[int] = []
    kscope_sim.launch(lambda warp, a, b: out.append(a + b), args=(1, 2))
    assert out == [3]


def test_blocks_run_in_waves_over_the_sms() -> None:
    lanes = record(marked, grid=6, sms=4)
    assert [lane.smid for lane in lanes] == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize(
    "geometry",
    [{"grid": 0}, {"grid": (1, 70000)}, {"block": 1025}, {"block": (32, 33)}, {"block": ()}, {"grid": (1,) * 4}],
)
def test_a_geometry_that_no_gpu_has_is_refused(geometry: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        kscope_sim.launch(marked, **geometry)


@pytest.mark.parametrize("machine", [{"sms": 0}, {"sms": 513}, {"resident": 0}, {"ghz": (1.0,)}, {"offsets": (1, 2)}])
def test_impossible_simulated_machines_are_refused(machine: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Machine(**machine)


# states


def test_a_plain_kernel_records_nothing_and_takes_no_longer() -> None:
    ends: list[int] = []

    def kernel(warp: Warp) -> None:
        began = warp.now
        marked(warp)
        ends.append(warp.now - began)

    kscope_sim.launch(kernel)
    assert ends == [100]
    assert [device.lines.size for device in capture(lambda warp: None).devices] == [0]


def test_a_prepared_kernel_that_is_not_armed_records_nothing() -> None:
    frontend, backend = registry.frontend("sim"), registry.backend("sim")
    backend.arm(1, Subset(), None)
    backend.disarm()
    frontend.enable(Recording())
    kscope_sim.launch(marked)
    frontend.disable()
    assert backend.collect(wait=True)[0].lines.size == 0


def test_the_same_seed_gives_the_same_words() -> None:
    def kernel(warp: Warp) -> None:
        with kscope.region("work"):
            warp.work(warp.random.randrange(1000))

    one, same, other = (capture(kernel, grid=3, seed=seed).devices[0].lines for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


# time


@pytest.mark.parametrize("ghz", [1.0, 1.98, (1.5, 1.6)])
def test_span_durations_are_their_work_plus_one_clock_read(ghz: Any) -> None:
    lanes = record(marked, machine=Machine(sms=2, ghz=ghz), grid=4)
    assert {record.end - record.start for lane in lanes for record in lane.records} == {107}


def test_globaltimer_goes_in_ticks() -> None:
    (lane,) = record(marked, recording=Recording(records=4, clock="globaltimer"), machine=Machine(tick_ns=32, ghz=1.0))
    (span,) = lane.records
    assert (span.end - span.start) % 32 == 0
    assert abs(span.end - span.start - 107) <= 32


def test_clocks_may_wrap_within_a_region() -> None:
    (lane,) = record(marked, machine=Machine(sms=1, ghz=1.0, offsets=((1 << 32) - 2060,)))
    (span,) = lane.records
    assert span.end - span.start == 107


def test_each_sm_has_a_clock_and_all_share_globaltimer() -> None:
    machine = Machine(sms=4)
    assert len({machine.clock64(sm, 0) for sm in range(4)}) == 4
    assert machine.globaltimer(100.0) - machine.globaltimer(0.0) == 96


# waiting


def test_a_barrier_synchronizes_the_warps_of_a_block() -> None:
    after: list[int] = []

    def kernel(warp: Warp) -> None:
        warp.work(100 * warp.index)
        warp.sync()
        after.append(warp.now)

    kscope_sim.launch(kernel, block=128)
    assert len(set(after)) == 1


def test_barriers_do_not_wait_for_exited_warps() -> None:
    def kernel(warp: Warp) -> None:
        if warp.index:
            warp.sync()

    kscope_sim.launch(kernel, block=96)


def test_a_waiting_warp_continues_when_the_event_arrives() -> None:
    times: dict[str, int] = {}

    def kernel(warp: Warp) -> None:
        if warp.role == "producer":
            warp.work(500)
            warp.arrive("full")
        else:
            warp.wait("full")
        times[str(warp.role)] = warp.now

    kscope_sim.launch(kernel, block=64, roles={"producer": (1,), "consumer": (0,)})
    assert times["producer"] == times["consumer"]


def test_several_arrivals_can_be_waited_for() -> None:
    def kernel(warp: Warp) -> None:
        began = warp.now
        if warp.index:
            warp.work(100 * warp.index)
            warp.arrive("done")
        else:
            warp.wait("done", arrivals=3)
            assert warp.now - began == 300

    kscope_sim.launch(kernel, block=128)


def test_a_block_that_waits_forever_is_reported() -> None:
    with pytest.raises(UsageError, match="warp 0 waits for 'never' "):
        kscope_sim.launch(lambda warp: warp.wait("never"), block=64)


def test_kernel_exceptions_are_raised_by_launch() -> None:
    def kernel(warp: Warp) -> None:
        if warp.index == 1:
            raise ZeroDivisionError
        warp.wait("never")

    with pytest.raises(ZeroDivisionError):
        kscope_sim.launch(kernel, block=64)


def test_kernels_cannot_launch_kernels() -> None:
    with pytest.raises(UsageError, match="from the host"):
        kscope_sim.launch(lambda warp: kscope_sim.launch(marked))


def test_each_name_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check for equal hashes compared each name with all others."""
    names, hashed = 500, list[str]()
    monkeypatch.setattr(module.layout, "name_hash", lambda name: hashed.append(name) or len(hashed))

    def kernel(warp: Warp) -> None:
        for number in range(names):
            with kscope.region(f"r{number}"):
                warp.work(1)

    with kscope.profile():
        kscope_sim.launch(kernel)
    assert len(hashed) <= 3 * names
