"""Numba at rest on a GPU: launches run plain kernels that compute the same as those with marks, in every order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kscope

from .checks import doubts

pytest.importorskip("contract.frontend_numba", exc_type=ImportError)

COUNTER = r"""
__device__ int calls;
extern "C" __device__ int counted(int* result) {
  *result = ++calls;
  return 0;
}
"""


@pytest.fixture
def n() -> ModuleType:
    from . import numba_kernels

    return numba_kernels


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The forms that launches have run."""
    dispatcher, binding = import_module("numba.cuda.dispatcher"), import_module("cuda.bindings.driver")
    ran: list[str] = []
    original = dispatcher.launch

    def launch(stream: Any, config: Any, kernel: Any, *args: Any) -> Any:
        _, library = binding.cuKernelGetLibrary(binding.CUkernel(int(kernel.handle)))
        has_marks = int(binding.cuLibraryGetGlobal(library, b"kscope_ctl")[0]) == 0
        ran.append("marked" if has_marks else "plain")
        return original(stream, config, kernel, *args)

    monkeypatch.setattr(dispatcher, "launch", launch)
    return ran


@contextmanager
def captured(stream: int) -> Iterator[list[Any]]:
    """A context manager: what is launched into the stream becomes a graph, which is in the list afterwards."""
    cuda = import_module("cuda.bindings.driver")
    (result,) = cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    assert int(result) == 0
    found: list[Any] = []
    yield found
    result, graph = cuda.cuStreamEndCapture(stream)
    assert int(result) == 0
    result, ready = cuda.cuGraphInstantiate(graph, 0)
    assert int(result) == 0
    found.append(ready)


def test_launches_run_plain_at_rest_and_record_in_sessions(n: ModuleType, forms: list[str]) -> None:
    kscope.enable()
    out = n.ints(2)
    for number in range(1, 4):
        n.four[2, 64](out)
        with kscope.profile() as prof:
            n.four[2, 64](out)
        n.four[2, 64](out)
        assert out.copy_to_host().tolist() == [12 * number] * 2
        assert len(prof.trace) == 2 * 2 * n.RECORDS and not doubts(prof.trace)
    kscope.disable()
    n.four[2, 64](out)
    assert forms == ["plain", "marked", "plain"] * 3 + ["plain"]


def test_a_graph_that_is_captured_at_rest_records_when_it_is_replayed(n: ModuleType, forms: list[str]) -> None:
    cuda = import_module("cuda.bindings.driver")
    kscope.enable()
    out, stream = n.ints(2), n.cuda.stream()
    n.four[2, 64](out)
    with captured(int(stream.handle)) as graphs:
        n.four[2, 64, stream](out)
    n.four[2, 64](out)
    assert forms == ["plain", "marked", "plain"]
    with kscope.profile() as prof:
        (result,) = cuda.cuGraphLaunch(graphs[0], int(stream.handle))
        assert int(result) == 0
        stream.synchronize()
    assert len(prof.trace) == 2 * 2 * n.RECORDS
    assert out.copy_to_host().tolist() == [12, 12]


@pytest.mark.parametrize("lto", [True, False])
def test_a_global_counter_counts_the_launches_of_both_states(n: ModuleType, tmp_path: Path, lto: bool) -> None:
    path = tmp_path / "counted.cu"
    path.write_text(COUNTER)
    counted = n.cuda.declare_device("counted", "int32()")

    def count(out):  # type: ignore[no-untyped-def]  # Numba compiles it
        with kscope.region("count"):
            out[0] = counted()

    kernel, out = n.cuda.jit(count, link=[str(path)], lto=lto), n.ints(1)
    kscope.enable()
    for number in (1, 3, 5):
        kernel[1, 1](out)
        assert out.copy_to_host()[0] == number
        with kscope.profile() as prof:
            kernel[1, 1](out)
        assert out.copy_to_host()[0] == number + 1 and len(prof.trace) == 1


def test_constant_arrays_are_no_state(n: ModuleType, forms: list[str]) -> None:
    cuda, table = n.cuda, np.arange(4, dtype=np.int32)

    @cuda.jit
    def look_up(out):  # type: ignore[no-untyped-def]  # Numba compiles it
        with kscope.region("look up"):
            out[0] = cuda.const.array_like(table)[cuda.blockIdx.x + 3]

    kscope.enable()
    out = n.ints(1)
    look_up[1, 1](out)
    assert out.copy_to_host()[0] == 3 and forms == ["plain"]


def by_numba(function: Any, value: int) -> None:
    function.set_shared_memory_carveout(value)


def by_driver(function: Any, value: int) -> None:
    cuda = import_module("cuda.bindings.driver")
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    _, handle = cuda.cuKernelGetFunction(cuda.CUkernel(int(function.handle)))
    (result,) = cuda.cuFuncSetAttribute(handle, attribute, value)
    assert int(result) == 0


def carveout(function: Any) -> int:
    cuda = import_module("cuda.bindings.driver")
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    _, handle = cuda.cuKernelGetFunction(cuda.CUkernel(int(function.handle)))
    return int(cuda.cuFuncGetAttribute(attribute, handle)[1])


@pytest.mark.parametrize("set_carveout", [by_numba, by_driver])
def test_attributes_that_a_program_sets_hold_for_both_forms(
    n: ModuleType, forms: list[str], set_carveout: Callable[[Any, int], None]
) -> None:
    from kscope.instrument import registry

    kscope.enable()
    frontend: Any = registry.frontend("numba")
    kernel = n.cuda.jit(n.four.py_func)
    out = n.ints(2)
    kernel[2, 64](out)
    (marked,) = kernel.overloads.values()
    plain = frontend._loads.forms._forms[marked].kernel
    for value in (50, 25):
        set_carveout(marked._codelibrary.get_cufunc(), value)
        kernel[2, 64](out)
        assert forms[-1] == "plain" and carveout(plain._codelibrary.get_cufunc()) == value


def test_dynamic_shared_memory_that_a_program_requests_holds_for_both_forms(n: ModuleType) -> None:
    driver, cuda = import_module("cuda.bindings.driver"), n.cuda
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

    @cuda.jit
    def last(out, count):  # type: ignore[no-untyped-def]  # Numba compiles it
        shared = cuda.shared.array(0, np.int32)
        with kscope.region("fill"):
            for k in range(cuda.threadIdx.x, count, cuda.blockDim.x):
                shared[k] = k
            cuda.syncthreads()
        out[0] = shared[count - 1]

    kscope.enable()
    out = n.ints(1)

    def launch(size: int) -> int:
        last[1, 64, 0, size](out, size // 4)
        return int(out.copy_to_host()[0])

    assert launch(40_000) == 9_999
    (marked,) = last.overloads.values()
    _, handle = driver.cuKernelGetFunction(driver.CUkernel(int(marked._codelibrary.get_cufunc().handle)))
    assert int(driver.cuFuncSetAttribute(handle, attribute, 100_000)[0]) == 0
    assert launch(100_000) == 24_999
    with kscope.profile() as prof:
        assert launch(100_000) == 24_999
    assert len(prof.trace) == 2


def test_a_barrier_of_a_grid_that_is_sized_by_occupancy_ends_in_every_state(n: ModuleType) -> None:
    kscope.enable()
    out = n.ints(1)
    n.together[1, 64](out, 1)
    (kernel,) = n.together.overloads.values()
    blocks = kernel.max_cooperative_grid_blocks(64)

    def launch() -> int:
        out = n.ints(1)
        n.together[blocks, 64](out, 3)
        return int(out.copy_to_host()[0])

    assert launch() == 3 * blocks
    with kscope.profile() as prof:
        assert launch() == 3 * blocks
    assert len(prof.trace) == blocks * 2 * 3
    assert launch() == 3 * blocks


def test_a_grid_that_only_the_plain_form_runs_at_once_is_refused_by_name(
    n: ModuleType, forms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kscope_numba import plain_form

    kscope.enable()
    kernel, out = n.cuda.jit(n.four.py_func), n.ints(1 << 16)
    kernel[1, 64](out)
    (compiled,) = kernel.overloads.values()
    blocks = compiled.max_cooperative_grid_blocks(64)
    from kscope.instrument import registry

    frontend: Any = registry.frontend("numba")
    marked, fitting = frontend._loads.forms._marked(compiled), plain_form._Function.fitting

    def fewer(function: Any, launch: Any) -> Callable[[], int]:
        found = fitting(function, launch)
        return (lambda: found() - 1) if function == marked else found

    monkeypatch.setattr(plain_form._Function, "fitting", fewer)
    with kscope.profile() as prof:
        kernel[blocks, 64](out)
    assert forms == ["plain", "plain"]
    assert "kernel four: a launch is not recorded" in " ".join(one.text for one in prof.trace.problems)
