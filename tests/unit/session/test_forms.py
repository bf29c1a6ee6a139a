"""A session as a decorator, with start() and stop(), and as text."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from noted import launch

import kscope
from kscope.errors import UsageError


def test_start_and_stop_record_what_is_between(tmp_path: Path) -> None:
    prof = kscope.profile(tmp_path / "run.kscope", export=tmp_path / "run.csv").start()
    launch()
    prof.stop()
    launch()
    assert len(prof.trace) == len(kscope.load(tmp_path / "run.kscope")) == 2
    assert (tmp_path / "run.csv").exists()


def test_stop_needs_a_start_and_start_works_once() -> None:
    prof = kscope.profile()
    with pytest.raises(UsageError, match=r"prof.stop\(\) outside the body"):
        prof.stop()
    prof.start()
    with pytest.raises(UsageError, match="one session records at a time"):
        kscope.profile().start()
    prof.stop()
    with pytest.raises(UsageError, match=r"outside the body"):
        prof.stop()
    with pytest.raises(UsageError, match="has recorded already"):
        prof.start()


def test_a_session_that_is_off_starts_and_stops() -> None:
    prof = kscope.profile(enabled=False).start()
    launch()
    prof.stop()
    assert not len(prof.trace)


def test_a_session_that_is_not_stopped_ends_with_the_process(tmp_path: Path, root: Path) -> None:
    script = """
import sys
sys.path[:0] = {paths!r}
import kscope, kscope_sim
def kernel(warp):
    with kscope.region("load"):
        warp.work(10)
kscope.profile("run.kscope").start()
kscope_sim.launch(kernel, grid=1, block=64)
"""
    paths = [str(root / part) for part in (".", "frontends", "runtime")]
    subprocess.run([sys.executable, "-c", script.format(paths=paths)], cwd=tmp_path, check=True)
    assert len(kscope.load(tmp_path / "run.kscope")) == 2


def test_each_call_of_a_decorated_function_is_recorded(tmp_path: Path) -> None:
    prof = kscope.profile(tmp_path / "run.kscope")

    @prof
    def step(times: int, *, more: int = 0) -> int:
        """One step."""
        for _ in range(times + more):
            launch()
        return times

    assert (step.__name__, step.__doc__) == ("step", "One step.")
    assert step(1, more=1) == 1
    assert len(prof.trace) == len(kscope.load(tmp_path / "run.kscope")) == 4
    assert step(3) == 3
    assert len(prof.trace) == len(kscope.load(tmp_path / "run.kscope")) == 6


def test_calls_within_a_recorded_call_belong_to_it() -> None:
    prof = kscope.profile()

    @prof
    def step(depth: int) -> None:
        launch()
        if depth:
            step(depth - 1)

    step(2)
    assert len(prof.trace) == 6


def test_an_exception_of_a_decorated_function_is_raised_and_its_recording_kept(tmp_path: Path) -> None:
    @kscope.profile(tmp_path / "run.kscope")
    def step() -> None:
        launch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        step()
    assert len(kscope.load(tmp_path / "run.failed.kscope")) == 2


def test_a_coroutine_is_recorded_until_it_returns() -> None:
    prof = kscope.profile()

    @prof
    async def step() -> str:
        await asyncio.sleep(0)
        launch()
        return "done"

    assert asyncio.run(step()) == "done"
    assert len(prof.trace) == 2


def test_generators_and_values_are_refused() -> None:
    def steps() -> Iterator[int]:
        yield 1

    with pytest.raises(UsageError, match="steps: a generator runs after its call"):
        kscope.profile()(steps)
    with pytest.raises(UsageError, match="on 3: expected a function"):
        kscope.profile()(3)  # type: ignore[arg-type]  # the error is the test


def test_the_repr_of_a_session_is_its_state(tmp_path: Path) -> None:
    prof = kscope.profile(tmp_path / "run.kscope")
    assert repr(prof) == f"<kscope.Session: not started, to be saved to {tmp_path / 'run.kscope'}>"
    with prof:
        assert repr(prof).startswith("<kscope.Session: recording, to be saved to ")
        launch()
    assert repr(prof) == f"<kscope.Session: recorded, saved to {tmp_path / 'run.kscope'}>"
    assert repr(kscope.profile(enabled=False)) == "<kscope.Session: not started, off>"
