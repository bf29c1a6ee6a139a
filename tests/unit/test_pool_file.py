"""The pool file: what it holds, how large it gets, and that no damage to it does harm."""

from __future__ import annotations

import zlib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kscope
import kscope_sim
from kscope import native
from kscope.capture import heads, layout, wire
from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta
from kscope.capture.pools import (
    batch_check,
    pool_arrays,
    pool_capture,
    pool_file,
    pool_folder,
    pool_layout,
    pool_reading,
)
from kscope.capture.pools.pool_file import PoolDevice, PoolFile
from kscope.capture.pools.pool_layout import LAUNCHES
from kscope.errors import KscopeError, UsageError
from kscope.util import processes
from kscope.watching import text
from kscope.watching.verdict import verdict
from kscope.watching.warps import drained_blocks, warps

SIZE = 1 << 16
META = ModuleMeta("sim", (KernelMeta("k", 7, 8),), (RegionMeta("load", "i32"),))


@pytest.fixture
def file(tmp_path: Path) -> PoolFile:
    return PoolFile(tmp_path / "one.pool", PoolDevice(0, "a device", 4), 1, SIZE)


def slabs(count: int, mark: int) -> np.ndarray:
    """Lines of drained slabs."""
    return np.full((count, 16), mark, np.uint32)


def test_modules_launches_and_problems_are_read_back(file: PoolFile) -> None:
    file.modules([META])
    file.modules([META])
    file.launched(7, 123, [("train.py", 4, "step"), ("train.py", 9, "<module>")])
    file.note("problem", {"text": "it trapped"})
    pool = pool_reading.open_pool(file.path)
    entries = pool_reading.journal(pool)
    assert [entry["kind"] for entry in entries] == ["device", "module", "problem"], "a module once"
    assert pool_reading.modules(entries) == (META,)
    (launch,) = pool_reading.launches(pool)
    assert (launch.number, launch.kernel, launch.stack[0]) == (0, 7, ("train.py", 4, "step"))
    assert "a device 0" in next(text.lines(verdict(pool)))
    assert pool.is_running() and not pool.has_ended


def test_a_hundred_thousand_launches_leave_the_file_as_large_as_it_was(file: PoolFile) -> None:
    size = file.path.stat().st_size
    for number in range(100_000 if native.available() else 1000):
        file.launched(number, 0, [])
    assert file.path.stat().st_size == size == pool_file.file_bytes(SIZE)
    found = pool_reading.launches(pool_reading.open_pool(file.path))
    assert len(found) == LAUNCHES and found[0].number - found[-1].number == LAUNCHES - 1


def test_a_stack_that_is_too_long_loses_its_outermost_lines(file: PoolFile) -> None:
    file.launched(7, 0, [("folder/" * 60 + f"{n}.py", n, "f") for n in range(9)])
    (launch,) = pool_reading.launches(pool_reading.open_pool(file.path))
    assert 0 < len(launch.stack) < 9 and launch.stack[0][1] == 0


def test_a_full_journal_counts_what_it_leaves_out(file: PoolFile) -> None:
    long = {"text": "x" * (1 << 20)}
    for _ in range(6):
        file.note("problem", long)
    pool = pool_reading.open_pool(file.path)
    assert pool.state["journal_left_out"] == 3
    assert any("3 names and problems did not fit" in problem for problem in verdict(pool).problems)


@given(st.lists(st.integers(1, 6000), min_size=1, max_size=12))
@settings(max_examples=20, deadline=None)
def test_the_newest_drained_records_are_kept_and_the_others_counted(sizes: list[int]) -> None:
    folder = pool_folder.private_folder()
    file = PoolFile(folder / "kept.pool", PoolDevice(0, "", 4), 1, SIZE)
    try:
        for mark, size in enumerate(sizes):
            file.keep(slabs(size, mark + 1))
        lines, lost = pool_arrays.drained_slabs(pool_reading.open_pool(file.path))
        marks = list(dict.fromkeys(lines[:, 0].tolist()))
        assert marks == sorted(marks) and lost == len(sizes) - len(marks)
        assert marks[-1:] == [len(sizes)], "the newest is there"
        assert all((lines[:, 0] == mark).sum() == sizes[mark - 1] for mark in marks), "whole, or not at all"
    finally:
        file.end(remove=True)


def test_a_batch_that_is_larger_than_the_ring_is_counted_and_not_kept(file: PoolFile) -> None:
    file.keep(slabs(1, 1))
    file.keep(slabs(pool_layout.LEAST_KEPT // layout.LINE, 2))
    lines, lost = pool_arrays.drained_slabs(pool_reading.open_pool(file.path))
    assert lines[:, 0].tolist() == [1] and lost == 1


@pytest.mark.parametrize("lines", [1, 4096, 4097, 12_288, 15_000])
def test_a_batch_is_copied_and_checked_the_same_without_compiled_loops(
    lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = np.random.default_rng(lines).integers(0, 256, 64 * lines, dtype=np.uint8)
    copies = np.zeros((2, len(batch)), np.uint8)
    checks = [pool_file._copied(batch, copies[0])]
    monkeypatch.setenv("KSCOPE_NATIVE", "0")
    checks.append(pool_file._copied(batch, copies[1]))
    assert checks == [batch_check.check(memoryview(batch))] * 2 and (copies == batch).all()


@pytest.mark.skipif(not native.available(), reason="no compiled loops")
@pytest.mark.parametrize("words", [1, 7, 8, 9, 33, 4099])
def test_compiled_checksums_are_zlibs(words: int) -> None:
    """Checksums of whole blocks that are folded, and of the rest."""
    data = np.random.default_rng(words).integers(0, 256, 8 * words, dtype=np.uint8)
    to, checks = np.zeros_like(data), np.zeros(-(-words // 100), np.uint32)
    native.call("copy_checked", data, to, words, 100, checks, 2)
    assert (to == data).all()
    assert checks.tolist() == [zlib.crc32(data[at : at + 800]) for at in range(0, len(data), 800)]
    for size in (len(data), len(data) - 3):
        for tables_alone in (0, 1):
            assert native.call("crc32", data, size, tables_alone) == zlib.crc32(data[:size])


@given(st.integers(0, 64 * 9000 - 1), st.integers(1, 255))
@settings(max_examples=20, deadline=None)
def test_a_damaged_batch_is_left_out(at: int, bits: int) -> None:
    file = PoolFile(pool_folder.private_folder() / "damaged.pool", PoolDevice(0, "", 4), 1, SIZE)
    try:
        file.keep(slabs(9000, 1))
        file.keep(slabs(2, 2))
        kept = file._kept
        kept[64 + at] ^= bits
        lines, lost = pool_arrays.drained_slabs(pool_reading.open_pool(file.path))
        assert lines[:, 0].tolist() == [2, 2] and lost == 1
    finally:
        file.end(remove=True)


def test_a_folder_without_room_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fstatvfs", lambda file: SimpleNamespace(f_blocks=1, f_bavail=1, f_frsize=4096))
    with pytest.raises(UsageError, match=f"no room for .* MiB .*{pool_folder.VARIABLE}"):
        PoolFile(tmp_path / "one.pool", PoolDevice(0, "", 4), 1, SIZE)
    assert not any(tmp_path.iterdir())


def recorded(folder: Path) -> bytes:
    """A file of a simulated launch with open regions."""

    def kernel(warp: kscope_sim.Warp) -> None:
        with kscope.region("load", value=warp.index):
            warp.work(10)
        with kscope.region("wait", value=3):
            if warp.block[0]:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), kscope.profile(survive="shm", pool=1 << 16):
        kscope_sim.launch(kernel, grid=2, block=64)
    (path,) = folder.glob("*.pool")
    return path.read_bytes()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("pools") / "private"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(pool_folder.VARIABLE, str(folder))
        return recorded(folder)


def looked_at(path: Path) -> list[str]:
    """Everything that reads a pool file."""
    pool = pool_reading.open_pool(path)
    trace = kscope.decode(kscope.load_capture(path))
    return [*text.lines(verdict(pool)), str(trace.summary()), *(problem.text for problem in trace.problems)]


def test_a_fault_leaves_the_warps_where_they_were(good: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pool").write_bytes(good)
    found = "\n".join(looked_at(tmp_path / "a.pool"))
    assert "warp 0 of block 1 is in `wait` (value 3)" in found and "ended its session" in found


def damaged(good: bytes, data: st.DataObject) -> bytearray:
    """A file with changed bytes."""
    found = bytearray(good)
    used = [*range(pool_layout.HEADER.itemsize), *range(pool_layout.PAGE, pool_layout.PAGE + 4096)]
    parts = st.one_of(
        st.sampled_from(used), st.integers(0, len(good) - 1), st.integers(len(good) - SIZE, len(good) - 1)
    )
    for at in data.draw(st.lists(parts, min_size=1, max_size=20)):
        found[at] = data.draw(st.integers(0, 255))
    return found


@pytest.mark.parametrize("compiled", [True, False])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_damage_is_refused_or_read_within_bounds(
    good: bytes, compiled: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = damaged(good, data)
    if data.draw(st.booleans()):
        del found[data.draw(st.integers(0, len(good))) :]
    path = tmp_path_factory.getbasetemp() / f"damaged-{compiled}.pool"
    path.write_bytes(found)
    try:
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                patch.setattr(native, "available", lambda: False)
            with suppress(KscopeError):
                looked_at(path)
    finally:
        path.unlink()


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with drained slabs, warps that have finished, and others that never will."""
    folder = tmp_path_factory.mktemp("drained") / "private"

    def kernel(warp: kscope_sim.Warp) -> None:
        kscope.role("first" if warp.index == 0 else "other")
        for value in (1, 2.5, 1 << 40):
            with kscope.region(f"load {value}", value=value):
                warp.work(10)
        if warp.block[0] > 80 and warp.index % 3 == 0:
            warp.trap()
        with kscope.region("wait", value=warp.index):
            if warp.block[0] > 85:
                warp.trap()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(pool_folder.VARIABLE, str(folder))
        with kscope.profile(survive="shm", pool=1 << 16, records=8):
            kscope_sim.launch(kernel, grid=80, block=128)
            kscope_sim.launch(kernel, grid=90, block=128)
            (path,) = folder.glob("*.pool")
            assert pool_reading.batches(pool_reading.open_pool(path))[0]
            return path.read_bytes()


@pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")
@pytest.mark.parametrize("source", ["good", "drained"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_compiled_loops_find_what_numpy_finds(
    source: str, data: st.DataObject, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole: bytes = request.getfixturevalue(source)
    path = tmp_path_factory.getbasetemp() / "both.pool"
    path.write_bytes(damaged(whole, data) if data.draw(st.booleans()) else whole)

    def found() -> list[object]:
        pool = pool_reading.open_pool(path)
        batches, lost = pool_reading.batches(pool)
        columns = warps(pool, frozenset(layout.name_hash(f"{one}\x1fkscope.role") for one in ("first", "other")))
        blocks = [drained_blocks(batch, grid) for batch in batches for grid in sorted({*columns.grid, 2})]
        return [list(map(bytes, pool_reading.slabs(pool))), list(map(bytes, batches)), lost, columns, blocks]

    try:
        compiled = found()
    except KscopeError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "available", lambda: False)
        assert found() == compiled


def test_a_running_program_changes_nothing_of_a_capture_while_it_is_made(
    good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "running.pool"
    path.write_bytes(good)
    monkeypatch.setattr(processes, "is_running", lambda *process: True)
    expected = pool_capture.capture_of(pool_reading.open_pool(path)).devices[0].lines
    valid, pool = heads.valid, pool_reading.open_pool(path)

    def then_another_slab(*checked: Any) -> Any:
        found = valid(*checked)
        with path.open("r+b") as file:
            for first in pool_reading.slabs(pool)[0]:  # of another size, which is not what was checked
                file.seek(int(pool.header["pool_at"]) + first * wire.UNIT + 12)
                file.write(b"\0\0\0\x18")
        return found

    monkeypatch.setattr(heads, "valid", then_another_slab)
    assert np.array_equal(pool_capture.capture_of(pool).devices[0].lines, expected)


def test_an_entry_that_is_completed_while_it_is_read_is_there_whole_or_not_at_all(
    file: PoolFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.modules([META])
    pool, reads, head = pool_reading.open_pool(file.path), list[int](), pool_layout.ENTRY_HEAD

    def read(data: memoryview, at: int) -> dict[str, Any]:
        reads.append(at)
        return head.read(bytes(16) if len(reads) == 1 else data, 0 if len(reads) == 1 else at)

    monkeypatch.setattr(pool_layout, "ENTRY_HEAD", SimpleNamespace(read=read, itemsize=16))
    assert pool_reading.journal(pool) == []
    assert [entry["kind"] for entry in pool_reading.journal(pool)] == ["device", "module"]


@pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")
def test_block_numbers_of_damaged_headers_wrap_as_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.zeros((1, layout.HEADER_BYTES // 4), np.uint32)
    words[0, 0], words[0, 4], words[0, 6:10] = layout.HEADER_WORD, 3, 0xFFFFFFFF
    words[0, 15] = layout.header_check(words)[0]
    batch = memoryview(words.tobytes())
    compiled = drained_blocks(batch, 3)
    monkeypatch.setattr(native, "available", lambda: False)
    assert drained_blocks(batch, 3) == compiled and len(compiled) == 1


def test_the_number_of_a_process_that_was_used_again_is_noticed(
    file: PoolFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_reading.open_pool(file.path)
    assert pool.is_running()
    monkeypatch.setattr(processes, "born", lambda pid: 1)
    assert not pool.is_running()


def test_files_of_dead_processes_are_removed_but_for_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pool_folder.VARIABLE, str(tmp_path))
    files = [PoolFile(tmp_path / f"{n}-1-gpu0.pool", PoolDevice(0, "", 4), 1, SIZE) for n in range(6)]
    assert pool_folder.remove_ended() == []
    files[0].end(remove=False)
    assert pool_folder.remove_ended() == [files[0].path]
    monkeypatch.setattr(processes, "is_running", lambda *process: False)
    assert len(pool_folder.remove_ended(keep=4)) == 1
    assert len(list(tmp_path.iterdir())) == 4
