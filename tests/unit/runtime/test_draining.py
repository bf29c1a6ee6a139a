"""Random interleavings of claims, stores and passes: no record is lost, doubled or mixed up, and no memory
is used by two lanes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kscope.capture import layout, wire
from kscope.capture.layout import Kind, record_id
from kscope.capture.metadata import to_json
from kscope.capture.model import KernelMeta, ModuleMeta, RowLayout
from kscope.decoding import slabs
from kscope_runtime.staging import BATCH

from .compiled import Points
from .conftest import Bench
from .fake import KERNEL, FakeDriver, Lane

SLAB = 96  # bytes, for four records

SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
START = st.sampled_from([0, 5, 0xFFFF_FFF0, 0x7FFF_FFF8])
"""Units claimed before: counters exceed 2^32 sooner or later."""
COPY = st.sampled_from([BATCH, 24 * wire.UNIT])
"""How much a copy holds: of a large pool less than a ring."""

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.integers(0, 5), st.sampled_from([2, 2, 2, 3, 4, 5])),
        st.tuples(st.just("header"), st.integers(0, 9)),
        st.tuples(st.just("record"), st.integers(0, 9), st.integers(1, 20)),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("run"), st.integers(0, 5), st.sampled_from([2, 3, 4]), st.integers(1, 30)),
        st.tuples(st.just("pass"), st.lists(st.tuples(st.integers(0, 5), st.sampled_from([2, 3, 4])), max_size=3)),
        st.tuples(st.just("snapshot")),
    ),
    max_size=60,
)


def keys(lines: np.ndarray[Any, Any], epoch: int = 1) -> Counter[tuple[int, int, bool]]:
    """(block, records, finished) of every slab; fails on slabs that are torn or overlap."""
    found, problems = slabs.find(lines, epoch)
    assert problems == []
    blocks, counts = found.header["ctaid_x"].tolist(), found.header["count"].tolist()
    return Counter(zip(blocks, counts, found.finished.tolist(), strict=True))


def start_counters(bench: Bench, start: int) -> None:
    """Pretend that this many units had been claimed and drained before."""
    stripes = bench.memory.stripes
    stripes["head"] = stripes["head"] + np.uint32(start)
    stripes["limit"] = stripes["limit"] + np.uint32(start)
    bench.drain._passes.adopt()


@SETTINGS
@pytest.mark.parametrize(
    "points", [lambda driver: None, lambda driver: Points().of(driver)], ids=["call by call", "compiled calls"]
)
@given(actions=ACTIONS, start=START, copy=COPY)
def test_every_claim_is_drained_once_or_counted_as_lost(
    by_hand: None, at_once: None, points: Any, actions: list[Any], start: int, copy: int
) -> None:
    with patch("kscope_runtime.staging.BATCH", copy), patch.object(FakeDriver, "entry_points", points):
        bench = Bench().arm()
    start_counters(bench, start)
    passes = bench.drain._passes
    lanes: list[Lane] = []
    waiting: list[Lane] = []

    def run(sm: int, log2: int) -> None:
        lanes.append(Lane(bench.memory, sm=sm, log2=log2, block=len(lanes)).run())

    for action, *arguments in actions:
        if action == "claim":
            lanes.append(Lane(bench.memory, sm=arguments[0], log2=arguments[1], block=len(lanes)).claim())
            waiting.append(lanes[-1])
        elif action == "run":
            sm, log2, count = arguments
            for _ in range(count):
                run(sm, log2)
        elif action == "pass":
            passes._again[:] = 0
            bench.driver.meanwhile = [partial(run, *warp) for warp in arguments[0]]  # one between any two copies
            passes.once(share=1 << 20)
            bench.driver.meanwhile = []
            check_memory(bench, waiting)
        elif action == "snapshot":
            before = [lane for lane in lanes if lane not in waiting and lane.slab]
            got = keys(bench.drain.snapshot())
            assert all(got[lane.thread.ctaid[0], lane.written, True] == 1 for lane in before)
        elif waiting:
            lane = waiting[arguments[0] % len(waiting)]
            if action == "header":
                lane.begin()
            elif action == "record":
                lane.record(arguments[1])
            else:
                lane.leave()
                waiting.remove(lane)
    for lane in waiting:
        lane.begin()
    bench.backend.disarm()
    (device,) = bench.backend.collect(wait=True)
    granted = [lane for lane in lanes if lane.slab is not None]
    expected = Counter(
        (lane.thread.ctaid[0], 0 if lane in waiting else lane.written, lane not in waiting) for lane in granted
    )
    assert keys(device.lines) == expected
    assert device.lost == len(lanes) - len(granted)
    device = bench.drain.device
    assert device.pool is not None and device.rings is not None
    assert not bench.gpu.view(device.pool.address, device.rings.total).any()


def check_memory(bench: Bench, open_lanes: list[Lane]) -> None:
    """Units that a lane has claimed and still writes to are never given to another one, nor cleared."""
    stripes = bench.memory.stripes
    for lane in open_lanes:
        if lane.slab is None:
            continue
        n = wire.slab_units(lane.thread.log2_records)
        for stripe in stripes:
            units = int(stripe["mask"]) + 1
            offset = (lane.slab.base - int(stripe["base"])) // wire.UNIT
            if not 0 <= offset < units:
                continue
            # positions that may be granted now: [limit - units, limit), from head on
            room = int(stripe["limit"]) - int(stripe["head"]) & 0xFFFFFFFF
            for step in range(room if room <= units else 0):
                at = int(stripe["head"]) + step & units - 1
                assert not offset <= at < offset + n, "a unit of an open slab may be claimed again"
        if lane.written and not lane.memory.pending:
            assert bench.gpu.view(lane.slab.base, wire.UNIT).any(), "an open slab was cleared"


@SETTINGS
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=60, max_size=120), st.sampled_from([2, 3, 4]))
def test_a_busy_stream_of_short_warps_never_stalls_a_stripe(
    by_hand: None, warps: list[tuple[int, bool]], log2: int
) -> None:
    """One lane is always on its way: the sums never agree, and yet nothing is lost."""
    bench = Bench().arm()
    passes = bench.drain._passes
    late: list[Lane] = []
    for block, (sm, slow) in enumerate(warps):
        lane = Lane(bench.memory, sm=sm, log2=log2, block=block).claim()
        late.append(lane)
        if not slow or len(late) > 2:
            late.pop(0).begin().record(2).leave()
        passes.once(share=1 << 20)
    for lane in late:
        lane.begin().record(2).leave()
    (device,) = bench.backend.collect(wait=True)
    assert device.lost == 0
    assert sum(keys(device.lines).values()) == len(warps)


def test_a_slab_that_stays_open_holds_its_own_stripe_alone(by_hand: None) -> None:
    bench = Bench().arm()
    still = Lane(bench.memory, sm=0, block=999).claim().begin()
    for block in range(200):
        Lane(bench.memory, sm=1, block=block).run()
        bench.drain._passes.once(share=4)
    assert bench.drain.lost() == 0
    still.record(3).leave()
    (device,) = bench.backend.collect(wait=True)
    assert sum(keys(device.lines).values()) == 201


def test_lanes_without_pool_space_stop_recording_and_are_counted(by_hand: None) -> None:
    bench = Bench().arm()
    lanes = [Lane(bench.memory, sm=block % 4, block=block).run() for block in range(1000)]
    granted = sum(lane.slab is not None for lane in lanes)
    rings = bench.drain.device.rings
    assert rings is not None
    assert granted == 4 * (rings.each // SLAB) + rings.reserve // SLAB
    (device,) = bench.backend.collect(wait=True)
    assert device.lost == 1000 - granted and sum(keys(device.lines).values()) == granted


def test_after_a_full_pool_was_drained_lanes_record_again(by_hand: None) -> None:
    bench = Bench().arm()
    for block in range(1000):
        Lane(bench.memory, sm=0, block=block).run()
    passes = bench.drain._passes
    passes.once(share=1 << 20)
    assert Lane(bench.memory, sm=0, block=2000).run().slab is not None
    passes.once(share=1 << 20)
    assert Lane(bench.memory, sm=0, block=2001).run().slab is not None


def test_a_record_that_is_late_keeps_a_finished_slab_from_being_freed(by_hand: None) -> None:
    bench = Bench().arm()
    lane = Lane(bench.memory, sm=0).claim().begin()
    assert lane.slab is not None
    lane.slab.store("load", layout.Kind.SPAN, 1, 2)
    record = lane.memory.pending.pop()
    lane.written = 1
    lane.leave()
    passes = bench.drain._passes
    assert passes.once(share=1 << 20) == 0
    lane.memory.pending.append(record)
    lane.memory.happen()
    passes._again[:] = 0
    assert passes.once(share=1 << 20) == SLAB


def test_slabs_of_an_old_session_are_left_out(by_hand: None) -> None:
    bench = Bench().arm(epoch=1)
    old = Lane(bench.memory, sm=0, block=1).claim()
    Lane(bench.memory, sm=0, block=2).run()
    bench.backend.arm(2, bench.backend._session.subset, bench.pool)  # type: ignore[union-attr]  # it is armed
    Lane(bench.memory, sm=0, block=3).run()
    old.begin().record(2).leave()
    (device,) = bench.backend.collect(wait=True)
    assert list(keys(device.lines, epoch=2)) == [(3, 2, True)]


@pytest.mark.parametrize("log2", [2, 8, 10])
def test_slabs_of_every_size_are_drained(by_hand: None, log2: int) -> None:
    bench = Bench()
    bench.pool = 1 << 20
    bench.arm()
    for block in range(50):
        Lane(bench.memory, sm=block % 4, log2=log2, block=block).run(records=9)
        bench.drain._passes.once(share=1 << 20)
    (device,) = bench.backend.collect(wait=True)
    assert keys(device.lines) == Counter((block, 9, True) for block in range(50))


def test_later_refused_claims_do_not_close_an_open_gap(by_hand: None) -> None:
    """A gap of six units over the ring's edge: a lane on its way, and one that was refused. Later one more is
    refused: then as many units were skipped as the gap has, and yet a lane will write to it."""
    bench = Bench().arm()
    passes = bench.drain._passes
    for block in range(20):
        Lane(bench.memory, block=block).run()  # units 0 to 60 of 64
    slow = Lane(bench.memory, block=100).claim()
    Lane(bench.memory, block=101).run()
    passes.once(share=1 << 20)  # frees 60 units
    for block in range(200, 220):
        Lane(bench.memory, block=block).run()
    assert slow.slab is not None and bench.memory.stripes["head"][0] > bench.memory.stripes["limit"][0]
    stripe = bench.memory.stripes[0]
    passes._again[:] = 0
    passes.once(share=1 << 20)
    assert int(stripe["limit"]) == 60 + 64, "the memory of a lane that is on its way was freed"
    slow.begin().record(2).leave()
    passes._again[:] = 0
    passes.once(share=1 << 20)
    assert Lane(bench.memory, block=300).run().slab is not None
    (device,) = bench.backend.collect(wait=True)
    assert keys(device.lines)[100, 2, True] == 1


@pytest.mark.parametrize("ends", [False, True], ids=["hangs", "ends"])
def test_wrapped_positions_do_not_reuse_an_open_slab(by_hand: None, ends: bool) -> None:
    """A warp that never ends, and enough refused lanes beside it to wrap positions."""
    made = Bench().arm()
    memory = made.memory
    still = Lane(memory, block=1).claim().begin()
    room = [Lane(memory, block=2 + n).run() for n in range(19)]
    assert still.slab is not None and all(lane.slab is not None for lane in room)
    left = 2**32 - 90
    while left:
        units = min(left, 1 << 29)
        memory.atom_add(0, "head", units)
        memory.atom_add(0, "skipped", units)
        left -= units
        made.drain._passes._again[:] = 0
        made.drain._passes.once(1 << 20)
        assert made.drain._passes.state.claimed(memory.stripes["head"])[0] >= 64
    late = [Lane(memory, block=100 + n).claim() for n in range(60)]
    taken = {lane.slab.base for lane in (still, *room) if lane.slab is not None}
    assert not taken & {lane.slab.base for lane in late if lane.slab is not None}
    for lane in late:
        lane.begin().record().leave()
    if ends:
        still.record().leave()
    made.backend.disarm()
    (device,) = made.backend.collect(wait=ends)
    found, problems = slabs.find(device.lines, 1)
    assert problems == []
    expected = {1, *range(2, 21), *(100 + n for n, lane in enumerate(late) if lane.slab is not None)}
    assert set(found.header["ctaid_x"].tolist()) == expected
    if ends:  # and the ring is used again
        assert memory.stripes["limit"][0] - memory.stripes["head"][0] == 64


def test_rows_of_a_modules_layouts_become_records(by_hand: None) -> None:
    """The layouts are known from when the module is armed, also where that is in a session."""
    rig = Bench().arm()
    about = RowLayout(((record_id("load", Kind.SPAN), 0, 1), (record_id("dot", Kind.SPAN), 1, 2)))
    meta = ModuleMeta("triton", (KernelMeta("kernel", KERNEL, 2),), (), placement="schedule", layouts=(about,))
    rig.gpu.module(9, meta=to_json(meta) + b"\0")
    rig.backend.module_loaded(9)
    lane = Lane(rig.memory).claim().begin()
    assert lane.slab is not None
    for clock in (200, 300):
        lane.slab._put(clock, about.row_id, clock + 10, clock + 20)
        lane.slab.off += layout.RECORD_BYTES
    lane.leave()
    rig.take()
    lines = rig.drain.lines()
    assert keys(lines) == {(0, 4, True): 1}
    rows = lines[layout.HEADER_LINES :].reshape(-1).view(layout.RECORD)[:4]
    assert [(int(row["start"]), int(row["end"])) for row in rows] == [(200, 210), (210, 220), (300, 310), (310, 320)]
