"""What a pass reads, and when: it waits for no copy that it does not need, and takes nothing for arrived that may
not have been."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kscope.capture import layout, wire
from kscope_runtime.accounting import Share
from kscope_runtime.drain_pass import Passes

from .conftest import Bench
from .fake import REGION, Lane

SLAB, LINES = 96, 3  # bytes for four records, and lines in a capture


def once(bench: Bench) -> int:
    """A pass over all stripes: bytes that it freed."""
    bench.drain._passes._again[:] = 0
    return bench.drain._passes.once(share=1 << 20)


def starts(bench: Bench) -> list[int]:
    """First words of all records that were collected."""
    (device,) = bench.backend.collect(wait=True)
    records = device.lines.reshape(-1, 4)
    return sorted(records[records[:, 1] == layout.record_id(REGION, layout.Kind.SPAN), 0].tolist())


def test_batches_are_copied_while_the_previous_one_is_read(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kscope_runtime.staging.BATCH", 4096)  # two of the rings
    bench = Bench().arm()
    for block in range(80):
        Lane(bench.memory, sm=block % 4, block=block).run()
    on_their_way: list[int] = []
    account = Passes._account

    def watched(self: Passes, *arguments: Any) -> Share:
        on_their_way.append(len(bench.driver.streams[self._staging.stream]))
        return account(self, *arguments)

    monkeypatch.setattr(Passes, "_account", watched)
    assert once(bench) == 80 * SLAB
    assert len(on_their_way) == 2
    assert on_their_way[0] >= 2, "the second batch was not requested for before the first one was read"
    assert on_their_way[1] == 0


def test_a_pass_at_once_after_another_uses_its_last_reading(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench().arm()
    read, control = list[int](), bench.drain.device.stripes * wire.STRIPE_BYTES
    fetch = bench.driver.read

    def watched(into: np.ndarray, address: int, stream: int) -> None:
        read.append(into.nbytes)
        fetch(into, address, stream)

    monkeypatch.setattr(bench.driver, "read", watched)
    Lane(bench.memory).run()
    assert once(bench) == SLAB
    assert read.count(control) == 4, "both copies at the beginning, and after the batch"
    Lane(bench.memory, block=1).run()
    bench.drain._passes._again[:] = 0
    assert bench.drain._passes.once(1 << 20, at_once=True) == 0, "the claim is later than the last reading"
    assert read.count(control) == 4
    assert once(bench) == SLAB


def test_room_is_published_after_each_batch(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kscope_runtime.staging.BATCH", 4096)
    bench = Bench().arm()
    for block in range(84):
        Lane(bench.memory, sm=block % 4, block=block).run()
    passes = bench.drain._passes
    reported: list[bool] = []
    free = Passes._free

    def watched(self: Passes, *batch: object) -> int:
        reported.append(self.room.is_set())
        return free(self, *batch)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(Passes, "_free", watched)
    once(bench)
    assert not reported[0] and passes.room.is_set()


def test_a_claim_refused_during_a_host_read_does_not_mask_an_active_lane(by_hand: None) -> None:
    """As many units are skipped behind the head as a lane on its way has claimed below it: were both counted from
    one look, the lane's memory would seem to be unused."""
    bench = Bench().arm()
    for block in range(20):
        Lane(bench.memory, block=block).run()  # units 0 to 60 of 64
    slow = Lane(bench.memory, block=100).claim()  # 60 to 63
    stripe = bench.memory.stripes[0]
    # between the host's two copies a claim runs over the ring's edge, and gets memory of the reserve
    bench.driver.meanwhile = [lambda: Lane(bench.memory, block=101).run()]
    assert once(bench) == (20 + 1) * SLAB
    assert int(stripe["head"]) == 66 and int(stripe["skipped"]) == 3
    assert once(bench) == 0, "the memory of a lane that is on its way was freed"
    slow.begin().record(2).leave()
    assert once(bench) == SLAB
    assert len(starts(bench)) == 22 * 2


@pytest.fixture
def late(by_hand: None) -> tuple[Bench, Lane, tuple[int, np.ndarray]]:
    """A lane of four records whose sixth has not arrived when its end has."""
    bench = Bench().arm()
    lane = Lane(bench.memory).claim().begin().record(5)
    assert lane.slab is not None
    lane.slab.store(REGION, layout.Kind.SPAN, 205, 305)
    newest = lane.memory.pending.pop()
    lane.leave()
    return bench, lane, newest


def test_a_ring_that_ran_over_waits_for_its_newest_record(
    late: tuple[Bench, Lane, tuple[int, np.ndarray]], at_once: None
) -> None:
    bench, lane, newest = late
    assert once(bench) == 0
    lane.memory.pending.append(newest)
    lane.memory.happen()
    assert once(bench) == SLAB
    assert starts(bench) == [202, 203, 204, 205]


def test_overrun_slabs_are_not_taken_before_they_settle(
    late: tuple[Bench, Lane, tuple[int, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, lane, newest = late
    monkeypatch.setattr("kscope_runtime.overrun_slabs.SETTLED_S", 3600.0)
    bench.drain._passes._overrun._noted[0] = (np.zeros(0, np.uint32), -3600.0)
    assert [once(bench), once(bench), once(bench)] == [0, 0, 0]
    lane.memory.pending.append(newest)
    lane.memory.happen()
    assert starts(bench) == [202, 203, 204, 205]  # nothing is running, so all of it is taken


def test_snapshots_include_overrun_rings_immediately(late: tuple[Bench, Lane, tuple[int, np.ndarray]]) -> None:
    bench, _, _ = late
    lines = bench.drain.snapshot()
    assert len(lines) == LINES and lines[0, 0] == layout.HEADER_WORD


def test_slabs_that_did_not_overrun_are_taken_immediately(by_hand: None) -> None:
    bench = Bench().arm()
    Lane(bench.memory).run(records=4)
    assert once(bench) == SLAB
