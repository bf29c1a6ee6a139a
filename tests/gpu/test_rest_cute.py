"""CuTe DSL at rest on a GPU: launches run plain functions that compute the same as those with marks, in every order."""

from __future__ import annotations

import threading
from typing import Any

import pytest

cutlass = pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl: pip install '.[cute]' in a checkout")

torch = pytest.importorskip("torch", reason="needs PyTorch")

from cuda.bindings import driver  # noqa: E402
from cutlass import cute  # noqa: E402
from cutlass.base_dsl import jit_executor  # noqa: E402
from cutlass.cute.runtime import from_dlpack  # noqa: E402

import kscope  # noqa: E402

from .cute_kernels import BLOCKS, THREADS, launch  # noqa: E402

STEPS = 5
RECORDS = BLOCKS * (THREADS // 32) * (STEPS + 1)


class Job:
    """A tensor that launches count up. forms: what they have run."""

    def __init__(self, forms: list[str]) -> None:
        self.x, self.forms = torch.zeros(BLOCKS * THREADS, device="cuda"), forms
        self.compiled = cute.compile(launch, *self.arguments)

    @property
    def arguments(self) -> tuple[Any, ...]:
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        return from_dlpack(self.x), cutlass.Int32(STEPS), stream

    def ran(self) -> str:
        """The form that a launch ran."""
        self.compiled(*self.arguments)
        return self.forms[-1]

    def check(self, launches: int) -> None:
        torch.cuda.synchronize()
        assert (self.x == launches * STEPS).all()


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The forms that launches have run: those whose libraries have kscope's symbol are marked."""
    ran: list[str] = []
    original = jit_executor.JitExecutor.run_compiled_program

    def run(executor: Any, exe_args: Any) -> Any:
        (library,) = executor.jit_module.cuda_library
        status = driver.cuLibraryGetGlobal(driver.CUlibrary(int(library)), b"kscope_ctl")[0]
        ran.append("marked" if int(status) == 0 else "plain")
        return original(executor, exe_args)

    monkeypatch.setattr(jit_executor.JitExecutor, "run_compiled_program", run)
    return ran


def test_launches_run_plain_at_rest_and_record_in_sessions(forms: list[str]) -> None:
    kscope.enable()
    job = Job(forms)
    for _ in range(3):
        assert job.ran() == job.ran() == "plain"
        with kscope.profile() as prof:
            assert job.ran() == "marked"
            torch.cuda.synchronize()
        assert len(prof.trace) == RECORDS
    assert job.ran() == "plain"
    job.check(10)


def test_direct_calls_run_plain_at_rest(forms: list[str]) -> None:
    kscope.enable()
    job = Job(forms)
    launch(*job.arguments)
    assert forms[-1] == "plain"
    with kscope.profile() as prof:
        launch(*job.arguments)
        torch.cuda.synchronize()
    launch(*job.arguments)
    assert forms == ["plain", "marked", "plain"] and len(prof.trace) == RECORDS
    job.check(3)


@pytest.mark.parametrize("warm", [True, False])
def test_a_graph_that_is_captured_at_rest_records_when_it_is_replayed(forms: list[str], warm: bool) -> None:
    kscope.enable()
    job = Job(forms)
    if warm:
        assert job.ran() == "plain"
    else:
        with kscope.profile():
            assert job.ran() == "marked"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert job.ran() == "marked"
    assert job.ran() == "plain"
    with kscope.profile() as prof:
        graph.replay()
        torch.cuda.synchronize()
    assert len(prof.trace) == RECORDS
    job.check(3)


def test_the_plain_form_is_loaded_while_another_thread_captures(forms: list[str]) -> None:
    """In CUDA's strictest mode, which forbids it, unless kscope asks for the relaxed one."""
    kscope.enable()
    job = Job(forms)
    with kscope.profile():
        assert job.ran() == "marked"
    stream, arguments = torch.cuda.Stream(), job.arguments
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    assert int(driver.cuStreamBeginCapture(stream.cuda_stream, mode)[0]) == 0
    thread = threading.Thread(target=job.compiled, args=arguments)
    thread.start()
    thread.join()
    status = driver.cuStreamEndCapture(stream.cuda_stream)[0]
    assert int(status) == 0 and forms[-1] == "plain"
    job.check(2)


def test_a_function_whose_library_the_program_has_runs_one_form(forms: list[str]) -> None:
    kscope.enable()
    job = Job(forms)
    assert job.ran() == "plain"
    assert job.compiled.library is not None
    assert job.ran() == "marked"
    job.check(2)
