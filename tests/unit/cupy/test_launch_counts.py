"""Launches of prepared kernels are counted by kernel where they certainly record."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import synth

from kscope.capture.capture_data import LaunchCount
from kscope.instrument.recording import Recording
from kscope_cuda.cupy import functions

STREAM, CAPTURED = SimpleNamespace(ptr=1), SimpleNamespace(ptr=2)
Launch = Callable[..., None]


@pytest.fixture
def launch(frontend: Any, gpu: Any, source: Callable[..., str]) -> Launch:
    """Launches the kernel of a prepared module, without a driver."""
    gpu.backend.metas, gpu.backend.captures = (synth.module(name="kernel"),), {CAPTURED.ptr: 9}
    frontend.enable(Recording())
    gpu.compile(source())
    module = frontend._loader.prepared(SimpleNamespace(ptr=0, mapping=None), (), lambda: None)
    kernel = functions.PreparedKernel.__new__(functions.PreparedKernel)
    kernel.handle, kernel._number, kernel._launches = 0, module.numbers["kernel"], module.launches

    def run(*args: Any, driver: Callable[..., Any] = lambda *args, **options: None, **options: Any) -> None:
        kernel._launch(driver, ((1,), (32,), *args), options)

    return run


def test_launches_count_unless_a_graph_captures_their_stream(
    frontend: Any, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = SimpleNamespace(ptr=1)
    monkeypatch.setattr(functions, "current_stream", lambda: current)
    launch(stream=STREAM)
    launch((), 0, STREAM)
    launch()
    launch(stream=CAPTURED)
    launch((), 0, CAPTURED)
    current.ptr = 2
    launch()
    assert frontend.launches() == {synth.KERNEL: LaunchCount(3)}
    frontend.begin()
    assert frontend.launches() == {}


def test_a_launch_that_fails_or_began_before_the_session_is_not_counted(frontend: Any, launch: Launch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("invalid configuration")

    with pytest.raises(RuntimeError, match="invalid configuration"):
        launch(stream=STREAM, driver=fail)
    launch(stream=STREAM, driver=lambda *args, **options: frontend.begin())
    assert frontend.launches() == {}
