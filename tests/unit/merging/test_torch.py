"""A capture beside a trace of torch.profiler, from runs with known truth."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import kinetos
import numpy as np
import orjson
import pytest
from kinetos import BASE, Recorded, Run
from replay import replay

import kscope
from kscope.cli import main
from kscope.errors import FormatError, UsageError
from kscope.merging.names import identifier
from kscope.merging.torch import Merged
from kscope.trace import Trace, decode

FAR = 250
"""ns between two launches that no clock here can tell apart."""


def merged(recorded: Recorded, folder: Path, **capture: tuple[int, int]) -> Merged:
    (folder / "t.json").write_bytes(recorded.kineto())
    return kscope.merge(decode(recorded.capture(**capture)), folder / "t.json")


def tags(trace: Trace) -> list[int]:
    """The tag that each launch recorded."""
    found = np.zeros(len(trace.launches), np.int64)
    found[trace.launch] = trace.value.astype(np.int64)
    return found.tolist()


def paired(found: Merged, recorded: Recorded) -> int:
    """How many launches have their own kernel; another one fails."""
    by_correlation = {(one.correlation, one.node): one.tag for one in recorded.runs}
    right = 0
    for tag, at in zip(tags(found.trace), found.pairs.kernel.tolist(), strict=True):
        if at >= 0:
            node = max(0, int(found.kernels.node[at]))
            assert by_correlation[int(found.kernels.correlation[at]), node] == tag
            right += 1
    return right


def wrong_ns(found: Merged, recorded: Recorded) -> np.ndarray:
    """How far each launch is from its true place on Kineto's axis, less what its bound allows; ns."""
    trace, warps = found.trace, found.trace.warps
    runs = {one.tag: one for one in recorded.runs}
    beyond = []
    for launch, tag in enumerate(tags(trace)):
        rows = np.flatnonzero(warps.launch == launch)
        first = warps.start_ns[rows].min() + (trace.origin - BASE)
        beyond.append(abs(first - recorded.kineto_ns(runs[tag].first)) - warps.ends_error_ns[rows].max())
    return np.array(beyond)


def two_streams(count: int, seed: int = 3) -> list[Run]:
    """Launches on one stream, and for every third one another on a second stream, at nearly the same time."""
    rng, found = np.random.default_rng(seed), kinetos.steps(count)
    for at, one in enumerate(kinetos.steps(count)):
        if at % 3 == 0:
            begin, first = int(rng.integers(-FAR, FAR // 2)), int(rng.integers(0, FAR))
            moved = {"begin": one.begin + begin, "first": one.first + first}
            found.append(replace(one, stream=20, correlation=one.correlation + 1, tag=10_000 + at, **moved))
    found.sort(key=lambda one: one.correlation)
    return [replace(one, grid_id=100 + at) for at, one in enumerate(found)]


def graph(replays: int) -> list[Run]:
    """Replays of a CUDA graph with three nodes, two of them of one kernel and grid."""
    found = []
    for turn in range(replays):
        for node, one in enumerate(
            kinetos.steps(3, ("scale", "shift", "scale"), seed=turn, pause=500, first=turn * 200_000)
        ):
            more = {
                "graph": turn,
                "node": node + 1,
                "grid_id": 50 + node,
                "correlation": 300 + turn,
                "tag": turn * 10 + node,
            }
            found.append(replace(one, **more))
    return found


@pytest.mark.parametrize("rate", [0.0, 6.5e-6, -40e-6])
def test_launches_pair_and_their_times_are_within_the_bound(rate: float, tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(300, pause=4_000_000), rate=rate)
    found = merged(recorded, tmp_path)
    assert paired(found, recorded) == 300
    assert wrong_ns(found, recorded).max() <= 0
    [bound] = found.bounds
    assert bound.pairs == 300
    assert bound.half_ns < 500
    assert bound.rate_ppm[0] <= rate * 1e6 <= bound.rate_ppm[1]
    assert re.match(
        r"GPU 0: within \N{PLUS-MINUS SIGN}\d+ ns over 1.\d* s, by 300 launches; clocks drift by", str(bound)
    )


def with_readings(rate: float = 6.5e-6) -> Recorded:
    """A session of 12 ms, which alone knows little of the rate, with readings at both ends."""
    runs = kinetos.steps(200)
    end = max(one.end for one in runs) + 50_000
    readings = [*kinetos.readings("kscope_timer_begin", 100_000), *kinetos.readings("kscope_timer_end", end)]
    return Recorded(runs, rate=rate, readings=readings)


@pytest.mark.parametrize("rate", [6.5e-6, -8.7e-6])
def test_readings_of_the_timer_at_both_ends_tighten_the_bound_which_still_holds(rate: float, tmp_path: Path) -> None:
    recorded = with_readings(rate)
    alone = merged(replace(recorded, readings=[]), tmp_path).bounds[0]
    found = merged(recorded, tmp_path)
    [bound] = found.bounds
    assert paired(found, recorded) == 200
    assert wrong_ns(found, recorded).max() <= 0
    assert (bound.readings, alone.readings) == (128, 0)
    assert bound.half_ns < 300 < alone.half_ns
    assert "by 200 launches and 128 readings of the timer; clocks" in str(bound)


def test_readings_that_the_other_profiler_has_not_all_seen_are_not_used(tmp_path: Path) -> None:
    recorded = with_readings()
    trace = decode(recorded.capture())
    recorded.readings = recorded.readings[:100]  # it ended before the session
    (tmp_path / "t.json").write_bytes(recorded.kineto())
    found = kscope.merge(trace, tmp_path / "t.json")
    assert found.bounds[0].readings == 64
    assert wrong_ns(found, recorded).max() <= 0


def test_readings_survive_the_file_and_are_of_one_axis_only(tmp_path: Path) -> None:
    recorded = with_readings()
    recorded.capture().save(tmp_path / "s.kscope")
    trace = kscope.load(tmp_path / "s.kscope")
    (tmp_path / "t.json").write_bytes(recorded.kineto())
    once = kscope.merge(trace, tmp_path / "t.json")
    assert len(trace.recorded.gpus[0].readings) == 128
    assert once.trace.recorded.gpus[0].readings == ()


def test_replays_of_a_graph_pair_node_by_node(tmp_path: Path) -> None:
    recorded = Recorded(graph(200))
    found = merged(recorded, tmp_path)
    assert paired(found, recorded) == 600
    assert wrong_ns(found, recorded).max() <= 0
    assert {call.correlation for call in found.trace.calls} == {300 + turn for turn in range(200)}


def test_launches_on_two_streams_pair_by_the_order_of_enqueue(tmp_path: Path) -> None:
    recorded = Recorded(two_streams(300))
    found = merged(recorded, tmp_path)
    assert found.pairs.unsure == 0
    assert found.pairs.by_order_of_enqueue > 0
    assert paired(found, recorded) == 400
    assert wrong_ns(found, recorded).max() <= 0


def test_dependent_launches_that_overlap_on_one_stream_pair_and_keep_their_slices(tmp_path: Path) -> None:
    """Programmatic dependent launch: the next kernel begins before the previous one has ended."""
    rng, begin, runs = np.random.default_rng(2), 1_000_000, []
    for at in range(200):
        claim = begin + int(rng.integers(300, 900))
        last = claim + int(rng.integers(8_000, 9_000))
        name, end = "scale" if at % 3 else "shift", last + int(rng.integers(300, 1_200))
        runs.append(Run(name, begin, claim, last, end, grid_id=100 + at, correlation=900 + 7 * at, tag=at))
        begin += int(rng.integers(4_000, 6_000))
    recorded = Recorded(runs)
    found = merged(recorded, tmp_path)
    assert paired(found, recorded) == 200 and found.pairs.unsure == 0
    assert wrong_ns(found, recorded).max() <= 0
    found.write(tmp_path / "m.pftrace")
    read = replay(tmp_path / "m.pftrace")
    assert (read.stray_ends, read.unfinished) == (0, 0)
    slices = [one for one in read.slices if one.name in ("scale", "shift") and "stream 7" in one.track[1]]
    lengths = sorted(recorded.kineto_ns(one.end) - recorded.kineto_ns(one.begin) for one in runs)
    assert sorted(one.dur for one in slices) == lengths


def test_nothing_is_paired_by_an_order_that_other_launches_contradict(tmp_path: Path) -> None:
    runs = two_streams(300)
    ids = np.random.default_rng(1).permutation(len(runs)).tolist()
    recorded = Recorded([replace(one, grid_id=100 + number) for one, number in zip(runs, ids, strict=True)])
    found = merged(recorded, tmp_path)
    assert found.pairs.unsure > 0
    assert [one.kind for one in found.trace.problems] == ["ambiguous"]
    assert paired(found, recorded) == 400 - found.pairs.unsure


def test_a_clock_that_jumps_is_split_and_reported(tmp_path: Path) -> None:
    runs = kinetos.steps(200, pause=1_000_000)
    recorded = Recorded(runs)
    found = merged(recorded, tmp_path, jump=(runs[100].begin - 2_000, 3_000_000))
    assert found.bounds[0].jumps == 1
    assert any(one.kind == "clock" and "jumped 1 time" in one.text for one in found.trace.problems)
    assert wrong_ns(found, recorded).max() <= 0


def test_kernels_that_kscope_does_not_know_are_left_alone(tmp_path: Path) -> None:
    name = "void at::native::vectorized_kernel<4>(int)"
    others = [replace(one, kernel=name, correlation=one.correlation + 3) for one in kinetos.steps(40, seed=9)]
    recorded = Recorded(kinetos.steps(60), unrecorded=others)
    assert paired(merged(recorded, tmp_path), recorded) == 60


def test_a_mangled_name_pairs_with_the_demangled_one(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20, ("_ZN3lib5scaleIfEEvPf",)))
    text = recorded.kineto().replace(b'"name": "_ZN3lib5scaleIfEEvPf"', b'"name": "void lib::scale<float>(float*)"')
    (tmp_path / "t.json").write_bytes(text)
    found = kscope.merge(decode(recorded.capture()), tmp_path / "t.json")
    assert paired(found, recorded) == 20


@pytest.mark.parametrize(
    "name",
    ["scale", "_Z5scalePf", "_ZN3lib5scaleIfEEvPf", "scale(float*)", "void lib::scale<a<b>, 3>(float*, c<d>)",
     "void (anonymous namespace)::scale<4>(int)", "_ZL5scalePKf"],
)  # fmt: skip
def test_every_form_of_a_name_has_the_same_identifier(name: str) -> None:
    assert identifier(name) == "scale"


def test_the_json_keeps_every_byte_of_torchs_file_and_adds_its_own_before_the_end(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(30))
    found = merged(recorded, tmp_path)
    found.write(tmp_path / "m.json")
    was, now = (tmp_path / "t.json").read_bytes(), (tmp_path / "m.json").read_bytes()
    end = found.kineto.end
    assert now[:end] == was[:end]
    assert now.endswith(was[end:])
    assert was[end:].startswith(b'],\n"traceName"')
    before, after = orjson.loads(was), orjson.loads(now)
    assert {**after, "traceEvents": None} == {**before, "traceEvents": None}
    assert after["traceEvents"][: len(before["traceEvents"])] == before["traceEvents"]
    found.write(tmp_path / "m.json.gz")
    assert gzip.decompress((tmp_path / "m.json.gz").read_bytes()) == now


def test_the_rows_of_the_json_are_below_the_streams_of_their_gpu_and_inside_of_their_kernels(tmp_path: Path) -> None:
    recorded = Recorded(two_streams(30))
    found = merged(recorded, tmp_path)
    found.write(tmp_path / "m.json")
    events = orjson.loads((tmp_path / "m.json").read_bytes())["traceEvents"]
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name" and one["pid"] == 0}
    rows = {tid: name for tid, name in names.items() if "\N{MIDDLE DOT}" in name}
    assert min(rows) > 63
    assert [name.split(" ")[1] for _, name in sorted(rows.items())] == sorted(
        (name.split(" ")[1] for name in rows.values()), key=int
    )
    kernels = [one for one in events if one.get("cat") == "kernel"]
    for row in (one for one in events if one.get("cat") == "launch" and "grid" in one.get("args", {})):
        [kernel] = [one for one in kernels if one["args"]["correlation"] == row["args"]["cuda_correlation"]]
        assert f"stream {kernel['tid']} " in rows[row["tid"]]
        slack = found.bounds[0].half_ns / 1000 + 0.1
        assert kernel["ts"] - slack <= row["ts"]
        assert row["ts"] + row["dur"] <= kernel["ts"] + kernel["dur"] + slack


def test_readers_of_kinetos_files_see_no_kernel_more(tmp_path: Path) -> None:
    found = merged(Recorded(kinetos.steps(12)), tmp_path)
    found.write(tmp_path / "m.json")
    events = orjson.loads((tmp_path / "m.json").read_bytes())["traceEvents"]
    own = events[len(found.kineto.events) :]
    assert len(own) > 48
    assert not [one for one in own if {"stream", "correlation", "External id"} & one.get("args", {}).keys()]
    assert not {one.get("cat") for one in own} & {"kernel", "cpu_op", "cuda_runtime", "cuda_driver", "ac2g"}


def test_an_arrow_goes_from_every_call_to_its_launch(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(12))
    found = merged(recorded, tmp_path)
    found.write(tmp_path / "m.json")
    events = orjson.loads((tmp_path / "m.json").read_bytes())["traceEvents"]
    calls = {(one["tid"], one["ts"]): one["args"]["correlation"] for one in events if one.get("cat") == "cuda_driver"}
    rows = [one for one in events if one.get("cat") == "launch" and "grid" in one.get("args", {})]
    launches = {(one["tid"], one["ts"]): one["args"]["cuda_correlation"] for one in rows}
    ends: dict[int, dict[str, int]] = {}
    for one in events:
        if one.get("cat") == "kscope launch":
            table = calls if one["ph"] == "s" else launches
            ends.setdefault(one["id"], {})[one["ph"]] = table[one["tid"], one["ts"]]
    assert len(ends) == 12
    assert all(one["s"] == one["f"] for one in ends.values())


def test_the_pftrace_has_both_natively(tmp_path: Path) -> None:
    recorded = Recorded(
        kinetos.steps(20), unrecorded=[Run("memset", 100, 100, 200, 900, correlation=5, op="aten::zero_")]
    )
    found = merged(recorded, tmp_path)
    found.write(tmp_path / "m.pftrace")
    read = replay(tmp_path / "m.pftrace")
    assert (read.stray_ends, read.unfinished, read.open_arrows) == (0, 0, 0)
    assert len(read.launches) == 20
    assert {one.track[:2] for one in read.launches} == {("GPU 0 \N{MIDDLE DOT} python", "stream 7")}
    stream = [one for one in read.slices if one.track == ("GPU 0 \N{MIDDLE DOT} python", "stream 7")]
    assert sorted(one.name for one in stream) == ["memset", *["scale"] * 10, *["shift"] * 10]
    args = orjson.loads(str(next(one for one in stream if one.name == "scale").args["args"]))
    assert args["grid"] == [2, 1, 1]
    rest = [one for one in read.slices if one.name in ("launch latency", "drain")]
    assert {one.track[:2] for one in rest} == {("GPU 0 \N{MIDDLE DOT} python", "stream 7")}
    records = [one for one in read.slices if one.name == "load"]
    assert len(records) == 40
    assert all(one.track[:2] == ("GPU 0 \N{MIDDLE DOT} python", "stream 7") for one in records)
    arrows = {(a.name, b.name) for a, b in read.arrows if not isinstance(a, str) and not isinstance(b, str)}
    assert ("cuLaunchKernelEx", "scale") in arrows
    assert len(read.arrows) == 2 * 20 + 1  # Kineto's to its kernels, and kscope's to its launches
    nested = [one for one in read.slices if one.name == "cuLaunchKernelEx"]
    assert {one.depth for one in nested} == {2, 3}


def test_the_rest_of_kinetos_slice_is_launch_latency_and_drain(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(30), rate=0.0)
    found = merged(recorded, tmp_path)
    found.write(tmp_path / "m.json")
    events = orjson.loads((tmp_path / "m.json").read_bytes())["traceEvents"]
    row = next(one for one in events if one.get("cat") == "launch" and "grid" in one.get("args", {}))
    truth, bound = recorded.runs[0], found.bounds[0].half_ns + 40
    assert abs(row["args"]["launch_latency_ns"] - (truth.first - truth.begin)) <= bound
    assert abs(row["args"]["drain_ns"] - (truth.end - truth.last)) <= bound
    rest = [one for one in events if one["tid"] == row["tid"] and one["name"] in ("launch latency", "drain")]
    assert [round(one["dur"] * 1000) for one in rest] == [row["args"]["launch_latency_ns"], row["args"]["drain_ns"]]


def refused(recorded: Recorded, folder: Path, trace: Trace | None = None) -> str:
    (folder / "t.json").write_bytes(recorded.kineto())
    with pytest.raises(UsageError) as caught:
        kscope.merge(trace or decode(recorded.capture()), folder / "t.json")
    return str(caught.value)


def test_counts_that_differ_are_refused_with_the_kernels_name(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    fewer = replace(recorded, runs=recorded.runs[2:])
    text = refused(recorded, tmp_path, decode(fewer.capture()))
    assert "scale: 9 launches in the capture, 10 kernels in t.json, shift: 9 launches" in text
    assert "Begin and end both over the same launches" in text


def test_several_cycles_of_the_profiler_are_refused(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    part = replace(recorded, runs=recorded.runs[:10])
    step = b'{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#%d", "pid": 1, "tid": 1, "ts": 1.0},'
    text = part.kineto().replace(b'"traceEvents": [', b'"traceEvents": [' + step % 3 + step % 5)
    (tmp_path / "t.json").write_bytes(text)
    with pytest.raises(UsageError, match=r"t.json has steps 3 to 5 only with gaps: several cycles: record one cycle"):
        kscope.merge(decode(recorded.capture()), tmp_path / "t.json")


def test_a_capture_of_some_blocks_with_missing_launches_is_refused(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    capture = replace(replace(recorded, runs=recorded.runs[2:]).capture(), options={"block": [4, 8, 1]})
    assert "limited by block" in refused(recorded, tmp_path, decode(capture))


def test_a_filtered_trace_and_another_runs_trace_are_refused(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(20))
    trace = decode(recorded.capture())
    assert "filtered trace" in refused(recorded, tmp_path, trace.filter(region="load", launch=3))
    others = Recorded(kinetos.steps(20, ("other",)))
    assert "scale: 10 launches in the capture, 0 kernels" in refused(others, tmp_path, trace)
    grids = Recorded([replace(one, grid=(3, 1, 1)) for one in recorded.runs])
    assert "different grids" in refused(grids, tmp_path, trace)
    other = Recorded(kinetos.steps(20, seed=77, pause=900_000))
    assert "contradict" in refused(other, tmp_path, trace)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]", "no list traceEvents"),
        (b"{", "not JSON"),
        (b'{"traceEvents": 3}', "no list traceEvents"),
        (b'{"traceEvents": [{"ph": "X", "ts": "soon"}]}', "not a time"),
        (b'{"traceEvents": [{"ph": "X", "pid": [1]}]}', "neither a number nor text"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1e300}]}', "not a time"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "truncated"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_files_that_are_no_trace_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(FormatError, match=message):
        kscope.merge(decode(Recorded(kinetos.steps(2)).capture()), tmp_path / "t.json")


def test_unix_us_without_a_base_are_read_to_the_nanosecond(tmp_path: Path) -> None:
    recorded = Recorded(kinetos.steps(60))
    text = re.sub(rb'"baseTimeNanoseconds": \d+', b'"x": 1', recorded.kineto())
    us = BASE // 1000
    text = re.sub(rb'"ts": (\d+)\.(\d{3})', lambda found: b'"ts": %d.%s' % (int(found[1]) + us, found[2]), text)
    (tmp_path / "t.json").write_bytes(text)
    found = kscope.merge(decode(recorded.capture()), tmp_path / "t.json")
    assert wrong_ns(found, recorded).max() <= 0
    assert found.bounds[0].half_ns < 500


def test_the_command_writes_the_file_and_prints_the_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = Recorded(kinetos.steps(40))
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(recorded.kineto()))
    recorded.capture().save(tmp_path / "s.kscope")
    files = [str(tmp_path / name) for name in ("s.kscope", "t.json.gz", "m.pftrace")]
    assert main(["merge", files[0], "--torch", files[1], "-o", files[2]]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("40 of 40 launches paired")
    assert printed[1].startswith("GPU 0: within \N{PLUS-MINUS SIGN}")
    assert main(["merge", files[0], "--torch", files[1], "-o", files[1]]) == 2
    assert main(["merge", files[0], "--torch", files[1], "-o", str(tmp_path / "m.csv")]) == 2
    assert "expected a suffix of .pftrace" in capsys.readouterr().err
