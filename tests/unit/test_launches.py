"""Launches: one %gridid may run many times, and a launch may be recorded in part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture.capture_data import BegunLaunch, LaunchCount
from kscope.capture.model import Problem
from kscope.trace import Trace, decode
from kscope.tracedata.data import LostLaunches

US = 1980  # cycles


def warp(
    start: int, *, block: int = 0, grid: int = 4, warp: int = 0, grid_id: int = 1, kernel: int = synth.KERNEL
) -> np.ndarray:
    """A warp of 5 us that starts at a time in us."""
    return synth.slab(
        [synth.Rec("load", start * US + 10, start * US + 20)], start=start * US, end=(start + 5) * US, log2=2,
        block=(block, 0, 0), grid=(grid, 1, 1), warp=warp, grid_id=grid_id, kernel=kernel,
    )  # fmt: skip


def partial(trace: Trace) -> int:
    return sum(problem.count for problem in trace.problems if problem.kind == "partial")


def test_replays_of_one_grid_are_separate_launches() -> None:
    slabs = [warp(100 + 10 * replay, block=block) for replay in range(100) for block in range(4)]
    order = np.random.default_rng(0).permutation(len(slabs)).tolist()
    trace = decode(synth.capture(*(slabs[index] for index in order)))
    assert len(trace.launches) == 100
    assert [launch.replay for launch in trace.launches] == list(range(100))
    assert (trace.warps.launch == np.array(order) // 4).all()
    assert partial(trace) == 0


def test_a_lost_claim_does_not_shift_a_lane_into_another_replay() -> None:
    slabs = [
        warp(100 + 10 * replay, block=block) for replay in range(5) for block in range(4) if (replay, block) != (2, 3)
    ]
    trace = decode(synth.capture(*slabs))
    assert len(trace.launches) == 5
    assert np.bincount(trace.warps.launch).tolist() == [4, 4, 3, 4, 4]
    assert partial(trace) == 1


def test_launches_that_overlap_are_distinguished_by_grid_and_kernel() -> None:
    slabs = [warp(1, grid_id=1), warp(2, grid_id=2), warp(3, grid_id=2, kernel=5), warp(4, grid_id=1, warp=1)]
    trace = decode(synth.capture(*slabs))
    assert trace.warps.launch.tolist() == [0, 1, 2, 0]


def test_launches_are_numbered_by_their_start() -> None:
    trace = decode(synth.capture(warp(30, grid_id=1), warp(10, grid_id=9), warp(20, grid_id=5)))
    assert trace.warps.launch.tolist() == [2, 0, 1]
    assert [launch.grid_id for launch in trace.launches] == [9, 5, 1]


def test_missing_blocks_make_a_launch_partial_unless_sampled() -> None:
    capture = synth.capture(warp(1, block=0), warp(1, block=2))
    [problem] = [problem for problem in decode(capture).problems if problem.kind == "partial"]
    assert "1 launch recorded in part (2 blocks missing)" in problem.text
    from dataclasses import replace

    assert partial(decode(replace(capture, options={"block": [0, 4, 2]}))) == 0


def test_a_grid_beyond_32_bits_of_blocks_is_indexed_exactly() -> None:
    slab = synth.slab([], block=(2**31 - 2, 65534, 65534), grid=(2**31 - 1, 65535, 65535))
    trace = decode(synth.capture(slab))
    assert trace.warps.block.tolist() == [(2**31 - 2) + (2**31 - 1) * (65534 + 65535 * 65534)]
    assert trace.warps.label(0) == f"block {2**31 - 2},65534,65534 warp 0"


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3), st.integers(1, 2)), max_size=30))
def test_each_lane_occurs_once_per_launch_even_after_losses(claims: set[tuple[int, int, int, int]]) -> None:
    slabs = [warp(100 * time, block=block, warp=lane, grid_id=grid) for time, block, lane, grid in claims]
    trace = decode(synth.capture(*slabs))
    keys = list(zip(trace.warps.launch.tolist(), trace.warps.block.tolist(), trace.warps.warp.tolist(), strict=True))
    assert len({*keys}) == len(keys)


# launches lost to a full pool

WARPS, BLOCKS = 2, 3


def launches(dropped: set[tuple[int, int, int]], *, replays: int = 1, **changes: Any) -> Trace:
    """A trace of 4 launches of 3 blocks of 2 warps, each run `replays` times, without the dropped (run, block, warp).
    The host saw 4 launches."""
    slabs = [
        warp(100 + 10 * (number * replays + replay), block=block, grid=BLOCKS, warp=index, grid_id=number)
        for number in range(4)
        for replay in range(replays)
        for block in range(BLOCKS)
        for index in range(WARPS)
        if (number * replays + replay, block, index) not in dropped
    ]
    capture = replace(synth.capture(*slabs, lost=len(dropped)), launches={synth.KERNEL: LaunchCount(4)})
    return decode(replace(capture, **changes))


def texts(trace: Trace) -> list[str]:
    return [problem.text for problem in trace.problems if problem.kind in ("partial", "unrecorded")]


ALL = {(block, index) for block in range(BLOCKS) for index in range(WARPS)}
GONE = {(1, *place) for place in ALL}
PARTS = {(2, 0, 0), (3, 1, 0), (3, 1, 1)}


def test_a_full_pool_is_reported_by_kernel_and_by_launch() -> None:
    trace = launches(GONE | PARTS)
    assert [launch.missing for launch in trace.launches] == [0, 1, 2]
    assert trace.lost_launches == (LostLaunches("matmul", synth.KERNEL, 1, 4),)
    assert texts(trace) == [
        "kernel matmul: 2 launches recorded in part, at least 3 warps missing",
        "kernel matmul: at least 1 of 4 launches left no record",
    ]
    assert {problem.kernel for problem in trace.problems if problem.kind in ("partial", "unrecorded")} == {"matmul"}


def test_a_kernel_without_any_record_is_named() -> None:
    trace = launches({(number, *place) for number in range(4) for place in ALL})
    assert texts(trace) == ["kernel matmul: at least 4 of 4 launches left no record"]


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {"block": [0, 2, 1]}},
        {"launches": {}},
        {"launches": {5: LaunchCount(9)}},  # a kernel that kernels= removed
        {"problems": (Problem("drain", "draining stopped"),)},
    ],
    ids=str,
)
def test_launches_are_reported_as_lost_only_if_nothing_else_explains_them(changes: dict[str, Any]) -> None:
    trace = launches(GONE, **changes)
    assert trace.lost_launches == () and texts(trace) == []


def test_a_fault_names_the_kernels_with_a_launch_that_left_no_record() -> None:
    """An illegal address cancels the stores of its own launch."""
    broken = (Problem("driver", "the context is broken"),)
    whole = launches(set(), problems=broken, launches={synth.KERNEL: LaunchCount(4)})
    assert whole.lost_launches == () and texts(whole) == []
    trace = launches(set(), problems=broken, launches={synth.KERNEL: LaunchCount(5)})
    assert trace.lost_launches == (LostLaunches("matmul", synth.KERNEL, 1, 5),)
    (text,) = texts(trace)
    assert text.startswith("kernel matmul: at least 1 of 5 launches left no record: the fault is in this kernel")


def test_a_fault_names_the_kernels_with_a_launch_that_left_records_of_some_warps() -> None:
    slabs = [warp(100, block=block, grid=BLOCKS, warp=index) for block, index in ((0, 0), (0, 1), (1, 0))]
    trace = decode(replace(synth.capture(*slabs), problems=(Problem("driver", "the context is broken"),)))
    assert [launch.missing for launch in trace.launches] == [3]
    (text,) = texts(trace)
    assert text.startswith("kernel matmul: 1 launch recorded in part, at least 3 warps missing: the fault lost their")


BROKEN = (Problem("driver", "the context is broken"),)
CUTE = replace(synth.module(name="cute_gemm", kernel=5), frontend="cute")


def after_a_fault(*begun: BegunLaunch, launches: dict[int, LaunchCount] | None = None, lose: int = 0) -> Trace:
    """Launch 1 of kernel matmul, whole, and what the launch table has. The host counted no launch of either kernel."""
    capture = synth.capture(*(warp(100, block=block) for block in range(4 - lose)))
    devices = (replace(capture.devices[0], begun=begun),)
    modules = (*capture.modules, CUTE)
    return decode(replace(capture, devices=devices, modules=modules, problems=BROKEN, launches=launches or {}))


def test_a_fault_names_a_kernel_of_which_only_the_launch_table_knows() -> None:
    """Launches like those of CuTe's and nvcc's kernels, which the host does not see."""
    trace = after_a_fault(BegunLaunch(synth.KERNEL, 1, 100_000), BegunLaunch(5, 2, 106_000))
    assert trace.lost_launches == (LostLaunches("cute_gemm", 5, 1, 1),)
    (text,) = texts(trace)
    assert text.startswith("kernel cute_gemm: at least 1 of 1 launch left no record: the fault is in this kernel")


def test_a_fault_names_the_kernel_of_a_replay_that_left_no_record_though_earlier_ones_did() -> None:
    """The warps of launch 1 ran from 100 to 105 us; its entry has the time of its last replay."""
    assert after_a_fault(BegunLaunch(synth.KERNEL, 1, 104_000)).lost_launches == ()
    trace = after_a_fault(BegunLaunch(synth.KERNEL, 1, 106_000))
    assert trace.lost_launches == (LostLaunches("matmul", synth.KERNEL, 1, 2),)


def test_a_drain_that_stopped_explains_launches_without_records() -> None:
    capture = synth.capture(warp(100, grid=1))
    device = replace(capture.devices[0], begun=(BegunLaunch(synth.KERNEL, 2, 106_000),))
    for problems, count in ((BROKEN, 1), ((*BROKEN, Problem("drain", "draining stopped")), 0)):
        assert len(decode(replace(capture, devices=(device,), problems=problems)).lost_launches) == count


def test_a_launch_that_the_host_counted_is_not_counted_again() -> None:
    begun = BegunLaunch(synth.KERNEL, 2, 106_000)
    trace = after_a_fault(begun, launches={synth.KERNEL: LaunchCount(2), 5: LaunchCount()})
    assert trace.lost_launches == (LostLaunches("matmul", synth.KERNEL, 1, 2),)


def test_a_fault_without_any_trace_names_the_kernels_whose_launches_are_not_counted() -> None:
    (text,) = texts(after_a_fault(launches={synth.KERNEL: LaunchCount(1)}))
    assert text.startswith("no kernel shows the fault: it is in a kernel without marks, or in one ")
    assert text.endswith("whose launches are not counted: cute_gemm")
    (partial,) = texts(after_a_fault(launches={synth.KERNEL: LaunchCount(1)}, lose=1))
    assert partial.startswith("kernel matmul: 1 launch recorded in part")


def test_nothing_is_missing_if_the_pool_was_never_full() -> None:
    trace = launches(set(), launches={synth.KERNEL: LaunchCount(9)})
    assert trace.lost_launches == () and texts(trace) == []


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, BLOCKS - 1), st.integers(0, WARPS - 1))), st.booleans())
def test_loss_counts_are_never_too_high(dropped: set[tuple[int, int, int]], graph: bool) -> None:
    """Whichever warps found no room, in launches or in replays of a graph."""
    replays = 2 if graph else 1
    dropped = {place for place in dropped if place[0] < 4 * replays}
    gone = sum(all((number, *place) in dropped for place in ALL) for number in range(4 * replays))
    trace = launches(dropped, replays=replays, launches={synth.KERNEL: LaunchCount(0, 8) if graph else LaunchCount(4)})
    assert sum(lost.count for lost in trace.lost_launches) == gone
    assert sum(launch.missing for launch in trace.launches) <= len(dropped)


def test_a_replay_that_pauses_between_its_blocks_may_be_several() -> None:
    """So the trace has three replays of the graph at most, and the fourth is lost."""
    slabs = [warp(start, block=block, grid=2) for start, block in ((100, 0), (120, 1), (140, 0))]
    found = [
        decode(replace(synth.capture(*slabs, lost=9), launches={synth.KERNEL: LaunchCount(0, count)})).lost_launches
        for count in (3, 4)
    ]
    assert found == [(), (LostLaunches("matmul", synth.KERNEL, 1, 4),)]


def test_a_coarse_timer_does_not_distinguish_replays() -> None:
    capture = replace(synth.capture(warp(100), lost=9), launches={synth.KERNEL: LaunchCount(0, 5)})
    for tick, count in ((32, 1), (1024, 0), (0, 0)):
        (device,) = capture.devices
        assert len(decode(replace(capture, devices=(replace(device, tick_ns=tick),))).lost_launches) == count
