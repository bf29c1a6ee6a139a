"""Pools in a file: what a broken context and a dead program leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kscope import native
from kscope.capture import layout, wire
from kscope.capture.pools import pool_arrays, pool_capture, pool_reading
from kscope.capture.pools.pool_file import PoolDevice, PoolFile
from kscope.decoding import slabs
from kscope.errors import DriverError, UsageError
from kscope.instrument.subset import Subset
from kscope.watching.warp_columns import IN
from kscope.watching.warps import warps
from kscope_runtime.pool import least
from kscope_sim.values import Halves

from .conftest import MODULE, Bench
from .fake import Lane

Make = Callable[..., Bench]
LEAST = least(4)


class Files:
    """Pool files in a folder, as a session makes them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, list[PoolFile]()

    def open(self, device: PoolDevice, size: int) -> PoolFile:
        self.made.append(PoolFile(self.folder / f"{len(self.made)}.pool", device, 1, size))
        return self.made[-1]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def armed(bench: Make, files: Files, *, salvaged: bool = False) -> Bench:
    rig = bench(salvaged=salvaged)
    rig.backend.module_loaded(MODULE)
    rig.backend.survive(files.open)
    rig.backend.arm(1, Subset(), LEAST)
    return rig


def blocks(files: Files, at: int = 0) -> list[int]:
    """Blocks whose slabs a reader of the file finds."""
    (device,) = pool_capture.capture_of(pool_reading.open_pool(files.made[at].path)).devices
    return sorted(slabs.find(device.lines, 1)[0].header["ctaid_x"].tolist())


def test_kernels_record_into_the_file(bench: Make, files: Files) -> None:
    rig = armed(bench, files)
    lane = Lane(rig.gpu.memory(MODULE), block=3).claim().begin().record()
    assert lane.slab is not None
    (file,) = files.made
    assert file.pool.ctypes.data <= lane.slab.base < file.pool.ctypes.data + len(file.pool)
    assert file.book["grid_id"][lane.thread.grid_id % wire.SLOTS] == lane.thread.grid_id
    pool = pool_reading.open_pool(file.path)
    assert [meta.kernels[0].name for meta in pool_reading.modules(pool_reading.journal(pool))] == ["kernel"]


def test_what_was_drained_and_what_is_open_are_both_in_the_file(bench: Make, files: Files) -> None:
    rig = armed(bench, files)
    memory = rig.gpu.memory(MODULE)
    for block in range(9):
        Lane(memory, block=block).run()
    rig.take()
    assert not len(pool_reading.slabs(pool_reading.open_pool(files.made[0].path))[0]), "all of them were drained"
    Lane(memory, block=9).claim().begin().record()
    rig.take()
    assert blocks(files) == list(range(10))
    assert rig.backend.collect(wait=True)[0].lines.any()


def test_a_broken_context_loses_nothing_that_is_in_the_file(bench: Make, files: Files) -> None:
    rig = armed(bench, files, salvaged=True)
    Lane(rig.gpu.memory(MODULE), block=5).claim().begin().record()
    rig.driver.broken = ("CUDA_ERROR_LAUNCH_FAILED", 719)
    (device,) = rig.backend.collect(wait=True)
    assert slabs.find(device.lines, 1)[0].header["ctaid_x"].tolist() == [5]
    (problem,) = rig.backend.problems()
    assert problem.kind == "driver" and f"kscope watch {files.made[0].path}" in problem.text
    entries = pool_reading.journal(pool_reading.open_pool(files.made[0].path))
    assert "CUDA_ERROR_LAUNCH_FAILED" in entries[-1]["text"]


def test_each_session_has_its_own_file_and_an_ordinary_one_has_none(bench: Make, files: Files) -> None:
    rig = armed(bench, files)
    Lane(rig.gpu.memory(MODULE), block=1).run()
    rig.backend.disarm()
    rig.backend.survive(Files(files.folder / "..").open if False else files.open)
    rig.backend.arm(2, Subset(), LEAST)
    assert len(files.made) == 1, "the same session goes on in its file"
    other = Files(files.folder / "other")
    other.folder.mkdir()
    rig.backend.survive(other.open)
    rig.backend.arm(3, Subset(), LEAST)
    assert len(other.made) == 1
    rig.backend.survive(None)
    rig.backend.arm(4, Subset(), LEAST)
    Lane(rig.gpu.memory(MODULE), block=2).run()
    assert not any(file.book["grid_id"].any() for file in other.made)
    (device,) = rig.backend.collect(wait=True)
    assert slabs.find(device.lines, 4)[0].header["ctaid_x"].tolist() == [2]
    assert not any(file.memory.ctypes.data in rig.gpu.blocks for file in (*files.made, *other.made)), "unregistered"


def test_memory_that_the_driver_refuses_is_an_error_that_says_what_to_do(
    bench: Make, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = bench()

    def refuse(memory: object) -> None:
        raise DriverError("cuMemHostRegister", "CUDA_ERROR_OPERATING_SYSTEM", 304)

    monkeypatch.setattr(rig.driver, "register", refuse)
    rig.backend.survive(files.open)
    with pytest.raises(UsageError, match="ulimit -l"):
        rig.backend.arm(1, Subset(), LEAST)
    assert not files.made[0].path.exists()


def test_records_have_their_names_in_the_file(bench: Make, files: Files) -> None:
    rig = armed(bench, files)
    Lane(rig.gpu.memory(MODULE)).claim().begin().record()
    pool = pool_reading.open_pool(files.made[0].path)
    (meta,) = pool_reading.modules(pool_reading.journal(pool))
    rows = pool_arrays.units(pool).reshape(-1, 4)
    assert layout.name_hash(meta.regions[0].name) in (rows[:, 1] >> 4).tolist()


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "numpy"])
def test_a_warp_that_has_entered_a_region_is_not_taken_for_one_that_has_ended(
    bench: Make, files: Files, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(native, "available", lambda: False)
    rig = armed(bench, files)
    lane = Lane(rig.gpu.memory(MODULE), block=2).claim().begin().record()
    assert lane.slab is not None
    for value in (7, 0xFFFFFFFF):  # where the count and the seal will be
        lane.slab.enter("wait", 250, Halves(value, open=value))
        lane.memory.happen()
        rig.take()
        warp = warps(pool_reading.open_pool(files.made[0].path))
        assert (warp.state, warp.value) == ([IN], [value])
        (device,) = rig.backend.collect(wait=False)
        found = slabs.find(device.lines, 1)[0]
        assert (found.header["count"].tolist(), found.finished.tolist()) == ([0], [False]), "a capture has no end of it"
    lane.leave()
    (device,) = rig.backend.collect(wait=True)
    assert slabs.find(device.lines, 1)[0].header["count"].tolist() == [1]
