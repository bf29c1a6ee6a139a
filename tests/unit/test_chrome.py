"""Chrome JSON: every record once, on tracks that no viewer merges."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import synth
from synth import Rec

from kscope.trace import Trace, decode


@pytest.fixture
def trace() -> Trace:
    slabs = [synth.slab(synth.EVERY_KIND, sm=sm, block=(sm, 0, 0), grid=(9, 1, 1)) for sm in (3, 8)]
    return decode(synth.capture(*slabs, names=synth.ITS_NAMES, lost=2))


def written(trace: Trace, path: Path) -> dict[str, Any]:
    trace.export(path)
    data = path.read_bytes()
    return orjson.loads(gzip.decompress(data) if path.suffix == ".gz" else data)  # type: ignore[no-any-return]  # an object


def test_spans_are_complete_events_in_microseconds(trace: Trace, tmp_path: Path) -> None:
    found = written(trace, tmp_path / "x.json")
    assert found["displayTimeUnit"] == "ns"
    spans = [event for event in found["traceEvents"] if event["ph"] == "X" and event["cat"] == "region"]
    assert sorted(event["name"] for event in spans) == ["dot", "dot", "load", "load", "tile", "tile"]
    assert {event["name"]: event["dur"] for event in spans} == pytest.approx(
        {"load": 0.1, "dot": 0.1, "tile": 0.308}, abs=0.001
    )
    [first, second] = [event["args"] for event in spans if event["name"] == "dot"]
    assert first == second == {"cycles": 198, "start_ns": pytest.approx(603.78, abs=0.01), "value": 5}


def test_points_and_counters_are_separate_events(trace: Trace, tmp_path: Path) -> None:
    events = written(trace, tmp_path / "x.json")["traceEvents"]
    rows = {event["tid"] for event in events if event["ph"] == "X"}
    assert [event["name"] for event in events if event["ph"] == "i" and event["tid"] in rows] == ["mark", "mark"]
    counters = [event for event in events if event["ph"] == "C"]
    assert [event["args"]["value"] for event in counters] == [3, 3]
    assert {event["name"] for event in counters} == {"queue, SM 3 · block 3 warp 0", "queue, SM 8 · block 8 warp 0"}


def test_no_track_can_be_merged_with_another(trace: Trace, tmp_path: Path) -> None:
    events = written(trace, tmp_path / "x.json")["traceEvents"]
    assert all(event["tid"] >= 2 and event["tid"] not in {other["pid"] for other in events} for event in events)
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    rows = ["SM 3 · block 3 warp 0", "SM 8 · block 8 warp 0", "matmul #0", "problems of this recording"]
    assert sorted(threads.values()) == rows
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xi"} == set(threads)
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["synthetic"]


def test_threads_are_numbered_from_sm_to_sm_and_warp_to_warp(tmp_path: Path) -> None:
    slabs = [
        synth.slab([Rec("load", 2000, 2100)], sm=sm, warp=warp, block=(sm, 0, 0), grid=(20, 1, 1))
        for sm, warp in ((10, 1), (9, 3), (10, 0), (9, 2))
    ]
    events = written(decode(synth.capture(*slabs)), tmp_path / "x.json")["traceEvents"]
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    order = ["matmul #0", *(f"SM {sm} · block {sm} warp {warp}" for sm, warp in ((9, 2), (9, 3), (10, 0), (10, 1)))]
    assert [threads[tid] for tid in sorted(threads) if "problems" not in threads[tid]] == order


def test_spans_lie_within_their_launch(trace: Trace, tmp_path: Path) -> None:
    events = [event for event in written(trace, tmp_path / "x.json")["traceEvents"] if event["ph"] == "X"]
    [launch] = [event for event in events if event["cat"] == "launch"]
    begin, end = launch["ts"], launch["ts"] + launch["dur"]
    assert all(begin <= one["ts"] and one["ts"] + one["dur"] <= end for one in events)
    assert launch["args"]["blocks"] == "2 of 9 recorded"


def test_times_count_from_the_base_in_unix_ns(trace: Trace, tmp_path: Path) -> None:
    found = written(trace, tmp_path / "x.json")
    assert found["baseTimeNanoseconds"] == pytest.approx(trace.origin, abs=10)
    [launch] = [event for event in found["traceEvents"] if event.get("cat") == "launch"]
    assert launch["args"]["start_unix_ns"] == found["baseTimeNanoseconds"]


def test_rows_and_slices_carry_what_is_known(trace: Trace, tmp_path: Path) -> None:
    regions = tuple(replace(one, where=f"attn.py:{len(one.name)}") for one in trace.regions)
    events = written(replace(trace, regions=regions), tmp_path / "x.json")["traceEvents"]
    assert {e["name"]: e["args"]["where"] for e in events if e.get("cat") == "region"} == {
        "load": "attn.py:4", "dot": "attn.py:3", "tile": "attn.py:4",
    }  # fmt: skip
    rows = [event["args"] for event in events if event["name"] == "thread_name" and "warp" in event["args"]["name"]]
    assert [(row["sm"], row["linear_block"], row["warp"]) for row in rows] == [(3, 3, 0), (8, 8, 0)]
    assert all(row["records"] == len(synth.EVERY_KIND) and "inferred" in row["role"] for row in rows)


def test_problems_are_in_the_events_and_in_the_metadata(trace: Trace, tmp_path: Path) -> None:
    found = written(trace, tmp_path / "x.json")
    texts = [problem["text"] for problem in found["otherData"]["problems"]]
    assert texts == [problem.text for problem in trace.problems]
    assert [
        event["ts"] for event in found["traceEvents"] if event["ph"] == "i" and "count" in event.get("args", {})
    ] == [0] * len(texts)


def test_the_packed_file_holds_the_same(trace: Trace, tmp_path: Path) -> None:
    assert written(trace, tmp_path / "x.json.gz") == written(trace, tmp_path / "x.json")


def test_an_empty_trace_is_valid_json(tmp_path: Path) -> None:
    events = written(decode(synth.capture()), tmp_path / "x.json")["traceEvents"]
    assert [event["name"].partition(":")[0] for event in events] == [
        "process_name",
        "thread_name",
        "thread_sort_index",
        "blank",
    ]


def test_arbitrary_names_are_escaped(tmp_path: Path) -> None:
    name = 'a "quoted" \\ </script> ünïcode \n'
    trace = decode(synth.capture(synth.slab([Rec(name, 2000, 2100)]), names=(name,)))
    assert name in [event["name"] for event in written(trace, tmp_path / "x.json")["traceEvents"]]


@pytest.mark.parametrize("last", ["mark", "tile"])
def test_the_outer_of_equal_spans_is_exported_first(last: str, tmp_path: Path) -> None:
    """The events as viewers read them, whether all records of a chunk are spans or not."""
    records = [Rec(name, 2000, 2100) for name in ("load", "dot", "tile")] * 2
    records += [Rec("tile", 2200, 2300)] if last == "tile" else [synth.instant("mark", 2300)]
    trace = decode(synth.capture(synth.slab(records), names=("load", "dot", "tile", "mark")))
    trace.export(tmp_path / "x.json")
    events = orjson.loads((tmp_path / "x.json").read_bytes())["traceEvents"]
    same = [event for event in events if event.get("cat") == "region" and event["ts"] < 1.1]
    first = min(event["ts"] for event in same)
    assert [event["name"] for event in same if event["ts"] == first] == ["tile", "dot", "load"] * 2
