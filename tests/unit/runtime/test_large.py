"""Rings that are larger than a copy: a pass takes them part after part, and no slab is cut in two."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from wired import Head, slab

from kscope.capture import wire
from kscope.capture.expand import Lines
from kscope.decoding import slabs
from kscope_runtime import launch_table
from kscope_runtime.accounting import MASK, Stripes, account
from kscope_runtime.launch_table import Found
from kscope_runtime.slab_search import Pieces, find

from .conftest import Bench
from .fake import Lane

UNITS = 40
"""Units of a copy: a ring of an SM has 64, a slab of four records 3."""


@pytest.fixture
def bench(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("kscope_runtime.staging.BATCH", UNITS * wire.UNIT)
    return Bench().arm()


def seen(lines: Lines) -> Counter[int]:
    """Blocks of the slabs, of which none is torn."""
    found, problems = slabs.find(lines, 1)
    assert problems == []
    return Counter(found.header["ctaid_x"].tolist())


def once(bench: Bench) -> int:
    """A pass over all stripes: bytes that it freed."""
    bench.drain._passes._again[:] = 0
    return bench.drain._passes.once(share=1 << 20)


def test_several_rings_are_complete_at_the_end(bench: Bench) -> None:
    lanes = [Lane(bench.memory, sm=block % 4, block=block).run(3) for block in range(80)]
    assert all(lane.slab is not None for lane in lanes)
    bench.backend.disarm()
    (device,) = bench.backend.collect(wait=True)
    assert seen(device.lines) == Counter(range(80))


def test_slabs_claimed_after_a_hung_warp_are_collected(bench: Bench) -> None:
    Lane(bench.memory, block=0).claim().begin()
    lanes = [Lane(bench.memory, block=block).run(3) for block in range(1, 21)]
    assert all(lane.slab is not None for lane in lanes)
    bench.backend.disarm()
    (device,) = bench.backend.collect(wait=False)  # as after Ctrl-C
    assert seen(device.lines) == Counter(range(21))


@pytest.mark.parametrize("lanes", [70, 400], ids=["some are refused", "many"])
def test_a_ring_that_was_full_records_again(bench: Bench, lanes: int) -> None:
    """Some units before and after the ring's edge are in no slab; only the sums show that none of them is claimed."""
    for block in range(lanes):
        Lane(bench.memory, block=block).run()
    while once(bench):
        pass
    stripe = bench.memory.stripes[0]
    assert stripe["limit"] - stripe["head"] == 64
    assert bench.drain._passes.seen[1], "launches would go on waiting for room"


def test_an_open_claim_blocks_reuse_of_a_full_ring(bench: Bench) -> None:
    slow = None
    for block in range(400):
        lane = Lane(bench.memory, block=block)
        if block == 18:
            slow = lane.claim()
        else:
            lane.run()
    while once(bench):
        pass
    assert slow is not None and slow.slab is not None
    assert bench.memory.stripes["limit"][0] == 64 + 18 * 3
    slow.begin().record(2).leave()
    while once(bench):
        pass
    assert bench.memory.stripes["limit"][0] - bench.memory.stripes["head"][0] == 64
    (device,) = bench.backend.collect(wait=True)
    assert seen(device.lines)[18] == 1


def test_a_ring_is_not_scanned_beyond_an_open_slab(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    Lane(bench.memory).claim().begin()
    for block in range(1, 20):
        Lane(bench.memory, block=block).run()
    read: list[int] = []  # sizes
    fetch = bench.driver.read

    def watched(into: np.ndarray, address: int, stream: int) -> None:
        read.append(into.nbytes)
        fetch(into, address, stream)

    monkeypatch.setattr(bench.driver, "read", watched)
    assert once(bench) == 0
    launches = wire.LAUNCH_BYTES, launch_table.WINDOW * wire.LAUNCH_BYTES  # this one's entry, and those of the next
    assert {*read} <= {control(bench), UNITS * wire.UNIT, *launches}
    assert read.count(UNITS * wire.UNIT) == 2, "by the pass, and again to find what blocks it"


@pytest.mark.parametrize("turn", range(6))
@pytest.mark.parametrize(("before_edge", "clean", "free"), [(5, True, 9), (5, False, 3), (20, True, 3)])
@pytest.mark.parametrize("compiled", ["1", "0"])
def test_refused_claims_are_found_across_position_wraparound(
    compiled: str, before_edge: int, clean: bool, free: int, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2^31 units behind the tail is as far as 2^31 ahead of it."""
    monkeypatch.setenv("KSCOPE_NATIVE", compiled)
    table = np.zeros(1, wire.STRIPE)
    table["mask"] = 63
    state = Stripes.at(table)
    for step in range(turn):  # already drained
        head = np.array([(step + 1) << 30 & MASK], np.uint32)
        state.tail, state.found, state.limit = head, head.copy(), head + np.uint32(64)
        state.then = state.limit.copy()
        state.saw(head)
    # a slab of 3 units that ends 2 before the edge; a claim over the edge; and a slab that is on its way behind it
    tail = state.tail + np.uint32(64 - before_edge)
    state.tail, state.found = tail, state.found + np.uint32(64 - before_edge)
    head = tail + np.uint32(3 + 3 + 3 + 3)
    state.limit = state.then = tail + np.uint32(64)
    state.saw(head)
    state.clean = state.clean if clean else head
    copied = np.zeros((12, 8), np.uint32)
    for at in (0, 6):
        copied[at : at + 3] = slab(Head())
    pieces = Pieces(np.array([0]), np.array([0, 12]), tail, np.array([True]), np.array([3], np.uint32), head)
    slabs = find(copied, pieces)
    assert slabs.at.tolist() == [0, 6]
    found = Found(np.zeros(1, wire.LAUNCH), np.zeros(2, np.int32), 0)
    taken = account(state, copied, pieces, slabs, found)
    assert taken.free.tolist() == [free] and taken.at.tolist() == [0, 6][: free // 3]


def control(bench: Bench) -> int:
    """Bytes of the stripes' words."""
    return bench.drain.device.stripes * wire.STRIPE_BYTES
