"""Passes whose batches are taken by one compiled call: the same slabs as step by step, and what makes it return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from kscope import native
from kscope.capture import layout, wire
from kscope.capture.pools import pool_arrays, pool_reading
from kscope.capture.pools.pool_file import PoolDevice, PoolFile
from kscope.errors import DriverError
from kscope_runtime import arena
from kscope_runtime.compiled_pass import CompiledPass, Status
from kscope_runtime.device import Device
from kscope_runtime.drain_pass import Passes
from kscope_runtime.pass_words import PASS
from kscope_runtime.slab_sizes import LOOKS

from .compiled import Points
from .conftest import Bench
from .fake import FakeDriver, Lane
from .test_draining import keys

pytestmark = pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")
SLAB, RINGS = 96, 4  # bytes for four records; rings of 64 units
BATCH = 4096  # bytes: two rings


class Rig:
    """An armed GPU. statuses: why compiled calls returned. by_hand: batches that were taken step by step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, salvaged: bool = False) -> None:
        self.points, self.statuses, self.by_hand = Points(), list[Status](), 0
        monkeypatch.setattr("kscope_runtime.staging.BATCH", BATCH)
        monkeypatch.setattr(FakeDriver, "entry_points", lambda driver: self.points.of(driver))
        go, one = CompiledPass._go, Passes._batch

        def gone(compiled: CompiledPass, *arguments: Any) -> Status:
            self.statuses.append(go(compiled, *arguments))
            return self.statuses[-1]

        def by_hand(passes: Passes, *arguments: Any) -> int:
            self.by_hand += 1
            return one(passes, *arguments)

        monkeypatch.setattr(CompiledPass, "_go", gone)
        monkeypatch.setattr(Passes, "_batch", by_hand)
        self.bench = Bench(salvaged=salvaged).arm()
        self.passes = self.bench.drain._passes

    def run(self, count: int, records: int = 2, grid: int = 0, log2: int = 2) -> None:
        for block in range(count):
            Lane(self.bench.memory, sm=block % RINGS, log2=log2, block=block, grid=grid).run(records)

    def once(self) -> int:
        self.statuses, self.by_hand = [], 0
        self.passes._again[:] = 0
        return self.passes.once(share=1 << 20)

    def found(self) -> Counter[tuple[int, int, bool]]:
        return keys(self.bench.drain.lines())


@pytest.fixture
def rig(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def expected(count: int, records: int = 2) -> Counter[tuple[int, int, bool]]:
    return Counter((block, records, True) for block in range(count))


def test_c_and_python_agree_on_a_passs_size() -> None:
    assert native.call("pass_bytes") == PASS.itemsize


def test_one_call_takes_all_batches_in_their_order(rig: Rig) -> None:
    rig.run(80)
    assert rig.once() == 80 * SLAB
    assert rig.by_hand == 0 and rig.statuses[-1] is Status.DONE
    lines = rig.bench.drain.lines()
    assert rig.found() == expected(80)
    heads = lines[lines[:, 0] == layout.HEADER_WORD]
    assert (np.diff(heads[:, 11] >> np.uint32(layout.SMID_SHIFT)) >= 0).all(), "ring after ring"
    assert not rig.bench.gpu.view(int(rig.bench.memory.stripes["base"][0]), 64 * wire.UNIT).any()
    rig.run(80)
    assert rig.once() >= 80 * SLAB  # and what claims over the edges of rings skipped
    assert rig.statuses == [Status.NEWS, Status.DONE], "that there is room"


def test_results_are_those_of_single_steps(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slabs of several sizes, open ones, and gaps, in several passes."""

    def recorded(points: Callable[[FakeDriver], Any]) -> tuple[np.ndarray, list[np.ndarray]]:
        with patch("kscope_runtime.staging.BATCH", BATCH), patch.object(FakeDriver, "entry_points", points):
            bench = Bench().arm()
        passes, open_lanes, states = bench.drain._passes, list[Lane](), list[np.ndarray]()
        for block in range(300):
            lane = Lane(bench.memory, sm=block % 3, log2=2 + block % 7 % 3, block=block).claim()
            if block % 11 == 0:
                open_lanes.append(lane if block % 2 else lane.begin().record(1))
            else:
                lane.begin().record(block % 6).leave()
            if block % 40 == 39:
                open_lanes.pop(0).begin().leave()
                passes._again[:] = 0
                passes.once(share=1 << 20)
                state = passes.state
                states += [
                    state.tail.copy(),
                    state.found.copy(),
                    state.proven.copy(),
                    state.limit,
                    passes._delay.copy(),
                ]
        return bench.drain.lines(), states

    one, states = recorded(lambda driver: Points().of(driver))
    other, expected = recorded(lambda driver: None)
    assert len(one) and np.array_equal(one, other)
    assert all(np.array_equal(*both) for both in zip(states, expected, strict=True))


def test_entries_that_are_missing_are_read(rig: Rig) -> None:
    rig.run(8, grid=5)
    assert rig.once() == 8 * SLAB
    assert rig.statuses == [Status.MISSING, Status.FULL, Status.DONE] or rig.statuses[0] is Status.FULL
    assert Status.MISSING in rig.statuses and rig.by_hand == 0
    rig.run(8, grid=6)  # read with the stripes
    assert rig.once() == 8 * SLAB
    assert rig.statuses == [Status.DONE]


def test_slabs_that_overran_are_taken_step_by_step(rig: Rig, at_once: None) -> None:
    rig.run(72)
    for block in range(3):
        Lane(rig.bench.memory, sm=3, block=100 + block).run(9)
    assert rig.once() == 72 * SLAB, "they may still be written"
    assert rig.by_hand == 1 and rig.statuses.count(Status.UNUSUAL) == 1
    assert rig.once() == 3 * SLAB
    assert rig.found() == expected(72) + Counter((100 + block, 9, True) for block in range(3))


def test_unknown_launches_wait_and_the_rest_is_taken(rig: Rig) -> None:
    rig.run(8)
    rig.once()
    rig.run(4)
    rig.bench.memory.table[:] = 0
    rig.run(8, grid=77)
    rig.bench.memory.table["check"][77] ^= 1  # its first warp has not written all of it
    assert rig.once() == 4 * SLAB
    assert rig.by_hand >= 1
    rig.bench.memory.table["check"][77] ^= 1
    assert rig.once() == 8 * SLAB


def test_room_is_published_while_a_pass_goes_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.run(84)
    published, seen = list[tuple[bool, int]](), Passes._seen

    def watched(passes: Passes, began: float) -> Any:
        found = seen(passes, began)
        published.append((passes.room.is_set(), len(passes.arena.lines())))
        return found

    monkeypatch.setattr(Passes, "_seen", watched)
    rig.once()
    all_lines = published[-1][1]
    assert not published[0][0] and published[-1][0]
    assert any(room and lines < all_lines for room, lines in published), "launches waited for the last batch"


def test_limits_are_written_after_the_clears_also_when_positions_have_wrapped(rig: Rig) -> None:
    """A batch is freed before it is cleared, and then the limits of a ring out of use must be written at once."""
    rig.run(80)
    stripes, waits, clear = rig.bench.memory.stripes, iter(range(100)), list[tuple[int, bool]]()

    def look() -> None:
        if next(waits) == 3:  # of the reading after the first batch
            for word in ("head", "skipped"):
                rig.bench.memory.atom_add(3, word, (1 << 31) + 100)
        for stripe in stripes[:3]:
            ring = rig.bench.gpu.view(int(stripe["base"]), 64 * wire.UNIT).reshape(64, -1)
            free = np.arange(int(stripe["head"]), int(stripe["limit"])) & 63
            clear.append((len(free), not ring[free].any()))

    rig.points.meanwhile = look
    rig.once()
    rig.points.meanwhile = lambda: None
    assert rig.passes.state.turned.tolist() == [False, False, False, True, False]
    assert max(clear)[0] == 64 and all(one for _, one in clear), "memory that was not clear could be claimed"


def test_more_lines_than_were_reserved_find_room(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "_LOOK", 0)
    monkeypatch.setattr(arena, "_LOOKS", 1 << 40)
    rig.run(80)
    assert rig.once() == 80 * SLAB
    assert rig.statuses.count(Status.FULL) == 2, "one for each batch"
    assert rig.found() == expected(80)


def test_without_memory_a_pass_keeps_what_it_has_taken(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "_LOOK", 0)
    monkeypatch.setattr(arena, "_LOOKS", 1 << 40)
    rig.run(80)
    reserve, left = arena.Arena.reserve, iter([1, 1])

    def ends(self: arena.Arena, count: int) -> Any:
        if count and not next(left, 0):
            raise MemoryError("full")
        return reserve(self, count)

    monkeypatch.setattr(arena.Arena, "reserve", ends)
    rig.once()
    rig.run(80)
    with pytest.raises(MemoryError):
        rig.once()
    assert rig.found() == expected(80)


def test_batches_before_one_that_found_no_memory_are_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    call = native.call

    def without_memory(name: str, *arguments: Any) -> int:
        result = call(name, *arguments)
        if name == "batches":
            raise MemoryError
        return result

    rig.run(80)
    rig.once()  # sizes are learned step by step
    monkeypatch.setattr(native, "call", without_memory)
    rig.run(80)
    with pytest.raises(MemoryError):
        rig.once()
    monkeypatch.setattr(native, "call", call)
    assert rig.found() > expected(80)
    rig.once()
    assert rig.found() == expected(80) + expected(80)


def test_an_error_of_the_driver_is_raised_and_nothing_is_kept_twice(rig: Rig) -> None:
    rig.run(80)
    waits = iter(range(100))

    def fail() -> None:
        rig.points.result = 700 if next(waits) >= 5 else 0  # two for the reading; the first batch's clears

    rig.points.meanwhile = fail
    rig.bench.driver.check = lambda call, result: raised(call, result)  # type: ignore[method-assign]  # the real one's
    with pytest.raises(DriverError, match="cuStreamSynchronize"):
        rig.once()
    rig.points.meanwhile, rig.points.result = (lambda: None), 0
    kept = rig.found()
    assert kept and max(kept.values()) == 1
    left = int((rig.bench.memory.stripes["head"] - rig.passes.state.tail).astype(np.int64).sum()) * wire.UNIT
    assert left == (80 - kept.total()) * SLAB


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PoolFile]:
    """A file beside a pool on the device."""
    made = PoolFile(tmp_path / "0.pool", PoolDevice(0, "", RINGS), 1, 1 << 20, is_copy=True)
    monkeypatch.setattr(Device, "file", made)
    yield made
    made.end(remove=True)


def kept(file: PoolFile) -> np.ndarray:
    return pool_arrays.drained_slabs(pool_reading.open_pool(file.path))[0]


def test_batches_are_freed_when_they_are_kept_in_the_file(file: PoolFile, rig: Rig) -> None:
    rig.run(80)
    grown = list[tuple[int, int]]()

    def look() -> None:
        cleared = sum(not rig.bench.gpu.view(int(base), 60 * wire.UNIT).any() for base in bases)
        grown.append((cleared, len(kept(file))))

    bases = rig.bench.memory.stripes["base"][:RINGS].tolist()
    rig.points.meanwhile = look
    assert rig.once() == 80 * SLAB
    rig.points.meanwhile = lambda: None
    assert all(lines >= cleared * 20 * 3 for cleared, lines in grown) and grown[-1][0] == RINGS
    assert np.array_equal(kept(file), rig.bench.drain.lines()) and rig.by_hand == 0
    rig.run(3, records=9)  # one batch that Python keeps
    rig.run(60)
    rig.once()
    assert rig.by_hand >= 1
    assert np.array_equal(kept(file), rig.bench.drain.lines())


def test_the_files_ring_holds_the_newest_batches(file: PoolFile, rig: Rig) -> None:
    for _ in range(150):
        rig.run(80)
        rig.once()
    found, lines, size = kept(file), rig.bench.drain.lines(), len(file.ring[0]) // layout.LINE
    assert len(lines) > 2 * size and len(found) > size // 2
    assert np.array_equal(found, lines[len(lines) - len(found) :])


def test_a_driver_that_fails_leaves_the_file_whole(file: PoolFile, rig: Rig) -> None:
    rig.run(80)
    waits = iter(range(100))
    rig.points.meanwhile = lambda: setattr(rig.points, "result", 700 if next(waits) >= 4 else 0)
    rig.bench.driver.check = lambda call, result: raised(call, result)  # type: ignore[method-assign]  # the real one's
    with pytest.raises(DriverError):
        rig.once()
    rig.points.meanwhile, rig.points.result = (lambda: None), 0
    lines = rig.bench.drain.lines()
    assert len(lines) and np.array_equal(kept(file), lines)
    left = int((rig.bench.memory.stripes["head"] - rig.passes.state.tail).astype(np.int64).sum()) * wire.UNIT
    assert left == (80 - rig.found().total()) * SLAB


@pytest.mark.parametrize("in_file", [False, True], ids=["ordinary", "in a file"])
def test_a_context_that_breaks_at_any_call_neither_loses_nor_duplicates_records(
    in_file: bool, by_hand: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    while True:
        with monkeypatch.context() as patch:
            rig = Rig(patch, salvaged=True)
            rig.bench.driver.check = raised  # type: ignore[method-assign]  # as the real one's
            rig.run(24)
            if in_file:
                made = PoolFile(tmp_path / f"{calls}.pool", PoolDevice(0, "", RINGS), 1, 1 << 20, is_copy=True)
                patch.setattr(Device, "file", made)
            rig.points.lasts = len(rig.points.calls) + calls
            try:
                rig.once()
                break
            except DriverError:
                before = rig.bench.drain.lines().copy()
        (device,) = rig.bench.backend.collect(wait=True)
        assert keys(device.lines) == expected(24), f"broken after {calls} calls"
        assert not in_file or np.array_equal(kept(made), before)
        calls += 1
    assert calls > 20


def raised(call: str, result: int) -> None:
    if result:
        raise DriverError(call, "CUDA_ERROR_ILLEGAL_ADDRESS", result)


def test_sizes_of_slabs_are_learned_step_by_step_and_then_not(rig: Rig) -> None:
    by_hand = []
    for number in range(LOOKS + 3):
        grid = 100 + number
        Lane(rig.bench.memory, block=0, grid=grid).run(3)
        entry = rig.bench.memory.table[grid]
        entry["layout"] |= np.uint32(wire.VARYING << layout.LOG2_SHIFT)
        entry["check"] = wire.launch_check(rig.bench.memory.table[grid : grid + 1], 1)[0]
        rig.once()
        by_hand.append(rig.by_hand)
    assert by_hand == [1] * LOOKS + [0] * 3


def test_a_stuck_ring_is_found(rig: Rig) -> None:
    """A ring larger than a copy in which nothing could be freed."""
    rig.passes._compiled.stuck[:] = True  # type: ignore[union-attr]  # of a pass before
    rig.run(8)
    rig.once()
    assert rig.passes._stuck == []


def test_slabs_are_there_when_a_pass_has_ended(rig: Rig) -> None:
    """Threads write them while the next batch is searched."""
    for number in range(20):
        rig.run(80)
        rig.once()
        lines = rig.bench.drain.lines()
        assert np.count_nonzero(lines[:, 0] == layout.HEADER_WORD) == 80 * (number + 1)
