"""Records in host memory: limited by the process's memory, and freed with the capture."""

from __future__ import annotations

import errno
import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kscope.capture import layout
from kscope.decoding import slabs
from kscope.util import memory
from kscope_runtime import arena
from kscope_runtime.arena import Arena

from .conftest import Bench
from .fake import Lane

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine whose /proc and cgroups have these files."""

    def made(**files: object) -> None:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    return made


def test_the_limit_of_every_cgroup_above_counts_v2(machine: Callable[..., None]) -> None:
    machine(
        proc__self__cgroup="0::/slice/job",
        cgroup__slice__job__memory_DOT_max="max",
        cgroup__slice__memory_DOT_max=3 << 20,
        cgroup__slice__memory_DOT_current=2 << 20,
        cgroup__slice__memory_DOT_stat="anon 5\ninactive_file 1048576",
        cgroup__memory_DOT_max=8 << 20,
    )
    assert memory.limit() == 3 << 20
    assert memory.available() == 2 << 20  # page cache can be dropped


def test_the_limit_of_every_cgroup_above_counts_v1(machine: Callable[..., None]) -> None:
    machine(
        proc__self__cgroup="5:cpu,cpuacct:/\n4:memory:/job\n0::/",
        cgroup__memory__job__memory_DOT_limit_in_bytes=5 << 20,
        cgroup__memory__job__memory_DOT_usage_in_bytes=4 << 20,
        cgroup__memory__memory_DOT_limit_in_bytes=9223372036854771712,
        proc__meminfo="MemTotal: 99999 kB\nMemAvailable: 512 kB",
    )
    assert memory.limit() == 5 << 20
    assert memory.available() == 512 << 10


def test_cgroup_mounts_may_start_at_the_containers_group(machine: Callable[..., None]) -> None:
    machine(proc__self__cgroup="0::/docker/0123", cgroup__memory_DOT_max=7 << 20)
    assert memory.limit() == 7 << 20


def test_without_cgroups_the_machines_memory_is_the_limit(machine: Callable[..., None]) -> None:
    assert memory.limit() > 1 << 20
    assert memory.available() == memory.limit()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 1 GiB of memory, looked at whenever lines are taken; the file grows page by page."""
    monkeypatch.setattr(memory, "limit", lambda: GIB)
    monkeypatch.setattr(memory, "available", lambda: GIB)
    monkeypatch.setattr(arena, "_LOOK", 0)
    monkeypatch.setattr(arena, "_LOOKS", GIB)
    monkeypatch.setattr(arena, "_STEP", 4096)


def test_without_a_disk_records_take_at_most_half_of_the_memory(small: None, tmp_path: Path) -> None:
    made = Arena(tmp_path / "missing")
    made.take(1)
    assert made._room is not None
    assert made._room.nbytes == GIB // 2
    with pytest.raises(MemoryError, match=r"0 MiB of records are on the host, 1,024 of 1,024 MiB of memory are left"):
        made.take(GIB // 2 // layout.LINE)
    assert not len(made.reserve(0))


def test_what_exceeds_a_quarter_of_the_memory_is_in_a_file(small: None, tmp_path: Path) -> None:
    made = Arena(tmp_path)
    made.take(GIB // 4 // layout.LINE - 100)
    assert made._file is None
    for number in range(1, 1000):  # across the border, and across many steps of the file
        made.take(33)[:] = number
    lines = made.lines()
    first = GIB // 4 // layout.LINE - 100
    assert lines[first:, 0].tolist() == [number for number in range(1, 1000) for _ in range(33)]
    assert made._file is not None
    stored = np.fromfile(f"/proc/self/fd/{made._file}", np.uint32).reshape(-1, 16)
    assert np.array_equal(stored[: len(lines) - (made._mapped - len(stored))], lines[made._mapped - len(stored) :])
    assert not list(tmp_path.iterdir()), "the file has no name: nothing is left after a kill"
    kept = lines[-1]
    del made, lines
    gc.collect()
    assert kept[0] == 999 and str(tmp_path) in Path("/proc/self/maps").read_text()
    del kept, stored
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_a_full_disk_ends_the_recording_before_a_page_faults(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    made = Arena(tmp_path)
    before = made.take(GIB // 4 // layout.LINE)
    monkeypatch.setattr(os, "posix_fallocate", full)
    for _ in range(2):
        with pytest.raises(MemoryError, match=f"256 MiB .*{tmp_path} takes no more of them .No space left on device"):
            made.take(1)
    assert len(made.lines()) == len(before)


def test_a_full_arena_stays_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a slab that was taken before the error would be taken again."""
    monkeypatch.setattr(memory, "limit", lambda: GIB)
    monkeypatch.setattr(memory, "available", lambda: 0)
    made = Arena()
    for _ in range(2):
        with pytest.raises(MemoryError, match=r"0 of 1,024 MiB of memory are left: record fewer blocks"):
            made.take(1)
        monkeypatch.setattr(memory, "available", lambda: GIB)
    assert len(made.lines()) == 0


def test_running_out_of_memory_keeps_records_and_reports_a_problem(
    by_hand: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "_LOOK", 0)
    monkeypatch.setattr(arena, "_LOOKS", GIB)
    bench = Bench().arm()
    for block in range(8):
        Lane(bench.memory, sm=0, block=block).run()
    bench.drain._passes.once(share=1 << 20)
    Lane(bench.memory, sm=0, block=8).run()
    monkeypatch.setattr(memory, "available", lambda: 0)
    bench.backend.disarm()
    (device,) = bench.backend.collect(wait=True)
    found, _ = slabs.find(device.lines, 1)
    assert found.header["ctaid_x"].tolist() == list(range(8))
    (problem,) = bench.backend.problems()
    assert problem.kind == "drain"
    assert "are on the host" in problem.text


def test_the_memory_of_a_capture_is_freed_with_it(by_hand: None) -> None:
    bench = Bench().arm()
    Lane(bench.memory).run()
    bench.backend.disarm()
    (device,) = bench.backend.collect(wait=True)
    assert len(device.lines)
    base: object = device.lines
    while isinstance(base, np.ndarray) and isinstance(base.base, np.ndarray):
        base = base.base
    room = weakref.ref(base)
    del device, base
    gc.collect()
    assert room() is None
