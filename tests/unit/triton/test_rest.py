"""While recording is enabled and no session records, launches run plain kernels; marked ones are compiled meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from waiting import PATIENCE_S

import kscope
from kscope.instrument import loaded_code, registry
from kscope.instrument.recording import Recording

sys.path.append(str(Path(__file__).parent))

from fake_gpu import Pointer, active  # it is in this folder


@triton.jit
def kernel(out, n, BLOCK: tl.constexpr):
    with kscope.region("work"):
        tl.store(out + tl.arange(0, BLOCK), n)


@triton.jit
def unmarked(out, n):
    tl.store(out, n)


@triton.jit
def refused(out, n):
    with kscope.region("never ended"):
        tl.store(out, n)
    kscope.region("half").enter()


@triton.jit
def counting(out):
    with kscope.region("count"):
        calls = tl.inline_asm_elementwise(
            "{ .global .align 4 .u32 calls; atom.global.add.u32 $0, [calls], 1; }",
            "=r,r", [tl.program_id(0)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
        tl.store(out, calls)


class Backend:
    """A fake of the CUDA runtime. paced: launches that can fill the pool; copied: functions whose attributes were."""

    def __init__(self):
        self.loaded, self.paced, self.capturing, self.copied = [], 0, False, []
        self.is_relaxed, self.loaded_relaxed = False, []

    def copy_attributes(self, of, to):
        self.copied.append((of, to))

    @contextmanager
    def relaxed(self):
        before, self.is_relaxed = self.is_relaxed, True
        yield
        self.is_relaxed = before

    def patched(self, cubin, ordinal):
        return cubin

    def module_loaded(self, module):
        assert self.is_relaxed or not self.capturing, "a module is loaded during a capture"
        self.loaded.append(module)
        self.loaded_relaxed.append(self.is_relaxed)

    def pace(self, kernel=None):
        self.paced += 1

    def is_open(self):
        return True

    def capture(self, stream):
        return 5 if self.capturing else 0


@pytest.fixture
def backend(monkeypatch):
    made = Backend()
    monkeypatch.setitem(registry._backends, "cuda", made)
    return made


@pytest.fixture
def gpu(monkeypatch, backend):
    yield from active(monkeypatch, kernel, unmarked, refused, counting)


@pytest.fixture
def compiled(monkeypatch):
    """For each compilation so far, True if it was found on disk."""
    found = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **what: found.append(what["cache_hit"]))
    return found


def launch(size=16):
    return kernel[(1,)](Pointer("i32"), 5, BLOCK=size)


def marked(found):
    return hasattr(found.metadata, "kscope")


def test_launches_run_the_marked_kernel_in_a_session_and_the_plain_one_at_rest(frontend, gpu):
    frontend.enable(Recording())
    for _ in range(3):
        assert not marked(launch())
        frontend.prepare()
        frontend.begin()
        assert marked(launch())
        frontend.end()
    assert len(gpu.loaded) == 2 and len(gpu.launched) == 6
    assert frontend.problems() == ()


def test_the_plain_kernel_at_rest_is_the_file_of_a_process_without_kscope(frontend, gpu, compiled):
    launch()
    kernel.device_caches.clear()
    frontend.enable(Recording())
    launch()
    frontend.prepare()
    assert compiled == [False, True, False]


def test_a_session_finds_kernels_compiled_and_loaded(frontend, gpu, backend, compiled):
    frontend.enable(Recording())
    for size in (16, 32, 16):
        launch(size)
    unmarked[(1,)](Pointer("i32"), 5)
    frontend.prepare()
    assert compiled == [False] * 6 and len(gpu.loaded) == 3
    frontend.begin()
    assert len(gpu.loaded) == len(backend.loaded) == 6
    assert backend.loaded_relaxed == [False] * 3 + [True] * 3  # another thread may be capturing a graph
    for size in (16, 32):
        assert marked(launch(size))
    assert not marked(unmarked[(1,)](Pointer("i32"), 5))
    assert len(compiled) == 6 and len(gpu.loaded) == 6
    assert frontend.problems() == ()


def test_a_launch_at_rest_calls_no_hook_and_takes_no_pool(frontend, gpu, backend):
    frontend.enable(Recording())
    launch()
    assert not knobs.runtime.launch_enter_hook.calls and not knobs.runtime.launch_exit_hook.calls
    frontend.begin()
    launch()
    frontend.end()
    launch()
    assert backend.paced == 1
    assert not knobs.runtime.launch_enter_hook.calls


def test_a_program_gets_marked_objects_at_rest(frontend, gpu):
    """It may launch them in a session, and kscope cannot exchange them."""
    frontend.enable(Recording())
    warmed = kernel.warmup(Pointer("i32"), 5, BLOCK=16, grid=(1,))
    source = ASTSource(kernel, {"out": "*i32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 16})
    assert marked(warmed) and marked(triton.compile(source, target=GPUTarget("cuda", 90, 32)))
    assert not marked(launch())
    frontend.prepare()
    frontend.begin()
    assert launch() is warmed


def test_a_plain_object_from_a_launch_at_rest_is_named_in_a_session(frontend, gpu):
    frontend.enable(Recording())
    plain = launch()
    plain[(1, 1, 1)](Pointer("i32"), 5, 16)
    frontend.begin()
    assert frontend.problems() == ()
    plain[(1, 1, 1)](Pointer("i32"), 5, 16)
    (problem,) = frontend.problems()
    assert problem.kind == "plain" and "launch it through its jit function" in problem.text


@pytest.fixture
def graph(monkeypatch, backend):
    """A graph of torch's. torch has nothing else but what Triton looks for."""

    class CUDAGraph:
        def capture_begin(self):
            backend.capturing = True

        def capture_end(self):
            backend.capturing = False

        def replay(self):
            pass

    torch, graphs = ModuleType("torch"), ModuleType("torch.cuda.graphs")
    torch.Tensor = type("Tensor", (), {})
    torch.cuda = SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=0))
    graphs.CUDAGraph = CUDAGraph
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.cuda.graphs", graphs)
    return CUDAGraph


def test_a_graph_captures_the_marked_kernel_at_rest_and_loads_no_module_meanwhile(frontend, gpu, graph, compiled):
    frontend.enable(Recording())
    assert not marked(launch())
    captured = graph()
    captured.capture_begin()
    assert marked(launch())
    captured.capture_end()
    assert not marked(launch())
    assert compiled == [False, False] and len(gpu.loaded) == 2


def test_a_kernel_that_ran_at_rest_with_other_options_is_loaded_as_a_capture_allows_it(frontend, gpu, graph):
    """Its plain form is in memory already, so the marked one is compiled when it is launched into the graph."""
    for strategy in (kscope.Elected(), kscope.Lane0Warp0()):
        frontend.enable(Recording(strategy=strategy))
        assert not marked(launch())
        captured = graph()
        captured.capture_begin()
        assert f'"strategy":"{strategy.spec}"' in launch().metadata.kscope
        captured.capture_end()
        frontend.disable()
    assert len(gpu.loaded) == 3


CONFIGS = [triton.Config({"BLOCK": size}) for size in (16, 32, 64)]


def test_of_a_tuned_kernel_only_the_selected_configuration_is_compiled_with_marks(frontend, gpu, compiled):
    def bench(run, quantiles):
        run()
        return [1.0, 1.0, 1.0]

    tuned = triton.autotune(CONFIGS, key=["n"], do_bench=bench)(kernel)
    frontend.enable(Recording())
    assert not marked(tuned[(1,)](Pointer("i32"), 5))
    frontend.prepare()
    assert compiled == [False] * len(CONFIGS) + [True, False]
    frontend.begin()
    assert marked(tuned[(1,)](Pointer("i32"), 5))
    assert len(compiled) == len(CONFIGS) + 2


def test_a_kernel_that_cannot_have_marks_runs_at_rest_and_is_refused_in_a_session(frontend, gpu):
    frontend.enable(Recording())
    refused[(1,)](Pointer("i32"), 5)
    frontend.prepare()
    frontend.begin()
    with pytest.raises(kscope.PairingError, match="half"):
        refused[(1,)](Pointer("i32"), 5)


def test_a_kernel_with_a_variable_runs_one_form(frontend, gpu):
    frontend.enable(Recording())
    found = [counting[(1,)](Pointer("i32")) for _ in range(2)]
    frontend.prepare()
    frontend.begin()
    found.append(counting[(1,)](Pointer("i32")))
    frontend.end()
    found.append(counting[(1,)](Pointer("i32")))
    assert marked(found[0]) and all(one is found[0] for one in found)
    assert len(gpu.loaded) == 1


def test_attributes_that_the_program_sets_hold_for_the_marked_kernel(frontend, gpu, backend):
    frontend.enable(Recording())
    plain = launch()
    frontend.prepare()
    for session in (1, 2):
        frontend.begin()
        recorded = [launch(), launch()][0]
        assert backend.copied == [(plain.function, recorded.function)] * session
        frontend.end()
        launch()


def test_other_options_than_those_prepared_are_compiled_in_the_session(frontend, gpu):
    frontend.enable(Recording())
    launch()
    frontend.prepare()
    frontend.enable(Recording(strategy=kscope.Lane0Warp0()))
    frontend.begin()
    assert '"strategy":"lane0-warp0"' in launch().metadata.kscope
    frontend.enable(Recording())
    frontend.end()
    assert not marked(launch())


PROGRAM = """
import os, sys, threading, time
sys.path[:0] = sys.argv[1:]
from fake_gpu import FakeGpu, Pointer
from test_rest import Backend, kernel, unmarked
from triton.runtime.driver import driver
from kscope.instrument import registry
from kscope.instrument import loaded_code
from kscope.instrument.recording import Recording

driver._active, registry._backends["cuda"] = FakeGpu(), Backend()
frontend = registry.frontend("triton")
frontend.enable(Recording())
for size in range(4, 12):
    kernel[(1,)](Pointer("i32"), 5, BLOCK=1 << size)
    if size == 4 and os.fork() == 0:
        assert threading.active_count() == 1
        unmarked[(1,)](Pointer("i32"), 5)
        frontend.prepare()
        frontend.begin()
        kernel[(1,)](Pointer("i32"), 5, BLOCK=16)
        os._exit(5)
print(os.waitstatus_to_exitcode(os.wait()[1]), len(frontend._preparation._jobs) > 0)
sys.exit(3)
"""


def test_a_program_ends_without_the_kernels_that_are_not_compiled_yet_and_may_fork(tmp_path):
    here = Path(__file__).parent
    command = [sys.executable, "-c", PROGRAM, str(here), str(here.parents[1])]
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "5 True\n", "")


def test_the_files_of_marked_kernels_are_kept_for_samples_of_stalls(frontend, gpu, monkeypatch):
    monkeypatch.setattr(loaded_code, "_images", {})
    frontend.enable(Recording())
    frontend.begin()
    launch()
    unmarked[(1,)](Pointer("i32"), 5)
    (kept,) = loaded_code.kept_cubins()
    assert kept in [cubin for _, cubin in gpu.loaded]
