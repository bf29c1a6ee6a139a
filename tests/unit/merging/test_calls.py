"""trace.calls: who launched each kernel, and summaries by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import kinetos
import pytest
from kinetos import BASE, Recorded

import kscope
from kscope.cli import main
from kscope.errors import UsageError
from kscope.trace import Trace, decode
from kscope.tracedata.calls import Call

OPS, MODULES, LINES = (
    ("aten::add", "", "aten::mm"),
    ("Linear_0", "Norm_1"),
    ("model.py(7): forward", "model.py(9): forward"),
)


def recorded() -> Recorded:
    runs = [
        replace(one, op=OPS[at % 3], module=MODULES[at % 2], line=LINES[at % 2])
        for at, one in enumerate(kinetos.steps(12, ("scale",)))
    ]
    return Recorded(runs)


def merged(folder: Path) -> Trace:
    (folder / "t.json").write_bytes(recorded().kineto())
    return kscope.merge(decode(recorded().capture()), folder / "t.json").trace


def test_a_call_has_its_operator_module_frames_stream_and_times(tmp_path: Path) -> None:
    trace, run = merged(tmp_path), recorded()
    assert len(trace.calls) == 12
    for at, (call, one) in enumerate(zip(trace.calls, run.runs, strict=True)):
        assert (call.launch, call.op, call.module) == (at, OPS[at % 3], MODULES[at % 2])
        assert call.stack == ("train.py(3): main", LINES[at % 2])
        assert call.line == LINES[at % 2]
        assert (call.stream, call.correlation, call.cpu_ns) == (7, one.correlation, 2000)
        assert call.enqueue_ns + trace.origin - BASE == run.kineto_ns(one.begin) - 3000
        assert call.begin_ns - call.enqueue_ns == 3000


def test_a_graph_launch_is_the_call_of_all_its_kernels(tmp_path: Path) -> None:
    runs = [replace(one, graph=at // 3, node=at % 3, correlation=500 + at // 3, grid_id=40 + at % 3) for at, one in
            enumerate(kinetos.steps(12, ("a", "b", "c")))]  # fmt: skip
    found = Recorded(runs)
    (tmp_path / "t.json").write_bytes(found.kineto())
    calls = kscope.merge(decode(found.capture()), tmp_path / "t.json").trace.calls
    assert [call.correlation for call in calls] == [500 + at // 3 for at in range(12)]
    assert all(call.cpu_ns == 2000 for call in calls)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("op", {("aten::add",), ("-",), ("aten::mm",)}),
        ("module", {(one,) for one in MODULES}),
        ("line", {(one,) for one in LINES}),
        ("stack", {(f"train.py(3): main > {one}",) for one in LINES}),
    ],
)
def test_summaries_group_by_what_called(key: str, values: set[tuple[str]], tmp_path: Path) -> None:
    rows = merged(tmp_path).summary(key).regions
    assert {row.key for row in rows} == values
    assert sum(row.count for row in rows) == 24


def test_without_a_torch_trace_the_keys_are_refused_with_the_remedy() -> None:
    with pytest.raises(
        UsageError, match=r"by='op': this capture has no calls .*launch_stacks=True.* --torch trace.json"
    ):
        decode(recorded().capture()).summary("op")


def test_the_command_groups_by_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.json").write_bytes(recorded().kineto())
    recorded().capture().save(tmp_path / "s.kscope")
    assert (
        main(["summary", str(tmp_path / "s.kscope"), "--torch", str(tmp_path / "t.json"), "--by", "op", "--json"]) == 0
    )
    rows = json.loads(capsys.readouterr().out)["regions"]
    assert {row["op"]: row["count"] for row in rows} == {"aten::add": 8, "-": 8, "aten::mm": 8}


def test_the_line_of_a_call_is_the_innermost_of_the_users_own() -> None:
    stack = ("train.py(3): main", "model.py(9): forward", "/x/site-packages/triton/runtime/jit.py(700): run")
    assert Call(0, stack=stack).line == "model.py(9): forward"
    hooks = ("triton/runtime/jit.py(419): <lambda>", "/x/frontends/kscope_triton/load.py(150): launched", "<built-in>")
    assert Call(0, stack=(*stack, *hooks)).line == "model.py(9): forward"
    assert Call(0, stack=stack[2:]).line == stack[2]
    assert Call(0).line == ""
