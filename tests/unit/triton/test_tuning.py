"""Autotuning while recording: configurations are timed plain, and the selected one records."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kscope
from kscope.instrument import registry
from kscope.instrument.recording import Recording

sys.path.append(str(Path(__file__).parent))

from fake_gpu import Pointer, active, record  # it is in this folder

TIMES = {16: 3.0, 32: 1.0, 64: 2.0}
REPEATED = 5
CONFIGS = [triton.Config({"BLOCK": size}) for size in TIMES]


@triton.jit
def kernel(out, n, BLOCK: tl.constexpr):
    with kscope.region("work"):
        tl.store(out + tl.arange(0, BLOCK), n)


class Timer:
    """A fake do_bench: launches a configuration several times and takes its time from TIMES."""

    def __init__(self, gpu):
        self.gpu, self.prepared, self.meanwhile = gpu, [], lambda: None

    def __call__(self, launch, quantiles):
        for _ in range(REPEATED):
            launch()
        self.meanwhile()
        self.prepared.append(b"kscope" in self.gpu.loaded[-1][1])
        return [list(TIMES.values())[(len(self.prepared) - 1) % len(TIMES)]] * 3


class Backend:
    """A stand-in for the CUDA runtime that logs modules and launches."""

    def __init__(self):
        self.loaded, self.launched = [], 0

    def relaxed(self):
        return nullcontext()

    def patched(self, cubin, ordinal):
        return cubin

    def module_loaded(self, module):
        self.loaded.append(module)

    def is_open(self):
        return False

    def pace(self, kernel=None):
        self.launched += 1


@pytest.fixture
def backend(monkeypatch):
    made = Backend()
    monkeypatch.setitem(registry._backends, "cuda", made)
    return made


@pytest.fixture
def gpu(monkeypatch, backend):
    yield from active(monkeypatch, kernel)


@pytest.fixture
def timer(gpu):
    return Timer(gpu)


@pytest.fixture
def tuned(timer):
    return triton.autotune(CONFIGS, key=["n"], do_bench=timer)(kernel)


def marked(compiled):
    return hasattr(compiled.metadata, "kscope")


def test_configurations_are_timed_plain_and_the_best_one_records(frontend, gpu, tuned, timer, backend):
    record(frontend, Recording())
    assert marked(tuned[(1,)](Pointer("i32"), 5))
    assert tuned.best_config.kwargs == {"BLOCK": 32}
    assert timer.prepared == [False] * len(TIMES)
    assert gpu.launched == ["kernel"] * (len(TIMES) * REPEATED + 1)
    assert backend.launched == 1  # only the last launch can fill the pool
    assert frontend.tuning_launches() == len(TIMES) * REPEATED
    assert frontend.problems() == ()


def test_configurations_that_were_timed_before_recording_are_no_problem_when_timed_again(frontend, gpu, tuned):
    tuned[(1,)](Pointer("i32"), 5)
    record(frontend, Recording())
    assert marked(tuned[(1,)](Pointer("i32"), 6))
    assert frontend.problems() == ()


def test_the_launches_of_another_thread_record_while_a_configuration_is_timed(frontend, gpu, tuned, timer, backend):
    if triton.__version__ < "3.7":
        pytest.skip("one instrumentation mode for all threads")
    found = []

    def elsewhere():
        thread = threading.Thread(target=lambda: found.append(marked(kernel[(1,)](Pointer("i32"), 5, BLOCK=128))))
        thread.start()
        thread.join()

    timer.meanwhile = elsewhere
    record(frontend, Recording())
    tuned[(1,)](Pointer("i32"), 5)
    assert found == [True] * len(TIMES)
    assert backend.launched == len(TIMES) + 1


@pytest.mark.parametrize("how", ["raises", "ends"])
def test_a_kernel_is_prepared_again_however_tuning_ended(frontend, gpu, tuned, timer, how):
    def stop():
        if how == "raises":
            raise ValueError(how)

    timer.meanwhile = stop
    record(frontend, Recording())
    if how == "raises":
        with pytest.raises(ValueError, match="raises"):
            tuned[(1,)](Pointer("i32"), 5)
    else:
        tuned[(1,)](Pointer("i32"), 5)
    assert marked(kernel[(1,)](Pointer("i32"), 5, BLOCK=128))


def test_a_session_counts_its_own_tuning_launches(frontend, gpu, tuned):
    record(frontend, Recording())
    for value, count in ((5, len(TIMES) * REPEATED), (5, 0), (6, len(TIMES) * REPEATED)):
        frontend.begin()
        tuned[(1,)](Pointer("i32"), value)
        assert frontend.tuning_launches() == count


@pytest.mark.parametrize("order", [("plain", "prepared"), ("prepared", "plain")], ids=", ".join)
def test_timings_on_disk_are_those_of_the_plain_kernels_for_both_states(frontend, gpu, timer, order):
    for state in order:
        record(frontend, Recording()) if state == "prepared" else frontend.disable()
        kernel.device_caches.clear()
        fresh = triton.autotune(CONFIGS, key=["n"], do_bench=timer, cache_results=True)(kernel)
        assert marked(fresh[(1,)](Pointer("i32"), 5)) == (state == "prepared")
        assert fresh.best_config.kwargs == {"BLOCK": 32}
    assert timer.prepared == [False] * len(TIMES)


def test_kernels_recorded_before_are_not_compiled_again(frontend, gpu, tuned, monkeypatch):
    compiled = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **what: compiled.append(what["cache_hit"]))
    record(frontend, Recording())
    for value in (5, 6, 5):
        tuned[(1,)](Pointer("i32"), value)
    assert compiled == [False] * (len(TIMES) + 1)


# torch.compile


class Result:
    """A fake of Inductor's TritonCompileResult."""

    def __init__(self, kernel, config):
        self.kernel, self.config = kernel, config

    def make_launcher(self):
        self.kernel._init_handles()
        scope = {"bin": self.kernel, "enter": knobs.runtime.launch_enter_hook, "leave": knobs.runtime.launch_exit_hook}
        packed, described = "bin.packed_metadata", "bin.launch_metadata((1, 1, 1), 0)"
        run = f"bin.run(1, 1, 1, 0, bin.function, {packed}, {described}, enter, leave)"
        exec(f"def launcher():\n    {run}", scope)
        launcher = scope["launcher"]
        launcher.config = self.config
        return launcher


class CachingAutotuner:
    """A stand-in for Inductor's autotuner with its method names."""

    def __init__(self, fn):
        self.fn, self.timed = fn, []
        self.launchers = [self._precompile_config(config).make_launcher() for config in CONFIGS]

    def _precompile_config(self, config):
        source = ASTSource(
            self.fn, {"out": "*i32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": config.kwargs["BLOCK"]}
        )
        return Result(triton.compile(source, target=GPUTarget("cuda", 90, 32)), config)

    def bench(self, launcher, *args, **kwargs):
        for _ in range(REPEATED):
            launcher()
        self.timed.append(marked(launcher.__globals__["bin"]))
        return TIMES[launcher.config.kwargs["BLOCK"]]

    def run(self):
        times = {launcher: self.bench(launcher) for launcher in self.launchers if len(self.launchers) > 1}
        self.best = min(times, key=times.get) if times else self.launchers[0]
        self.best()


@triton.jit
def unmarked(out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), n)


@pytest.fixture
def inductor(monkeypatch, frontend):
    """Inductor's module, not imported yet."""
    module = ModuleType("torch._inductor.runtime.triton_heuristics")
    module.CachingAutotuner = type("CachingAutotuner", (CachingAutotuner,), dict(vars(CachingAutotuner)))
    monkeypatch.setitem(sys.modules, module.__name__, None)
    frontend._inductor._bench = None
    yield module
    frontend.disable()


@pytest.mark.parametrize("imported", ["before", "while enabled"])
def test_inductor_times_plain_kernels_and_launches_the_best_one_with_marks(
    frontend, gpu, backend, inductor, monkeypatch, imported
):
    if imported == "before":
        monkeypatch.setitem(sys.modules, inductor.__name__, inductor)
    record(frontend, Recording())
    if imported == "while enabled":
        monkeypatch.setitem(sys.modules, inductor.__name__, inductor)
        frontend._inductor._watcher._imported(inductor.__name__)
    autotuner = inductor.CachingAutotuner(kernel)
    autotuner.run()
    assert autotuner.timed == [False] * len(TIMES)
    assert autotuner.best.config.kwargs == {"BLOCK": 32} and marked(autotuner.best.__globals__["bin"])
    assert (backend.launched, frontend.tuning_launches()) == (1, len(TIMES) * REPEATED)
    frontend.disable()
    autotuner.timed.clear()
    autotuner.run()
    assert autotuner.timed == [True] * len(TIMES)  # kernels that were compiled while enabled stay


def test_inductor_compiles_a_kernel_without_marks_once_per_configuration(frontend, gpu, backend, inductor, monkeypatch):
    monkeypatch.setitem(sys.modules, inductor.__name__, inductor)
    record(frontend, Recording())
    autotuner = inductor.CachingAutotuner(unmarked)
    autotuner.run()
    assert len(gpu.loaded) == len(TIMES)
    assert frontend.tuning_launches() == len(TIMES) * REPEATED


def test_inductor_launches_plain_kernels_at_rest_and_marked_ones_in_a_session(
    frontend, gpu, backend, inductor, monkeypatch
):
    monkeypatch.setitem(sys.modules, inductor.__name__, inductor)
    frontend.enable(Recording())
    autotuner = inductor.CachingAutotuner(kernel)
    autotuner.launchers = autotuner.launchers[:1]
    forms = []
    for recording in (False, False, True, False, True):
        frontend.begin() if recording else frontend.end()
        autotuner.run()
        forms.append(marked(autotuner.best.__globals__["bin"]))
    assert forms == [False, False, True, False, True]
    assert backend.launched == 2
    assert len(gpu.loaded) == len(TIMES) + 1  # the plain form, once
    assert frontend.problems() == ()


def test_what_inductor_compiles_in_a_session_is_not_compiled_plain_there(frontend, gpu, backend, inductor, monkeypatch):
    monkeypatch.setitem(sys.modules, inductor.__name__, inductor)
    record(frontend, Recording())
    autotuner = inductor.CachingAutotuner(kernel)
    autotuner.launchers = autotuner.launchers[:1]
    autotuner.run()
    assert marked(autotuner.best.__globals__["bin"]) and len(gpu.loaded) == len(TIMES)
    frontend.end()
    autotuner.run()
    assert not marked(autotuner.best.__globals__["bin"])
    frontend.disable()
    autotuner.run()
    assert not marked(autotuner.best.__globals__["bin"])
