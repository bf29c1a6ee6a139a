"""The end of a session: transforms, exported files, and sessions that are switched off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from noted import attention, launch, work

import kscope
from kscope.errors import UsageError
from kscope.session import states
from kscope.trace import Trace
from kscope.tracedata import transforms


def test_files_are_exported_at_the_end(tmp_path: Path) -> None:
    files = [tmp_path / "a.pftrace", str(tmp_path / "b.csv")]
    with kscope.profile(tmp_path / "a.kscope", export=files):
        launch()
        assert not files[0].exists()  # type: ignore[union-attr]  # a Path
    assert all(Path(file).stat().st_size for file in files)
    assert (tmp_path / "a.kscope").exists()


def test_a_body_that_raises_exports_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        launch()
        raise RuntimeError("the kernel is wrong")

    with pytest.raises(RuntimeError), kscope.profile(export=tmp_path / "a.json"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_passes_run_over_the_trace_and_what_is_exported(tmp_path: Path) -> None:
    def renamed(trace: Trace) -> Trace:
        return transforms.rename(trace, str.upper)

    with kscope.profile(then=[renamed, lambda trace: trace.filter(warp=0)], export=tmp_path / "a.json") as prof:
        launch()
        assert set(prof.trace.warp.tolist()) == {0}
    assert prof.trace is prof.trace
    names = {event["name"] for event in json.loads((tmp_path / "a.json").read_text())["traceEvents"]}
    found = set(prof.trace.region_names()[prof.trace.region])
    assert found and all(name.isupper() for name in found) and found <= names


def test_a_session_that_is_off_leaves_kernels_plain_and_writes_nothing(tmp_path: Path) -> None:
    with kscope.profile(tmp_path / "a.kscope", export=tmp_path / "a.json", enabled=False) as prof:
        assert states.STATE.hooked is None
        launch()
        prof.reset()
        with prof.paused():
            launch()
    assert len(prof.trace) == 0 and [problem.kind for problem in prof.trace.problems] == ["off"]
    assert list(tmp_path.iterdir()) == []
    with kscope.profile() as prof:
        launch()
    assert len(prof.trace) == 2


def test_every_other_iteration_is_exported(tmp_path: Path) -> None:
    kscope.enable()
    for step in range(4):
        with kscope.profile(export=tmp_path / f"step{step}.pftrace", enabled=step % 2 == 0):
            launch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step0.pftrace", "step2.pftrace"]


def test_kernels_are_selected_by_hash() -> None:
    with kscope.profile() as prof:
        launch(work)
        launch(attention)
    hashes = {one.kernel: one.hash for one in prof.trace.launches}
    assert set(prof.trace.filter(kernel=hashes["work"]).kernel.tolist()) == {prof.trace.kernels.index("work")}
    assert len(prof.trace.filter(kernel=[hashes["work"].upper().replace("X", "x"), "att*"])) == len(prof.trace)
    with pytest.raises(UsageError, match="kernel 0x1: not in this trace"):
        prof.trace.filter(kernel="0x1")
    with kscope.profile(kernel=hashes["work"]) as prof:
        launch(work)
        launch(attention)
    assert prof.trace.kernels == ("work",) and len(prof.trace)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"export": "no/such/folder/a.json"}, "does not exist"), ({"export": "a.png"}, "unknown suffix"),
        ({"export": [3]}, "expected the path"), ({"then": 3}, "not iterable|expected a function"),
        ({"then": ["x"]}, "expected a function"),
    ],
)  # fmt: skip
def test_invalid_export_options_are_refused_before_the_body(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kscope.profile(**options)


def test_analysis_passes_that_return_no_trace_are_named() -> None:
    def forgot(trace: Trace) -> None:
        trace.filter(warp=0)

    with kscope.profile(then=forgot) as prof:  # type: ignore[arg-type]  # the point
        launch()
    with pytest.raises(UsageError, match="forgot"):
        _ = prof.trace


def test_the_command_line_exports_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kscope import cli

    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("import noted\nnoted.launch()\n")
    assert cli.main(["run", "-q", "--export", "a.pftrace", "--export", "a.csv", "script.py"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"script.py", "script.kscope", "a.pftrace", "a.csv"}


def test_disabled_sessions_may_nest_in_enabled_ones() -> None:
    with kscope.profile() as prof:
        with kscope.profile(enabled=False):
            launch()
        launch()
    assert len(prof.trace) == 4
