"""The processes of a timeline: GPUs that hold launches, or SMs (blocks, warps) that hold launches."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synth
from replay import replay
from synth import Rec

from kscope import cli
from kscope.errors import UsageError
from kscope.trace import Trace, decode


def _trace(launches: int = 2) -> Trace:
    slabs = [
        synth.slab(
            [Rec("load", start + 20, start + 80)], start=start, end=start + 400, block=(block, 0, 0), grid=(4, 1, 1),
            warp=warp, sm=(block + launch) % 2, grid_id=launch + 1,
        )
        for launch in range(launches)
        for start in [100_000 * (launch + 1)]
        for block in range(4)
        for warp in range(2)
    ]  # fmt: skip
    return decode(synth.capture(*slabs))


def _chrome(path: Path) -> dict[str, set[str]]:
    """Threads that have spans, by process."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    threads = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    found: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.get("cat") == "region":
            found[names[event["pid"]]].add(threads[event["tid"]])
    tids = {e["tid"] for e in events if e["ph"] == "X"}
    assert not tids & {event["pid"] for event in events}
    return dict(found)


def _pftrace(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for one in replay(path).slices:
        if one.name == "load":
            found[one.track[0]].add(" · ".join(one.track[1:]))
    return dict(found)


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_an_sm_is_a_process_with_threads_of_blocks_and_warps(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    assert _trace(1).export(path, group="sm", processes="groups") == 8
    assert (_chrome if suffix == ".json" else _pftrace)(path) == {
        f"SM {sm}": {f"block {block} warp {warp}" for block in (sm, sm + 2) for warp in (0, 1)} for sm in (0, 1)
    }


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_exported_processes_keep_launches_on_separate_threads(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    _trace(2).export(path, group="block", processes="groups")
    assert (_chrome if suffix == ".json" else _pftrace)(path) == {
        f"block {block}": {f"matmul #{launch} · warp {warp}" for launch in (0, 1) for warp in (0, 1)}
        for block in range(4)
    }


@pytest.mark.parametrize("group", ["sm", "block", "warp"])
def test_process_grouping_neither_loses_nor_merges_spans(group: str, tmp_path: Path) -> None:
    trace = _trace(2)
    spans = []
    for processes in ("launches", "groups"):
        trace.export(tmp_path / "x.pftrace", group=group, processes=processes)
        trace.export(tmp_path / "x.json", group=group, processes=processes)
        found = replay(tmp_path / "x.pftrace")
        assert found.stray_ends == found.unfinished == 0
        spans.append(sorted((one.name, one.start + found.realtime, one.dur) for one in found.slices))
        assert sum(map(len, _chrome(tmp_path / "x.json").values())) == len({one.track for one in found.slices}) == 16
    assert spans[0] == spans[1]


def test_export_accepts_processes_groups_and_refuses_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    slab = synth.slab([Rec("load", 2000, 2100)], sm=7)
    synth.capture(slab).save("a.kscope")
    assert cli.main(["export", "a.kscope", "-o", "x.json", "--group", "sm", "--processes", "groups"]) == 0
    assert set(_chrome(Path("x.json"))) == {"SM 7"}
    with pytest.raises(UsageError, match="expected one of launches, groups"):
        _trace(1).export("x.json", processes="sms")


def _two_gpus() -> Trace:
    """The same kernel on two GPUs of different models, as in a capture of a process that uses both."""
    devices = tuple(
        replace(
            synth.device(
                [synth.slab([Rec("load", 1020, 1080)], warp=warp, sm=sm, grid_id=sm + 1) for warp in range(2)],
                ordinal=ordinal,
            ),
            name=name,
        )
        for ordinal, (name, sm) in enumerate((("NVIDIA H200", 3), ("NVIDIA B200", 5)))
    )
    return decode(replace(synth.capture(), devices=devices))


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_every_gpu_is_a_top_group_named_with_its_model(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    _two_gpus().export(path)
    found = (_chrome if suffix == ".json" else _pftrace)(path)
    assert found.keys() == {"GPU 0 · NVIDIA H200", "GPU 1 · NVIDIA B200"}
    for gpu, sm in (("GPU 0 · NVIDIA H200", 3), ("GPU 1 · NVIDIA B200", 5)):
        assert len(found[gpu]) == 2
        assert all(f"SM {sm}" in row for row in found[gpu])


def test_rows_have_their_cluster_and_its_rank(tmp_path: Path) -> None:
    slabs = [
        synth.slab(
            [Rec("load", 1020, 1080)], block=(x, y, 0), grid=(4, 2, 1), cluster=x % 2 | 2 << 8 | 1 << 16 | 1 << 24
        )
        for x in range(4)
        for y in range(2)
    ]
    trace = decode(synth.capture(*slabs))
    assert dict(zip(trace.warps.labels(np.arange(8)).strings(), trace.warps.cluster.tolist(), strict=True)) == {
        f"block {x},{y} warp 0": x // 2 + 2 * y for x in range(4) for y in range(2)
    }
    trace.export(tmp_path / "x.pftrace")
    notes = [note for note in replay(tmp_path / "x.pftrace").notes.values() if "linear_block" in note]
    assert sorted(note.partition("cluster ")[2].partition(",")[0] for note in notes) == [*"00112233"]
    assert all("cluster_rank " in note for note in notes)
    trace.export(tmp_path / "x.json")
    events = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    rows = [event["args"] for event in events if event["name"] == "thread_name" and "cluster" in event["args"]]
    assert sorted(row["cluster"] for row in rows) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_rows_of_launches_without_clusters_name_none(tmp_path: Path) -> None:
    trace = _trace(1)
    assert set(trace.warps.cluster.tolist()) == {-1}
    trace.export(tmp_path / "x.pftrace")
    assert not any("cluster" in note for note in replay(tmp_path / "x.pftrace").notes.values())
