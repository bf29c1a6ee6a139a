"""Launches of marked kernels are counted by kernel where they certainly record."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import synth
from numba.cuda import dispatcher
from numba.cuda.codegen import CUDACodeLibrary

from kscope.capture.capture_data import LaunchCount
from kscope.instrument.recording import Recording
from kscope_numba import load

from .conftest import Backend
from .test_states import KERNELS, Array, Written

STREAM, CAPTURED = SimpleNamespace(handle=1), SimpleNamespace(handle=2)
Launch = Callable[..., None]


@pytest.fixture
def launch(taught: Any, gpu: Backend, written: Written, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Launches a marked kernel, without a driver."""

    def run(kernel: Any, args: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> None:
        kernel._codelibrary.get_cufunc()
        if callable(args):
            args()

    function = SimpleNamespace(module=SimpleNamespace(handle=5))
    modules = SimpleNamespace(driver=SimpleNamespace(cuLibraryGetModule=int))
    monkeypatch.setattr(CUDACodeLibrary, "get_cufunc", lambda library: function)
    monkeypatch.setattr(load, "_driver", modules)
    monkeypatch.setattr(dispatcher._Kernel, "launch", run)
    gpu.metas, gpu.captures = (synth.module(name="kernel"),), {2: 9}
    taught.enable(Recording())
    kernel = written(KERNELS)["kernel"]
    kernel[1, 32](Array(), 3)
    (compiled,) = kernel.overloads.values()
    taught.begin()
    return lambda args=(), *more, **named: compiled.launch(args, (1, 1, 1), (32, 1, 1), *more, **named)


def test_launches_count_unless_a_graph_captures_their_stream(taught: Any, launch: Launch) -> None:
    launch()
    launch((), STREAM)
    launch((), STREAM, 0)
    launch((), stream=STREAM)
    launch((), CAPTURED)
    launch((), stream=CAPTURED)
    launch((), SimpleNamespace(handle=None))
    assert taught.launches() == {synth.KERNEL: LaunchCount(4)}
    taught.begin()
    assert taught.launches() == {}


def test_a_launch_that_fails_or_began_before_the_session_is_not_counted(taught: Any, launch: Launch) -> None:
    def fail() -> None:
        raise RuntimeError("invalid configuration")

    with pytest.raises(RuntimeError, match="invalid configuration"):
        launch(fail)
    launch(taught.begin)
    assert taught.launches() == {}
