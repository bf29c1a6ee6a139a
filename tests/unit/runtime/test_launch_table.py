"""The host finds the launch of every head, also where launches share a slot of the table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from wired import EPOCH, TIME, Entry, Head, slab, table

from kscope import native
from kscope.capture import layout, wire
from kscope_runtime import launch_table, slab_search
from kscope_runtime.launch_table import LaunchTable
from kscope_runtime.slab_search import Pieces


class Gpu:
    """A launch table in device memory at address 0, and how many entries were read of it."""

    def __init__(self, *entries: Entry) -> None:
        self.entries, self.read_so_far = table(*entries), 0

    def read(self, into: Any, address: int, stream: int) -> None:
        into[:] = self.entries.view(np.uint8)[address : address + len(into)]
        self.read_so_far += len(into) // wire.LAUNCH_BYTES

    def synchronize(self, stream: int) -> None:
        pass

    def write(self, entry: Entry) -> None:
        """A launch begins."""
        self.entries[entry.grid % wire.SLOTS] = entry.row()


@pytest.fixture(params=["compiled", "numpy"])
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LaunchTable:
    if request.param == "numpy":
        monkeypatch.setenv("KSCOPE_NATIVE", "0")
    elif not native.available():
        pytest.skip("no compiled loops")
    driver = SimpleNamespace(stream=lambda: 0, pinned=lambda size: np.zeros(size, np.uint8))
    device = SimpleNamespace(driver=driver, launches=0, launch_tables=(0,))  # as much of a Device as it uses
    made = LaunchTable(device)  # type: ignore[arg-type]
    made.begin(EPOCH)
    return made


class TwoTables(Gpu):
    """A table in a pool's file, and at FAR the device's own."""

    FAR = 1 << 40

    def __init__(self, file: Gpu, device: Gpu) -> None:
        self.file, self.device = file, device

    def read(self, into: Any, address: int, stream: int) -> None:
        table, at = (self.device, address - self.FAR) if address >= self.FAR else (self.file, address)
        table.read(into, at, stream)


def grids(known: LaunchTable, gpu: Gpu, *heads: Head, fresh: bool = False) -> list[int]:
    """The launch of each head; -1: of another session, -2: unknown."""
    units = np.concatenate([slab(head) for head in heads])
    at = np.arange(len(heads), dtype=np.uint32) * np.uint32(wire.slab_units(2))
    found = known.find(units, at, gpu, None if fresh else np.ones(len(at), bool))
    return [int(found.launches["grid_id"][one]) if one >= 0 else one for one in found.entry.tolist()]


def test_each_head_finds_its_launch(known: LaunchTable) -> None:
    gpu = Gpu(Entry(5), Entry(70_000), Entry(6))
    assert grids(known, gpu, Head(6), Head(5), Head(70_000), Head(5, epoch=EPOCH + 1)) == [6, 5, 70_000, -1]


def test_known_entries_are_not_read_again(known: LaunchTable) -> None:
    gpu = Gpu(Entry(5))
    grids(known, gpu, Head(5))
    read = gpu.read_so_far
    assert grids(known, gpu, Head(5), Head(5)) == [5, 5] and gpu.read_so_far == read


def test_a_launch_of_a_graph_keeps_its_entry_beside_one_that_took_its_slot(known: LaunchTable) -> None:
    gpu = Gpu(Entry(5))
    assert grids(known, gpu, Head(5)) == [5]
    gpu.write(Entry(5 + wire.SLOTS))
    assert grids(known, gpu, Head(5 + wire.SLOTS), Head(5)) == [5 + wire.SLOTS, 5]


def test_a_launch_whose_entry_was_overwritten_unread_is_unknown(known: LaunchTable) -> None:
    assert grids(known, Gpu(Entry(5 + wire.SLOTS)), Head(5)) == [-2]


def test_the_entry_of_an_unfinished_warp_is_read_anew(known: LaunchTable) -> None:
    gpu = Gpu(Entry(5))
    grids(known, gpu, Head(5))
    gpu.write(Entry(5 + wire.SLOTS))
    assert grids(known, gpu, Head(5 + wire.SLOTS, cycles=None), fresh=True) == [5 + wire.SLOTS]


def test_entries_are_renewed_for_the_times_of_later_replays(
    known: LaunchTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(Entry(5))
    grids(known, gpu, Head(5))
    gpu.write(Entry(5, time=TIME + 200 * 10**9))
    monkeypatch.setattr(launch_table, "STALE_S", 0.0)
    found = known.find(slab(Head(5)), np.zeros(1, np.uint32), gpu)
    assert found.launches["time"][found.entry].tolist() == [TIME + 200 * 10**9]


def test_entries_of_the_next_launches_are_read_ahead(known: LaunchTable) -> None:
    gpu = Gpu(*(Entry(grid, time=TIME + grid) for grid in range(1, 40)))
    grids(known, gpu, Head(1))
    request = known.request()
    assert request is not None
    gpu.read(*request, 0)
    known.requested()
    read = gpu.read_so_far
    assert grids(known, gpu, *(Head(grid) for grid in range(1, 40))) == list(range(1, 40))
    assert gpu.read_so_far == read


def test_a_kernel_that_was_not_compiled_for_survive_has_its_entry_on_the_device(known: LaunchTable) -> None:
    known._device.launch_tables = 0, TwoTables.FAR  # type: ignore[misc]
    gpu = TwoTables(Gpu(Entry(5), Entry(6 + wire.SLOTS)), Gpu(Entry(6), Entry(7)))
    assert grids(known, gpu, Head(5), Head(6), Head(7), Head(6 + wire.SLOTS)) == [5, 6, 7, 6 + wire.SLOTS]
    assert grids(known, gpu, Head(8)) == [-2]


def test_a_damaged_entry_is_no_launch(known: LaunchTable) -> None:
    assert grids(known, Gpu(Entry(5, wrong=1)), Head(5)) == [-2]


def begun(known: LaunchTable, gpu: Gpu) -> list[int]:
    return [launch.grid_id for launch in known.newest(gpu)]


def test_the_newest_launches_are_those_that_began_last(known: LaunchTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_table, "_NEWEST", 2)
    assert begun(known, Gpu(*(Entry(grid, time=TIME + ns) for grid, ns in ((5, 8), (6, 9), (7, 1), (65_000, 2))))) == [
        5,
        6,
    ]


def test_no_other_sessions_nor_damaged_entries_are_among_the_newest_launches(known: LaunchTable) -> None:
    assert begun(known, Gpu(Entry(5), Entry(6, epoch=EPOCH + 1), Entry(7, wrong=1))) == [5]


def test_kernels_whose_warps_may_claim_nothing_are_not_among_the_newest_launches(known: LaunchTable) -> None:
    assert begun(known, Gpu(Entry(5), Entry(6, flags=layout.FLAG_ANY))) == [5]


@pytest.mark.parametrize(
    ("past", "closed"),
    [(TIME, [True, False]), (0, [True, False]), (TIME + 10**9, [True, True])],
    ids=["just now", "unknown when", "long ago"],
)
def test_a_warp_that_ended_before_its_launch_wrote_the_entry_is_taken_later(
    known: LaunchTable, past: int, closed: list[bool]
) -> None:
    units = np.concatenate([slab(Head(5)), slab(Head(6))])
    size = wire.slab_units(2)
    zero = np.zeros(1, np.uint32)
    pieces = Pieces(
        np.zeros(1, np.int64), np.array([0, 2 * size]), zero, np.ones(1, bool), zero, zero + np.uint32(2 * size)
    )
    slabs = slab_search.find(units, pieces)
    found = known.find(units, slabs.at, Gpu(Entry(5)))
    assert slabs.closed.all() and launch_table.identified(units, slabs, found, past).closed.tolist() == closed
