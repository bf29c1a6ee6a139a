"""The host expands slabs of the wire layout to slabs of a capture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wired import EPOCH, KERNEL, TIME, Entry, Head, expand_all, slab, table

from kscope import native
from kscope.capture import layout, wire
from kscope.capture.expand import Claims, Expander, write
from kscope.capture.heads import is_head
from kscope.decoding.slabs import Slabs, find

RECORD = [1000, 0x51, 1100, 0]


def expanded(*units: np.ndarray, entries: tuple[Entry, ...] = (Entry(),)) -> Slabs:
    lines, problems = expand_all(np.concatenate(units), table(*entries), EPOCH)
    assert not problems
    slabs, doubts = find(lines, EPOCH)
    assert not doubts
    return slabs


def test_a_slab_keeps_its_place_and_times() -> None:
    head = Head(grid=0x12345, block=21, warp=3, lane=5, sm=131, clock=(5 << 32) + 77, cycles=640, ns=320, width=9)
    entry = Entry(0x12345, blocks=(4, 3, 2), threads=(64, 2, 1), cluster=(2, 1, 2), time=TIME - 64)
    slabs = expanded(slab(head, records=[RECORD]), entries=(entry,))
    assert slabs.block.tolist() == [[1, 2, 1]]
    assert slabs.grid.tolist() == [[4, 3, 2]]
    assert slabs.threads.tolist() == [[64, 2, 1]]
    assert [slabs.warp[0], slabs.lane[0], slabs.sm[0]] == [3, 5, 131]
    assert slabs.header["cluster"][0] & 0xFF == 1 + 2 * 1
    assert slabs.header["kernel"][0] == KERNEL and slabs.header["grid_id"][0] == 0x12345
    assert slabs.header["start_time"][0] == TIME and slabs.header["end_time"][0] == TIME + 320
    assert slabs.last_tick[0] - slabs.first_tick[0] == 640 and int(slabs.header["start_clock"][0]) & 0xFFFFFFFF == 77
    assert slabs.header["start_width"][0] == slabs.header["end_width"][0] == 36
    assert slabs.finished[0] and slabs.header["count"][0] == 1


@pytest.mark.parametrize("cycles", [1, (1 << 32) - 1, 1 << 32, 3 << 33, 255 << 32])
@pytest.mark.parametrize("ns", [32, 1 << 32, 1 << 37, (1 << 40) - 32])
@pytest.mark.parametrize("time", [TIME, (TIME >> 40 << 40) - 32])
def test_long_warps_keep_all_bits_of_their_durations(cycles: int, ns: int, time: int) -> None:
    head = Head(clock=(255 << 32) + 0xFFFFFFFF, cycles=cycles, time=time, ns=ns)
    slabs = expanded(slab(head), entries=(Entry(time=time),))
    assert slabs.last_tick[0] - slabs.first_tick[0] == cycles
    assert slabs.header["end_time"][0] - slabs.header["start_time"][0] == ns


def test_a_killed_warp_keeps_block_warp_and_start() -> None:
    slabs = expanded(slab(Head(block=6, warp=2, sm=9, cycles=None), records=[RECORD]))
    assert not slabs.finished[0]
    assert [slabs.linear_block[0], slabs.warp[0], slabs.sm[0]] == [6, 2, 9]
    assert slabs.header["start_time"][0] == TIME


@pytest.mark.parametrize(("count", "kept"), [(0, 4), (4, 4), (5, 8), (16, 16), (17, 16)])
def test_a_captures_slab_is_as_small_as_its_records_allow(count: int, kept: int) -> None:
    units = slab(Head(), 4, [[1000 + n, 0x51, 1001 + n, n] for n in range(count)])
    lines, _ = expand_all(units, table(Entry(log2=4)), EPOCH)
    assert len(lines) == layout.HEADER_LINES + kept // layout.RECORDS_PER_LINE
    header = lines[:2].reshape(-1).view(layout.HEADER)[0]
    assert header["count"] == count


@pytest.mark.parametrize(("arrived", "kept"), [(0, 4), (3, 4), (4, 8), (15, 16), (16, 16)])
def test_an_unfinished_slab_shows_that_its_ring_has_not_overrun(arrived: int, kept: int) -> None:
    units = slab(Head(cycles=None), 4, [RECORD] * arrived)
    lines, _ = expand_all(units, table(Entry(log2=4)), EPOCH)
    assert len(lines) == layout.HEADER_LINES + kept // layout.RECORDS_PER_LINE


@pytest.mark.parametrize(
    "entries",
    [(), (Entry(wrong=1),), (Entry(epoch=EPOCH - 2),), (Entry(grid=1 + (1 << 16)),)],
    ids=["none", "damaged", "of an earlier session", "of another launch"],
)
def test_warps_without_their_launchs_entry_are_counted(entries: tuple[Entry, ...]) -> None:
    lines, problems = expand_all(np.concatenate([slab(Head()), slab(Head(block=1))]), table(*entries), EPOCH)
    assert len(lines) == 0
    assert [(one.kind, one.count) for one in problems] == [("unidentified", 2)]


def test_warps_of_another_session_are_left_out() -> None:
    both = np.concatenate([slab(Head(epoch=EPOCH - 1)), slab(Head(block=3))])
    assert expanded(both).linear_block.tolist() == [3]


def test_clocks_of_an_sm_go_on_from_slab_to_slab() -> None:
    first = Head(sm=4, clock=(1 << 32) - 100, cycles=50)
    later = replace(first, block=1, clock=(1 << 32) + 20, time=TIME + 64)
    slabs = expanded(slab(first), slab(later))
    assert int(slabs.first_tick[1] - slabs.first_tick[0]) == 120


def test_heads_records_and_cleared_memory_differ() -> None:
    units = slab(Head(block=0, warp=0, sm=0, epoch=0, grid=0, clock=0), records=[RECORD])
    assert is_head(units).tolist() == [True, False, False]
    assert not is_head(np.zeros((2, 8), np.uint32)).any()


heads = st.builds(
    Head,
    grid=st.sampled_from([1, 2, 0x10001, 0xFFFFFF]),
    block=st.integers(0, (1 << 23) - 1),
    warp=st.integers(0, 31),
    lane=st.integers(0, 31),
    sm=st.integers(0, 3),
    epoch=st.sampled_from([EPOCH, EPOCH, EPOCH, EPOCH - 1]),
    clock=st.integers(0, (1 << 48) - 1),
    time=st.integers(TIME - (30 << 30), TIME + (90 << 30)),
    cycles=st.none() | st.integers(0, 255 << 32),
    ns=st.integers(0, (1 << 40) - 1),
    width=st.integers(1, 255),
    count=st.none() | st.integers(0, 100),
)
entries_ = st.builds(
    Entry,
    log2=st.integers(2, 5),
    flags=st.integers(0, 15),
    blocks=st.tuples(st.integers(1, 5000), st.integers(1, 70), st.integers(1, 70)),
    threads=st.just((1024, 1, 1)),
    cluster=st.sampled_from([(0, 0, 0), (2, 1, 1), (2, 2, 2)]),
    epoch=st.sampled_from([EPOCH, EPOCH, EPOCH, EPOCH + 2]),
)


@pytest.mark.skipif(not native.available(), reason="no compiled loops")
@settings(deadline=None, max_examples=150)
@given(st.lists(heads, max_size=12), st.lists(entries_, min_size=4, max_size=4), st.data())
def test_compiled_and_numpy_give_the_same_bytes(drawn: list[Head], about: list[Entry], data: st.DataObject) -> None:
    entries = [replace(one, grid=grid) for one, grid in zip(about, (1, 2, 0x10001, 0xFFFFFF), strict=True)]
    log2 = {one.grid % wire.SLOTS: one.log2 for one in entries}
    units = [slab(head, log2[head.grid % wire.SLOTS], [RECORD] * data.draw(st.integers(0, 40))) for head in drawn]
    memory = np.concatenate([*units, np.zeros((3, 8), np.uint32)])
    found = []
    for compiled in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                patch.setenv("KSCOPE_NATIVE", "0")
            found.append(expand_all(memory, table(*entries), EPOCH))
    assert found[0][1] == found[1][1]
    np.testing.assert_array_equal(found[0][0], found[1][0])


@pytest.mark.skipif(not native.available(), reason="no compiled loops")
def test_threads_expand_many_slabs_as_numpy_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "threads", lambda short=False: 4)
    drawn = [
        Head(block=index, sm=index * index % 7, clock=index << 20, time=TIME + (index << 20), count=index % 6)
        for index in range(20_000)
    ]
    units = np.concatenate([slab(replace(head, cycles=None) if head.block % 11 == 3 else head) for head in drawn])
    at = np.arange(len(drawn), dtype=np.uint32) * np.uint32(wire.slab_units(2))
    entry = np.where(at % 13 == 5, -1, at % 2).astype(np.int32)
    entry[:700] = -2
    launches = np.array([Entry().row(), Entry(blocks=(1 << 16, 1 << 8, 2)).row()])
    numbers = np.arange(4, dtype=np.uint32)
    claims = Claims(np.array([0, 0, 9_000, 9_001, 20_000]), numbers, numbers)
    found = []
    for compiled in ("1", "0"):
        monkeypatch.setenv("KSCOPE_NATIVE", compiled)
        expander = Expander(EPOCH)
        for _ in range(2):  # the second time, clocks go on from where they were
            plan = expander.plan(units, at, launches, entry)
            lines = np.full((plan.lines, 16), 0xABABABAB, np.uint32)
            write(units, launches, plan, claims, EPOCH, lines)
            found.append((lines, expander.unnumbered))
    for compiled_, other in zip(found[:2], found[2:], strict=True):
        assert compiled_[1] == other[1] > 0
        np.testing.assert_array_equal(compiled_[0], other[0])


def test_a_copy_of_an_expander_goes_on_alone() -> None:
    expander, units = Expander(EPOCH), slab(Head(sm=2, clock=500))
    arguments = units, np.array([0]), np.array([Entry().row()]), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    again = expander.copy()
    np.testing.assert_array_equal(expander.expand(*arguments), again.expand(*arguments))
