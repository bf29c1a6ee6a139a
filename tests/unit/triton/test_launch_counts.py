"""Launches are counted by kernel where they certainly record, so that launches that a full pool kept out are known."""

from __future__ import annotations

import gc
import inspect
import sys
from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime.driver import driver

import kscope
from kscope.capture.metadata import from_json
from kscope.instrument import registry
from kscope.instrument.recording import Recording

sys.path.append(str(Path(__file__).parent))

from fake_gpu import FakeGpu, Pointer  # it is in this folder


@triton.jit
def kernel(out, n, BLOCK: tl.constexpr):
    with kscope.region("work"):
        tl.store(out + tl.arange(0, BLOCK), n)


@triton.jit
def unmarked(out, n):
    tl.store(out, n)


class Backend:
    """Stands for the CUDA runtime. `open`: whether launches record now."""

    def __init__(self):
        self.open, self.paced = True, 0

    def module_loaded(self, module):
        pass

    def pace(self, kernel=None):
        self.paced += 1

    def records(self, stream):
        return self.open


@pytest.fixture
def backend(monkeypatch):
    made = Backend()
    monkeypatch.setitem(registry._backends, "cuda", made)
    return made


@pytest.fixture
def gpu(monkeypatch, backend):
    made = FakeGpu()
    monkeypatch.setattr(driver, "_active", made)
    yield made
    for fn in (kernel, unmarked):
        fn.device_caches.clear()
    gc.collect()  # 3.9 unloads the modules of dead kernels through the active driver


def launch(grid=(1,), size=16):
    return kernel[grid](Pointer("i32"), 5, BLOCK=size)


def number(compiled):
    return from_json(compiled.metadata.kscope.encode()).kernels[0].id


def test_launches_are_counted_by_kernel(frontend, gpu):
    frontend.enable(Recording())
    kernels = [launch(size=size) for size in (16, 32, 16, 16)]
    unmarked[(1,)](Pointer("i32"), 5)
    assert frontend.launches() == {number(kernels[0]): 3, number(kernels[1]): 1}
    frontend.begin()
    assert frontend.launches() == {}
    kernels[0][(1, 1, 1)](Pointer("i32"), 5, 16)
    assert frontend.launches() == {number(kernels[0]): 1}


def test_a_launch_without_blocks_counts_nothing_and_waits_for_no_room(frontend, gpu, backend):
    frontend.enable(Recording())
    for grid in ((0,), (4, 0), (4, 4, 0)):
        launch(grid)
    assert frontend.launches() == {} and backend.paced == 0


def test_tritons_launcher_has_the_grid_where_kscope_looks_for_it():
    for name in ("gridX", "gridY", "gridZ"):
        assert name in inspect.signature(CudaLauncher.__call__).parameters


def test_a_launch_that_a_graph_captures_or_that_no_session_records_is_not_counted(frontend, gpu, backend):
    frontend.enable(Recording())
    backend.open = False
    launch()
    assert frontend.launches() == {}


def test_a_launch_that_fails_is_not_counted(frontend, gpu):
    def fail(*arguments):
        arguments[7](arguments[6])  # the hook at a launch's beginning
        raise RuntimeError("invalid configuration")

    frontend.enable(Recording())
    launch()._run = fail
    frontend.begin()
    with pytest.raises(RuntimeError, match="invalid configuration"):
        launch()
    assert frontend.launches() == {}


def test_a_launch_that_began_before_a_session_is_not_counted_in_it(frontend, gpu):
    def late(*arguments):
        enter, leave = arguments[7:9]
        enter(arguments[6])
        frontend.begin()
        leave(arguments[6])

    frontend.enable(Recording())
    launch()._run = late
    launch()
    assert frontend.launches() == {}
