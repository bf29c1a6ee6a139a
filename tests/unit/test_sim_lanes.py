"""The simulator's lanes, pool and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contract.reader import read
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import capture, marked, record

import kscope
import kscope_sim
from kscope.capture.capture import Capture
from kscope.errors import PairingError, UsageError
from kscope.instrument import registry
from kscope.instrument.recording import Recording, log2_records
from kscope.instrument.subset import Subset
from kscope_sim import Warp

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


def test_an_untaken_branch_takes_no_time() -> None:
    def kernel(warp: Warp) -> None:
        began = warp.now
        with warp.where(0):
            warp.work(1000)
        assert warp.now == began

    kscope_sim.launch(kernel)


def test_exited_lanes_stay_inactive() -> None:
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

    def kernel(warp: Warp) -> None:
        with kscope.region("lane", value=np.arange(32, dtype=np.uint32)):
            warp.work(1)

    lanes = record(kernel, recording=Recording(records=4, strategy=kscope.AllThreads()))
    assert [lane.records[0].value for lane in lanes] == list(range(32))


def test_warps_claim_at_their_entry_only_for_marks_of_kscope() -> None:
    window = SimpleNamespace(region=lambda name: None, counter=0)

    def own_names(warp: Warp) -> None:
        window.region("left")
        warp.work(100 + window.counter)

    def never_reached(warp: Warp) -> None:
        if warp.block[0]:
            with kscope.region("work"):
                warp.work(1)

    assert record(own_names) == []
    assert [lane.count for lane in record(never_reached)] == [0]


# pool


def test_a_full_pool_counts_lost_lanes_and_stores_no_partial_data() -> None:
    taken = capture(marked, block=256, sms=1, pool=64 * 64)
    lanes = read(taken)
    assert len(lanes) + taken.devices[0].lost == 8
    assert taken.devices[0].lost > 0
    assert all(lane.count == 1 for lane in lanes)


def test_memory_is_freed_and_used_again_while_a_grid_runs() -> None:
    taken = capture(marked, grid=500, block=64, sms=2, pool=64 * 256)
    assert taken.devices[0].lost == 0
    assert len(read(taken)) == 1000


def test_the_claim_counter_may_wrap_at_32_bits() -> None:

    from kscope_sim import SimBackend

    frontend, backend = registry.frontend("sim"), registry.backend("sim")
    assert isinstance(backend, SimBackend)
    frontend.enable(Recording(records=4))
    backend.arm(1, Subset(), 1 << 14)
    before = np.uint32(2**32 - 64)  # a whole number of turns around each ring
    backend.device.memory.stripes["head"] = before
    backend.device.memory.stripes["limit"] += before
    backend.device._tails = [int(before)] * len(backend.device._tails)
    kscope_sim.launch(marked, grid=200, sms=1)
    backend.disarm()
    frontend.disable()
    (device,) = backend.collect(wait=True)
    assert device.lost == 0
    assert len(read(Capture(1, (device,), backend.modules()))) == 200


# refusals


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


@pytest.mark.parametrize("value", ["x", 1 << 64, -(1 << 63) - 1, True, [1], 1j])
def test_values_that_are_no_numbers_of_64_bits_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="32 or 64 bits"):
        record(lambda warp: kscope.instant("here", value))


def test_a_kernel_that_cannot_be_hashed_records() -> None:
    @dataclass
    class Kernel:
        value: int

        def __call__(self, warp: Warp) -> None:
            with kscope.region("work", value=self.value):
                warp.work(10)

    with kscope.profile() as prof:
        for value in (3, 4):
            kscope_sim.launch(Kernel(value), grid=1, block=32)
    assert sorted(prof.trace.value.tolist()) == [3.0, 4.0]


def test_one_name_has_one_type_of_value() -> None:
    def kernel(warp: Warp) -> None:
        kscope.counter("depth", 1)
        kscope.counter("depth", 1.0)

    def both(warp: Warp) -> None:
        with kscope.region("depth", value=3):
            kscope.counter("depth", 1.5)

    for wrong in (kernel, both):
        with pytest.raises(UsageError, match="type f32 at one place and i32 at another"):
            record(wrong)


def test_kernel_metadata_have_region_locations() -> None:
    (module,) = [m for m in capture(marked).modules if m.kernels[0].name == "marked"]
    (region,) = module.regions
    assert region.name == "work"
    assert (region.where or "").partition(":")[0] == marked.__code__.co_filename


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
