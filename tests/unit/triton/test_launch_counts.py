"""Launches are counted by kernel where they certainly record, so that launches that a full pool kept out are known."""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import triton
import triton.language as tl
from triton.backends.nvidia.driver import CudaLauncher

import kscope
from kscope.capture.capture_data import LaunchCount
from kscope.capture.metadata import from_json
from kscope.instrument import registry
from kscope.instrument.launch_lines import LINES
from kscope.instrument.recording import Recording

sys.path.append(str(Path(__file__).parent))

import fake_gpu  # it is in this folder
from fake_gpu import Pointer, active, record


@triton.jit
def kernel(out, n, BLOCK: tl.constexpr):
    with kscope.region("work"):
        tl.store(out + tl.arange(0, BLOCK), n)


@triton.jit
def unmarked(out, n):
    tl.store(out, n)


class Backend:
    """A fake of the CUDA runtime. open: whether launches record now; `captures`: a stream's graph capture."""

    def __init__(self):
        self.open, self.captures, self.paced = True, {}, 0

    def relaxed(self):
        return nullcontext()

    def patched(self, cubin, ordinal):
        return cubin

    def module_loaded(self, module):
        pass

    def pace(self, kernel=None):
        self.paced += 1

    def is_open(self):
        return self.open

    def capture(self, stream):
        return self.captures.get(stream, 0)


@pytest.fixture
def backend(monkeypatch):
    made = Backend()
    monkeypatch.setitem(registry._backends, "cuda", made)
    return made


@pytest.fixture
def gpu(monkeypatch, backend):
    yield from active(monkeypatch, kernel, unmarked)


def launch(grid=(1,), size=16):
    return kernel[grid](Pointer("i32"), 5, BLOCK=size)


def number(compiled):
    return from_json(compiled.metadata.kscope.encode()).kernels[0].id


def test_launches_are_counted_by_kernel(frontend, gpu):
    record(frontend, Recording())
    kernels = [launch(size=size) for size in (16, 32, 16, 16)]
    unmarked[(1,)](Pointer("i32"), 5)
    assert frontend.launches() == {number(kernels[0]): LaunchCount(3), number(kernels[1]): LaunchCount(1)}
    frontend.begin()
    assert frontend.launches() == {}
    kernels[0][(1, 1, 1)](Pointer("i32"), 5, 16)
    assert frontend.launches() == {number(kernels[0]): LaunchCount(1)}


def test_a_launch_without_blocks_counts_nothing_and_waits_for_no_room(frontend, gpu, backend):
    record(frontend, Recording())
    for grid in ((0,), (4, 0), (4, 4, 0)):
        launch(grid)
    assert frontend.launches() == {} and backend.paced == 0


def test_tritons_launcher_has_the_launch_where_kscope_looks_for_it():
    for name in ("gridX", "gridY", "gridZ", "stream", "function"):
        assert name in inspect.signature(CudaLauncher.__call__).parameters


@pytest.mark.parametrize("changes", [{"open": False}, {"captures": {0: 5}}, {"captures": {0: None}}], ids=str)
def test_a_launch_that_a_graph_captures_or_that_no_session_records_is_not_counted(frontend, gpu, backend, changes):
    record(frontend, Recording())
    vars(backend).update(changes)
    launch()
    assert frontend.launches() == {}


def without_data(compiled, grid=(1, 1, 1)):
    """Launch a kernel as a launcher of torch's that gives the hooks no data."""
    runtime = triton.knobs.runtime
    hooks = runtime.launch_enter_hook, runtime.launch_exit_hook
    compiled.run(*grid, 0, compiled.function, compiled.packed_metadata, None, *hooks, 0, 5)


def test_a_launch_whose_hooks_get_no_data_is_paced_and_counted(frontend, gpu, backend, monkeypatch):
    kernels = []
    monkeypatch.setattr(backend, "pace", kernels.append)
    record(frontend, Recording())
    compiled, plain = launch(), unmarked[(1,)](Pointer("i32"), 5)
    frontend.begin()
    kernels.clear()
    for one in (compiled, plain, compiled):
        without_data(one)
    without_data(compiled, (0, 1, 1))
    assert kernels == [compiled.function, plain.function, compiled.function]
    assert frontend.launches() == {number(compiled): LaunchCount(2)} and frontend.problems() == ()


def test_a_launch_of_an_unknown_launcher_is_paced(frontend, gpu, backend):
    record(frontend, Recording())
    triton.knobs.runtime.launch_enter_hook(None)
    assert backend.paced == 1


def test_a_launch_that_fails_is_not_counted(frontend, gpu):
    def fail(*arguments):
        arguments[7](arguments[6])  # the hook at a launch's beginning
        raise RuntimeError("invalid configuration")

    record(frontend, Recording())
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

    record(frontend, Recording())
    launch()._run = late
    launch()
    assert frontend.launches() == {}


class CUDAGraph:
    """A fake of torch's: replays launch nothing."""

    def __init__(self, gpu_backend, capture):
        self.backend, self.number = gpu_backend, capture

    def capture_begin(self, pool=None):
        self.backend.captures[0] = self.number

    def capture_end(self):
        del self.backend.captures[0]

    def replay(self):
        pass


@pytest.fixture
def torch(monkeypatch):
    """torch, with graphs and nothing else."""
    made, graphs = ModuleType("torch"), ModuleType("torch.cuda.graphs")
    made.cuda = SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=0))
    graphs.CUDAGraph = type("CUDAGraph", (CUDAGraph,), dict(vars(CUDAGraph)))
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setitem(sys.modules, "torch.cuda.graphs", graphs)
    return graphs


def captured(torch, backend, capture, *sizes):
    graph = torch.CUDAGraph(backend, capture)
    graph.capture_begin(pool=None)
    compiled = [launch(size=size) for size in sizes]
    graph.capture_end()
    return graph, [number(one) for one in compiled]


def test_replays_launch_what_their_graph_captured(frontend, gpu, backend, torch):
    record(frontend, Recording())
    backend.open = False
    one, (small, *_) = captured(torch, backend, 5, 16, 16)
    other, (_, large) = captured(torch, backend, 6, 16, 32)
    backend.open = True
    launch()
    for graph in (one, other, one):
        graph.replay()
    assert frontend.launches() == {small: LaunchCount(1, 5), large: LaunchCount(0, 1)}
    backend.open = False
    one.replay()
    assert frontend.launches()[small] == LaunchCount(1, 5)
    one.capture_begin()
    one.capture_end()
    backend.open = True
    one.replay()
    assert frontend.launches()[small] == LaunchCount(1, 5)


def test_a_graph_that_was_captured_plain_counts_nothing(frontend, gpu, backend, torch):
    record(frontend, Recording())
    frontend.disable()
    graph = torch.CUDAGraph(backend, 5)
    graph.capture_begin()
    launch()
    graph.capture_end()
    record(frontend, Recording())
    graph.replay()
    assert frontend.launches() == {}


def test_torchs_graphs_are_as_before_after_disable(frontend, torch):
    before = dict(vars(torch.CUDAGraph))
    for recording in (Recording(), Recording(records=64)):
        record(frontend, recording)
    assert vars(torch.CUDAGraph)["replay"] is not before["replay"]
    frontend.disable()
    assert dict(vars(torch.CUDAGraph)) == before


def test_launches_of_one_line_look_at_each_function_once(frontend, gpu, monkeypatch):
    met = []
    kind = LINES._code.kind
    monkeypatch.setattr(LINES._code, "kind", lambda frame: met.append(frame.f_code) or kind(frame))
    monkeypatch.setitem(LINES._code.kinds, fake_gpu.__file__, 0)  # as Triton's launcher, which it replaces
    record(frontend, Recording())
    launch()
    LINES.begin(True)
    try:
        for _ in range(10):
            kernel[(1,)](Pointer("i32"), 5, BLOCK=16)
    finally:
        LINES.end()
    [(file, _, function)] = LINES.found()["lines"]
    assert file.endswith("test_launch_counts.py") and function == inspect.stack()[0].function
    assert met and len(met) == len(set(met))
