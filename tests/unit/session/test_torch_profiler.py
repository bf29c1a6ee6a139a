"""profile(torch=p): a session beside a profiler of torch, which here is an object with torch's rules."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import orjson
import pytest
from simulated import marked

import kscope
import kscope_sim
from kscope.errors import UsageError
from kscope_sim.backend import SimBackend


class Profiler:
    """torch.profiler.profile: its trace is there when it has ended, and can be saved once. It saw the launches that
    `seen` returns, as (name, begin, end) in UNIX ns."""

    def __init__(self, seen: Callable[[], list[tuple[str, int, int]]], handler: Any = None) -> None:
        self.on_trace_ready, self._seen, self._ended, self._saved = handler, seen, False, False

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended = True
        if self.on_trace_ready:
            self.on_trace_ready(self)

    def export_chrome_trace(self, path: str) -> None:
        assert self._ended
        assert not self._saved, "Trace is already saved."
        self._saved = True
        events = [
            {
                "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": begin / 1000,
                "dur": (end - begin) / 1000, "args": {"device": 0, "stream": 7, "correlation": at, "grid": [2, 1, 1]},
            }
            for at, (name, begin, end) in enumerate(self._seen())
        ]  # fmt: skip
        data = orjson.dumps({"baseTimeNanoseconds": BASE[0], "traceEvents": events})
        Path(path).write_bytes(gzip.compress(data) if path.endswith(".gz") else data)


BASE = [0]


@pytest.fixture
def seen() -> Callable[[], list[tuple[str, int, int]]]:
    """The profiler's events of the last session: each launch, from 500 ns before to 400 ns after it."""

    def launches() -> list[tuple[str, int, int]]:
        trace = SESSIONS[-1].trace
        BASE[0], found = trace.origin, []
        for at, launch in enumerate(trace.launches):
            rows = np.flatnonzero(trace.warps.launch == at)
            begin, end = trace.warps.start_ns[rows].min(), trace.warps.end_ns[rows].max()
            found.append((launch.kernel, round(begin) + 10_000 - 500, round(end) + 10_000 + 400))
        return found

    SESSIONS.clear()
    return launches


SESSIONS: list[Any] = []


def launch(times: int = 3) -> None:
    for _ in range(times):
        kscope_sim.launch(marked, grid=2)


def test_both_in_one_with_statement_become_one_timeline(
    seen: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Profiler(seen) as p, kscope.profile("step.kscope", torch=p) as prof:
        SESSIONS.append(prof)
        launch()
    assert prof.merged.paired == 3
    assert prof.merged.bounds[0].half_ns < 1000
    assert prof.merged.trace.calls[0].stream == 7
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step.kscope", "step.pftrace", "step.torch.json.gz"]


def test_a_program_may_export_the_torch_trace_itself(seen: Callable[[], Any], tmp_path: Path) -> None:
    with Profiler(seen) as p, kscope.profile(torch=p) as prof:
        SESSIONS.append(prof)
        launch()
    p.export_chrome_trace(str(tmp_path / "mine.json"))
    p.export_chrome_trace(str(tmp_path / "mine.json.gz"))
    data = (tmp_path / "mine.json").read_bytes()
    assert len(orjson.loads(data)["traceEvents"]) == 3
    assert gzip.decompress((tmp_path / "mine.json.gz").read_bytes()) == data
    assert prof.merged.kineto.data == data


def test_a_programs_own_handler_runs_first_and_its_file_is_used(seen: Callable[[], Any], tmp_path: Path) -> None:
    def handler(profiler: Profiler) -> None:
        profiler.export_chrome_trace(str(tmp_path / "handled.json"))

    with Profiler(seen, handler) as p, kscope.profile(tmp_path / "s.kscope", torch=p) as prof:
        SESSIONS.append(prof)
        launch()
    assert prof.merged.kineto.name == "handled.json"
    assert not (tmp_path / "s.torch.json.gz").exists()


def test_the_profiler_may_end_before_the_session(seen: Callable[[], Any]) -> None:
    p = Profiler(seen)
    with kscope.profile(torch=p) as prof:
        SESSIONS.append(prof)
        with p:
            launch()
        with pytest.raises(UsageError, match="both must have ended"):
            _ = prof.merged
    assert prof.merged.paired == 3


def test_launches_that_do_not_pair_are_a_warning_and_the_capture_is_kept(
    seen: Callable[[], Any], tmp_path: Path
) -> None:
    def recorded() -> None:
        with Profiler(lambda: seen()[1:]) as p, kscope.profile(tmp_path / "s.kscope", torch=p) as prof:
            SESSIONS.append(prof)
            launch()

    with pytest.warns(RuntimeWarning, match=r"not merged: merge: counts differ.*3 launches in the capture, 2 kernels"):
        recorded()
    assert len(kscope.load(tmp_path / "s.kscope").launches) == 3
    assert not (tmp_path / "s.pftrace").exists()


def test_what_is_no_profiler_is_refused() -> None:
    with pytest.raises(UsageError, match=r"profile\(torch=3\): expected the profiler"):
        kscope.profile(torch=3)
    with kscope.profile() as prof:
        launch()
    with pytest.raises(UsageError, match="only with kscope"):
        _ = prof.merged


def test_the_timer_is_read_at_both_ends_only_beside_a_profiler(
    seen: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    monkeypatch.setattr(SimBackend, "read_timers", lambda self, when: read.append(when))
    with kscope.profile():
        launch()
    assert read == []
    with Profiler(seen) as p, kscope.profile(torch=p) as prof:
        SESSIONS.append(prof)
        launch()
        assert read == ["begin"]
    assert read == ["begin", "end"]


def test_calls_without_frames_have_the_lines_that_the_session_recorded(seen: Callable[[], Any]) -> None:
    with Profiler(seen) as p, kscope.profile(torch=p, launch_stacks=True) as prof:
        SESSIONS.append(prof)
        launch()
    assert [call.line.rpartition(": ")[2] for call in prof.merged.trace.calls] == ["launch"] * 3
    assert prof.merged.trace.calls[0].stream == 7
