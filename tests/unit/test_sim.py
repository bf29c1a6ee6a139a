"""The simulator as a machine: geometry, lanes, time, waiting, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from contract.reader import Lane, read
from hypothesis import given, settings
from hypothesis import strategies as st

import kscope
import kscope_sim
from kscope import frontends
from kscope.capture import Capture
from kscope.errors import PairingError, UsageError
from kscope.recording import Recording, log2_records
from kscope.sampling import Sampling
from kscope_sim import Machine, Warp


def capture(kernel: Any, *, recording: Recording | None = None, pool: int | None = None, **launch: Any) -> Capture:
    """One recorded launch."""
    frontend, backend = frontends.frontend("sim"), frontends.backend("sim")
    frontend.enable(recording or Recording(records=16))
    backend.arm(1, Sampling(), pool)
    try:
        kscope_sim.launch(kernel, **launch)
    finally:
        backend.disarm()
        frontend.disable()
    return Capture(1, tuple(backend.collect(wait=True)), backend.modules())


def record(kernel: Any, **options: Any) -> list[Lane]:
    return read(capture(kernel, **options))


def marked(warp: Warp) -> None:
    with kscope.region("work"):
        warp.work(100)


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
def test_a_machine_that_cannot_be_is_refused(machine: dict[str, Any]) -> None:
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
    frontend, backend = frontends.frontend("sim"), frontends.backend("sim")
    backend.arm(1, Sampling(), None)
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
def test_a_span_lasts_its_work_and_one_clock_read(ghz: Any) -> None:
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


def test_each_sm_has_a_clock_of_its_own_and_all_share_globaltimer() -> None:
    machine = Machine(sms=4)
    assert len({machine.clock64(sm, 0) for sm in range(4)}) == 4
    assert machine.globaltimer(100.0) - machine.globaltimer(0.0) == 96


# waiting


def test_a_barrier_brings_the_warps_of_a_block_together() -> None:
    after: list[int] = []

    def kernel(warp: Warp) -> None:
        warp.work(100 * warp.index)
        warp.sync()
        after.append(warp.now)

    kscope_sim.launch(kernel, block=128)
    assert len(set(after)) == 1


def test_a_warp_that_has_left_is_not_waited_for() -> None:
    def kernel(warp: Warp) -> None:
        if warp.index:
            warp.sync()

    kscope_sim.launch(kernel, block=96)


def test_a_waiter_goes_on_when_the_event_happens() -> None:
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


def test_a_block_that_waits_for_ever_is_named() -> None:
    with pytest.raises(UsageError, match="warp 0 waits for 'never' "):
        kscope_sim.launch(lambda warp: warp.wait("never"), block=64)


def test_what_a_kernel_raises_comes_out_of_the_launch() -> None:
    def kernel(warp: Warp) -> None:
        if warp.index == 1:
            raise ZeroDivisionError
        warp.wait("never")

    with pytest.raises(ZeroDivisionError):
        kscope_sim.launch(kernel, block=64)


def test_a_kernel_cannot_launch() -> None:
    with pytest.raises(UsageError, match="from the host"):
        kscope_sim.launch(lambda warp: kscope_sim.launch(marked))


# lanes


def test_a_divergent_branch_is_recorded_by_its_lanes() -> None:
    def kernel(warp: Warp) -> None:
        with warp.where(lambda lane: lane < 3), kscope.region("some"):
            warp.work(10)

    assert [lane.count for lane in record(kernel, recording=Recording(records=4, strategy=kscope.AllThreads()))] == [
        *[1] * 3,
        *[0] * 29,
    ]


def test_code_that_lane_0_does_not_reach_is_not_recorded_by_elected() -> None:
    def kernel(warp: Warp) -> None:
        with warp.where(range(1, 32)), kscope.region("others"):
            warp.work(10)

    assert [lane.count for lane in record(kernel)] == [0]


def test_a_branch_that_no_lane_takes_passes_no_time() -> None:
    def kernel(warp: Warp) -> None:
        began = warp.now
        with warp.where(0):
            warp.work(1000)
        assert warp.now == began

    kscope_sim.launch(kernel)


def test_lanes_that_leave_early_stay_out() -> None:
    def kernel(warp: Warp) -> None:
        with warp.where(0b1111):
            warp.leave(0b0011)
            assert warp.lanes == (2, 3)
        assert warp.lanes == tuple(range(2, 32))

    kscope_sim.launch(kernel)


def test_a_warp_that_traps_never_finishes() -> None:
    def kernel(warp: Warp) -> None:
        with kscope.region("before"):
            warp.work(10)
        with kscope.region("during"):
            if warp.block[0] == 1:
                warp.trap()

    lanes = record(kernel, grid=2)
    assert [(lane.life is None, lane.count) for lane in lanes] == [(False, 2), (True, 1)]


def test_a_region_may_have_a_value_per_lane() -> None:
    import numpy as np

    def kernel(warp: Warp) -> None:
        with kscope.region("lane", value=np.arange(32, dtype=np.uint32)):
            warp.work(1)

    lanes = record(kernel, recording=Recording(records=4, strategy=kscope.AllThreads()))
    assert [lane.records[0].value for lane in lanes] == list(range(32))


# pool


def test_a_pool_that_is_too_small_counts_who_was_lost_and_stores_nothing_else() -> None:
    taken = capture(marked, block=256, sms=1, pool=64 * 64)
    lanes = read(taken)
    assert len(lanes) + taken.devices[0].lost == 8
    assert taken.devices[0].lost > 0
    assert all(lane.count == 1 for lane in lanes)


def test_memory_is_freed_and_used_again_while_a_grid_runs() -> None:
    taken = capture(marked, grid=500, block=64, sms=2, pool=64 * 256)
    assert taken.devices[0].lost == 0
    assert len(read(taken)) == 1000


def test_the_claim_counter_may_pass_two_to_the_32() -> None:
    import numpy as np

    from kscope_sim import SimBackend

    frontend, backend = frontends.frontend("sim"), frontends.backend("sim")
    assert isinstance(backend, SimBackend)
    frontend.enable(Recording(records=4))
    backend.arm(1, Sampling(), 1 << 14)
    before = np.uint32(2**32 - 64)  # a whole number of turns around each ring
    backend.memory.stripes["head"] = before
    backend.memory.stripes["limit"] += before
    for cursor in backend._cursors:
        cursor.tail = int(before)
    kscope_sim.launch(marked, grid=200, sms=1)
    backend.disarm()
    frontend.disable()
    (device,) = backend.collect(wait=True)
    assert device.lost == 0
    assert len(read(Capture(1, (device,), backend.modules()))) == 200


# what is refused


def refused(kernel: Any) -> str:
    with pytest.raises(PairingError) as failure:
        record(kernel)
    return str(failure.value)


OPEN = kscope.scope("open")


def left_open(warp: Warp) -> None:
    OPEN.enter()


def never_entered(warp: Warp) -> None:
    OPEN.exit()


def entered_twice(warp: Warp) -> None:
    OPEN.enter()
    OPEN.enter()


def open_where_lanes_leave(warp: Warp) -> None:
    with OPEN:
        warp.leave(0b1)


def open_in_other_lanes(warp: Warp) -> None:
    with warp.where(0xFF):
        OPEN.enter()
    OPEN.exit()


@pytest.mark.parametrize(
    "kernel",
    [left_open, never_entered, entered_twice, open_where_lanes_leave, open_in_other_lanes],
    ids=lambda k: k.__name__,
)
def test_marks_that_do_not_pair_are_named_with_kernel_and_region(kernel: Any) -> None:
    assert f"kernel '{kernel.__name__}', warp 0" in refused(kernel)
    assert "'open'" in refused(kernel)


def test_a_region_may_nest_in_itself_through_recursion() -> None:
    def down(warp: Warp, depth: int) -> None:
        with kscope.region("down", value=depth):
            warp.work(10)
            if depth:
                down(warp, depth - 1)

    (lane,) = record(lambda warp: down(warp, 2))
    assert [record.value for record in lane.records] == [0, 1, 2]


def test_lanes_may_close_a_region_on_different_paths() -> None:
    def kernel(warp: Warp) -> None:
        OPEN.enter()
        for half in (0xFFFF, 0xFFFF0000):
            with warp.where(half):
                OPEN.exit()

    assert [lane.count for lane in record(kernel)] == [1]


@pytest.mark.parametrize("value", ["x", 1 << 32, -(1 << 31) - 1, True, [1], 1j])
def test_a_value_that_is_no_32_bit_number_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="32 bits"):
        record(lambda warp: kscope.instant("here", value))


def test_one_name_has_one_type_of_value() -> None:
    def kernel(warp: Warp) -> None:
        kscope.counter("depth", 1)
        kscope.counter("depth", 1.0)

    with pytest.raises(UsageError, match="type f32 at one place and i32 at another"):
        record(kernel)


def test_the_kernels_metadata_say_where_its_regions_are() -> None:
    (module,) = [m for m in capture(marked).modules if m.kernels[0].name == "marked"]
    (region,) = module.regions
    assert region.name == "work"
    assert (region.where or "").partition(":")[0] == __file__


# any geometry, any pool


@settings(max_examples=25, deadline=None)
@given(
    grid=st.integers(1, 12),
    threads=st.integers(1, 200),
    sms=st.integers(1, 20),
    pool=st.integers(2, 600),
    records=st.sampled_from([1, 4, 9, 64]),
    steps=st.integers(0, 12),
    seed=st.integers(0, 5),
)
def test_every_warp_is_recorded_or_counted_as_lost(
    grid: int, threads: int, sms: int, pool: int, records: int, steps: int, seed: int
) -> None:
    def kernel(warp: Warp) -> None:
        for k in range(steps):
            with kscope.region("step", value=k):
                warp.work(warp.random.randrange(100))

    recording = Recording(records=records)
    taken = capture(kernel, recording=recording, pool=64 * pool, grid=grid, block=threads, sms=sms, seed=seed)
    lanes = read(taken)
    assert len(lanes) + taken.devices[0].lost == grid * -(-threads // 32)
    assert len({lane.key for lane in lanes}) == len(lanes)
    kept = min(steps, 1 << log2_records(records))
    for lane in lanes:
        assert lane.count == steps
        assert [record.value for record in lane.records] == list(range(steps - kept, steps))
