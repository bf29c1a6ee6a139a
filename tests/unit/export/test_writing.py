"""Writing files: targets, progress, and refusals before any work."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
import synth

import kscope.export as export
from kscope.capture.capture import Capture
from kscope.errors import UsageError
from kscope.export import timeline
from kscope.trace import Trace, decode
from kscope.util import progress
from kscope.util.gz import PIECE, GzipWriter


def bulk(slabs: int = 200, records: int = 60) -> Trace:
    lines = synth.bulk(slabs, records, waves=4)
    return decode(Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load", "dot", "tile")),)))


@pytest.mark.parametrize("suffix", export.suffixes())
def test_every_format_counts_each_record_once(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if suffix in (".parquet", ".arrow", ".feather"):
        pytest.importorskip("pyarrow")
    trace, done = bulk(), []
    monkeypatch.setattr(progress, "progress_bar", lambda total, what: Counting(done, total))
    trace.export(tmp_path / f"x{suffix}", progress=True)
    assert sum(done) == len(trace)


@pytest.mark.parametrize("suffix", export.suffixes())
def test_the_work_of_an_export_is_linear_in_the_names(suffix: str, tmp_path: Path) -> None:
    if suffix in (".parquet", ".arrow", ".feather"):
        pytest.importorskip("pyarrow")

    def work(names: int) -> int:
        known = [f"name {n}" for n in range(names)]
        records = [synth.Rec(name, 2000 + 2 * at, 2001 + 2 * at) for at, name in enumerate(known)]
        trace, count = decode(synth.capture(synth.slab(records, log2=10), names=known)), 0

        def counted(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal count
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            count += event == "opcode"
            return counted

        before = sys.gettrace()
        sys.settrace(counted)
        try:
            trace.export(tmp_path / f"x{suffix}")
        finally:
            sys.settrace(before)
        return count

    work(1)  # imports
    assert work(1000) < 11 * work(100)


class Counting:
    """A progress bar that keeps its steps."""

    def __init__(self, done: list[int], total: int) -> None:
        self._done = done
        assert total == 200 * 60

    def __enter__(self) -> Any:
        return self._done.append

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""


def test_without_rich_or_tqdm_percentages_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    bulk().export(tmp_path / "x.json", progress=True)
    captured = capsys.readouterr()
    assert "x.json: 100 %" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("package", ["rich", "tqdm"])
def test_rich_or_tqdm_draws_the_progress_bar_if_installed(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    bars = {"rich": _rich(done), "tqdm": _tqdm(done)}[package]
    monkeypatch.setattr(progress, "find_spec", lambda name: name if name == package else None)
    for name, module in bars.items():
        monkeypatch.setitem(sys.modules, name, module)
    bulk().export(tmp_path / "x.json", progress=True)
    assert sum(done) == 200 * 60


class _Bar:
    """The part of rich.progress.Progress and tqdm.tqdm that is used."""

    def __init__(self, done: list[int]) -> None:
        self._done = done

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def add_task(self, what: str, total: int) -> int:
        assert total == 200 * 60
        return 7

    def advance(self, task: int, count: int) -> None:
        assert task == 7
        self._done.append(count)

    def update(self, count: int) -> None:
        self._done.append(count)


def _rich(done: list[int]) -> dict[str, ModuleType]:
    console, bars = ModuleType("rich.console"), ModuleType("rich.progress")
    console.Console = lambda stderr: stderr  # type: ignore[attr-defined]  # a module of the test's own
    bars.Progress = lambda console, transient: _Bar(done)  # type: ignore[attr-defined]  # the same
    return {"rich": ModuleType("rich"), "rich.console": console, "rich.progress": bars}


def _tqdm(done: list[int]) -> dict[str, ModuleType]:
    module = ModuleType("tqdm")
    module.tqdm = lambda **options: _Bar(done)  # type: ignore[attr-defined]  # a module of the test's own
    return {"tqdm": module}


def test_progress_is_silent_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bulk(5).export(tmp_path / "x.json")
    assert capsys.readouterr() == ("", "")


def test_a_limit_keeps_the_earliest_records_where_others_begin_together() -> None:
    ties = [synth.Rec("tie", 3000, 3010 + at) for at in range(3)]
    trace = decode(synth.capture(synth.slab(ties), synth.slab([synth.Rec("early", 1500, 1600)], warp=1),
                                 names=("tie", "early")))  # fmt: skip
    for limit in (1, 2, 3):
        kept, [problem] = timeline.first(trace, limit)
        assert sorted(kept.region_names()[kept.region]) == ["early", *["tie"] * (limit - 1)]
        assert (problem.kind, problem.count) == ("limited", 4 - limit)


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_the_timeline_limits_warps_without_records(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MOST_EMPTY", 2)
    empty = [synth.slab([], start=1000 - warp, warp=warp) for warp in range(5)]
    recorded = synth.slab([synth.Rec("load", 2000, 2100)], warp=9)
    trace = decode(synth.capture(*empty, recorded))
    drawn = timeline.timeline(trace)
    assert trace.warps.warp[drawn.drawn].tolist() == [3, 4, 9]
    assert drawn.problems[0].text == "3 of 5 warps without records left out, the latest ones"
    trace.export(tmp_path / f"x{suffix}")
    shown = (tmp_path / f"x{suffix}").read_bytes()
    assert {warp for warp in range(10) if b"block 0 warp %d" % warp in shown} == {3, 4, 9}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="is not writable"):
        export.check(tmp_path / "x.json")


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays_and_its_target_is_written(exists: bool, tmp_path: Path) -> None:
    elsewhere = tmp_path / "scratch" / "target"
    elsewhere.parent.mkdir()
    if exists:
        elsewhere.write_text("old")
    (tmp_path / "x.json").symlink_to("scratch/target")
    bulk(2).export(tmp_path / "x.json")
    assert (tmp_path / "x.json").is_symlink()
    assert json.loads(elsewhere.read_bytes())["traceEvents"]
    assert [path.name for path in elsewhere.parent.iterdir()] == ["target"]


def test_a_failed_export_keeps_the_target_of_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "x.pftrace").symlink_to("target")
    monkeypatch.setattr("kscope.export.perfetto.pftrace.head", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bulk(2).export(tmp_path / "x.pftrace")
    assert (tmp_path / "x.pftrace").is_symlink()
    assert (tmp_path / "target").read_text() == "old"


def test_a_link_into_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("scratch/target")
    with pytest.raises(UsageError, match="scratch' does not exist"):
        bulk(2).export(tmp_path / "x.json")


def test_a_named_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    reader = os.open(tmp_path / "x.json", os.O_RDONLY | os.O_NONBLOCK)
    bulk(2, 3).export(tmp_path / "x.json")
    with open(reader, "rb") as file:
        assert json.loads(file.read())["traceEvents"]
    assert (tmp_path / "x.json").is_fifo()


def test_names_of_maximum_length_compile(tmp_path: Path) -> None:
    name = "n" * (255 - len(".json")) + ".json"
    bulk(2).export(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 77])
def test_packing_round_trips(size: int) -> None:
    import gzip
    import random

    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    out = io.BytesIO()
    with GzipWriter(out) as file:
        for at in range(0, size, 300_001):
            file.write(memoryview(data)[at : at + 300_001])
    assert gzip.decompress(out.getvalue()) == data


def test_a_failure_while_packing_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kscope.export.perfetto.pftrace as pftrace

    monkeypatch.setattr(pftrace, "head", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bulk(2).export(tmp_path / "x.pftrace.gz")
    assert not list(tmp_path.iterdir())
