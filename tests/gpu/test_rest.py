"""At rest, launches run plain kernels that compute the same as those with marks, in every order, on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kscope

from .checks import doubts

cupy = pytest.importorskip("cupy")

# out[block] = 1 in the plain form, 2 in the form with marks.
FORM = r"""
#include <kscope.cuh>
extern "C" __global__ void form(int* out) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("form");
    out[blockIdx.x] = KSCOPE ? 2 : 1;
}
"""

# Adds one to a variable for each launch, and returns it.
COUNTER = r"""
#include <kscope.cuh>
%s
extern "C" __global__ void count(int* out) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("count");
    %s
    out[0] = ++calls;
}
"""

# Each block adds one, waits for all others `rounds` times, and writes what it found: the number of blocks.
BARRIER = r"""
#include <kscope.cuh>
extern "C" __global__ void meet(unsigned* arrived, int* out, int rounds) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("meet");
    for (int round = 1; round <= rounds; ++round) {
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd(arrived, 1u);
            while (*(volatile unsigned*)arrived < (unsigned)round * gridDim.x) {}
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = *(volatile unsigned*)arrived / rounds;
}
"""

COOPERATIVE = r"""
#include <kscope.cuh>
#include <cooperative_groups.h>
extern "C" __global__ void meet(unsigned* arrived, int* out, int rounds) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("meet");
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x == 0) atomicAdd(arrived, 1u);
        cooperative_groups::this_grid().sync();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = *(volatile unsigned*)arrived / rounds;
}
"""


@pytest.fixture
def c() -> ModuleType:
    from . import cupy_sources

    return cupy_sources


def form(c: ModuleType, kernel: Any) -> int:
    """The form that a launch runs."""
    out = c.ints(2)
    kernel((2,), (32,), (out,))
    found = out.get().tolist()
    assert found[0] == found[1]
    return int(found[0])


def test_launches_run_plain_at_rest_and_record_in_sessions(c: ModuleType) -> None:
    kscope.enable()
    kernel = c.fresh(FORM, "form")
    for _ in range(3):
        assert form(c, kernel) == 1
        with kscope.profile() as prof:
            assert form(c, kernel) == 2
        assert len(prof.trace) == 2 and not doubts(prof.trace)
        assert form(c, kernel) == 1
    kscope.disable()
    assert form(c, kernel) == 1


def test_a_graph_that_is_captured_at_rest_records_when_it_is_replayed(c: ModuleType) -> None:
    kscope.enable()
    kernel, out, stream = c.fresh(FORM, "form"), c.ints(2), cupy.cuda.Stream(non_blocking=True)
    assert form(c, kernel) == 1
    with stream:
        stream.begin_capture()
        kernel((2,), (32,), (out,))
        graph = stream.end_capture()
    assert form(c, kernel) == 1
    with kscope.profile() as prof:
        graph.launch(stream)
        stream.synchronize()
    assert len(prof.trace) == 2 and out.get().tolist() == [2, 2]


def test_the_plain_form_is_loaded_while_another_thread_captures(c: ModuleType) -> None:
    """In CUDA's strictest mode, which forbids it, unless kscope asks for the relaxed one."""
    kscope.enable()
    kernel, out, stream = c.fresh(FORM, "form"), c.ints(2), cupy.cuda.Stream(non_blocking=True)
    with kscope.profile():
        assert form(c, kernel) == 2
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
    thread = threading.Thread(target=kernel, args=((2,), (32,), (out,)))
    thread.start()
    thread.join()
    stream.end_capture()
    assert out.get().tolist() == [1, 1]


@pytest.mark.parametrize(
    ("outside", "inside"),
    [("__device__ int calls;", ""), ("", "static int calls;")],
    ids=["global", "static"],
)
def test_a_global_counter_counts_the_launches_of_both_states(c: ModuleType, outside: str, inside: str) -> None:
    kscope.enable()
    kernel, out = c.fresh(COUNTER % (outside, inside), "count"), c.ints(1)
    for number in (1, 3, 5):
        kernel((1,), (1,), (out,))
        assert int(out[0]) == number
        with kscope.profile() as prof:
            kernel((1,), (1,), (out,))
        assert int(out[0]) == number + 1 and len(prof.trace) == 1


def by_property(kernel: Any, size: int) -> None:
    kernel.max_dynamic_shared_size_bytes = size


def by_driver(kernel: Any, size: int) -> None:
    cuda = import_module("cuda.bindings.driver")
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (result,) = cuda.cuFuncSetAttribute(kernel.kernel.ptr, attribute, size)
    assert int(result) == 0


@pytest.mark.parametrize("set_size", [by_property, by_driver])
def test_shared_memory_that_a_program_requests_holds_for_both_forms(
    c: ModuleType, set_size: Callable[[Any, int], None]
) -> None:
    kscope.enable()
    kernel, out = c.fresh(c.SHARED, "spread"), c.ints(1)

    def launch(size: int) -> int:
        kernel((3,), (64,), (out, np.int32(size)), shared_mem=size)
        return int(out[0])

    assert launch(40_000) == 9_999  # the plain form is loaded before the attribute is set
    set_size(kernel, 100_000)
    assert launch(100_000) == 24_999
    with kscope.profile() as prof:
        assert launch(100_000) == 24_999
        set_size(kernel, 120_000)
    assert len(prof.trace) == 3 * 2
    assert launch(120_000) == 29_999


@pytest.mark.parametrize("cooperative", [False, True], ids=["by hand", "cooperative"])
def test_a_barrier_of_a_grid_that_is_sized_by_occupancy_ends_in_every_state(c: ModuleType, cooperative: bool) -> None:
    kscope.enable()
    source = COOPERATIVE if cooperative else BARRIER
    kernel = cupy.RawKernel(source, "meet", options=c.INCLUDE, enable_cooperative_groups=cooperative)
    sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = sms * cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, 256, 0)

    def launch() -> set[int]:
        arrived, out = cupy.zeros(1, cupy.uint32), c.ints(blocks)
        kernel((blocks,), (256,), (arrived, out, np.int32(5)))
        return set(out.get().tolist())

    assert launch() == {blocks}
    with kscope.profile() as prof:
        assert launch() == {blocks}
    assert len(prof.trace) == blocks * 8
    assert launch() == {blocks}


def test_a_grid_that_only_the_plain_form_runs_at_once_is_refused_by_name(
    c: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kscope_cuda.cupy import functions

    kscope.enable()
    kernel, fitting = c.fresh(FORM, "form"), functions.fitting
    marked = kernel.kernel.ptr
    assert form(c, kernel) == 1
    most = fitting(marked, ((1,), (32,)), {})()
    sms = cupy.cuda.Device().attributes["MultiProcessorCount"]

    def fewer(handle: int, args: tuple[Any, ...], options: dict[str, Any]) -> Callable[[], int]:
        return (lambda: most - 1) if handle == marked else fitting(handle, args, options)

    monkeypatch.setattr(functions, "fitting", fewer)
    out = c.ints(most * sms)
    with kscope.profile() as prof:
        kernel((most * sms,), (32,), (out,))
    assert set(out.get().tolist()) == {1}
    assert "kernel form: a launch is not recorded" in " ".join(one.text for one in prof.trace.problems)
