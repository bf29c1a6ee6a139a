"""CuPy on a GPU: every record that a launch must leave is there, for every way to create the kernel."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

import kscope
from kscope.instrument.recording import Placement

from .checks import doubts

cupy = pytest.importorskip("cupy")
Table = Callable[[str, str], None]


@pytest.fixture
def c() -> ModuleType:
    from . import cupy_sources

    cupy.disable_experimental_feature_warning = True  # cupyx.jit is
    return cupy_sources


def sync() -> None:
    cupy.cuda.Device().synchronize()


def test_every_warp_of_every_block_records(c: ModuleType) -> None:
    out, blocks = c.ints(1000), 1000
    with kscope.profile() as prof:
        c.four((blocks,), (128,), (out,))
    assert not doubts(prof.trace)
    assert len(prof.trace) == blocks * 4 * c.RECORDS
    assert bool((out == 4).all())


def test_blocks_and_grids_of_three_dimensions(c: ModuleType) -> None:
    out = c.ints(60)
    with kscope.profile() as prof:
        c.four((5, 4, 3), (8, 4, 4), (out,))
    trace = prof.trace
    assert not doubts(trace)
    assert len(trace) == 60 * 4 * c.RECORDS
    assert trace.warps.threads[0].tolist() == [8, 4, 4] and trace.warps.grid[0].tolist() == [5, 4, 3]
    assert len({tuple(block) for block in trace.warps.block_xyz.tolist()}) == 60
    assert bool((out == 4).all())


def test_kernels_with_regions_still_run_in_blocks_of_1024_threads(c: ModuleType) -> None:
    x = cupy.random.default_rng(1).random(64, cupy.float32) / 2
    plain, marked = cupy.zeros((4, 1024), cupy.float32), cupy.zeros((4, 1024), cupy.float32)
    wide = cupy.RawKernel(c.WIDE, "wide", (*c.INCLUDE, "-DCOUNT=48"))
    wide((4,), (1024,), (x, plain, np.int32(20)))
    with kscope.profile(records=32) as prof:
        wide((4,), (1024,), (x, marked, np.int32(20)))
    assert not doubts(prof.trace)
    assert len(prof.trace) == 4 * 32 * 20
    assert bool((plain == marked).all())


def test_1000_launches(c: ModuleType) -> None:
    out = c.ints(132)
    with kscope.profile() as prof:
        for _ in range(1000):
            c.four((132,), (128,), (out,))
    assert not doubts(prof.trace)
    assert len(prof.trace.launches) == 1000 and len(prof.trace) == 1000 * 132 * 4 * c.RECORDS


def test_a_graph_replayed_100_times_shows_as_100_launches(c: ModuleType) -> None:
    out = c.ints(66)
    kscope.enable()
    stream = cupy.cuda.Stream(non_blocking=True)
    sync()
    with stream:
        c.four((66,), (128,), (out,))
        stream.synchronize()
        stream.begin_capture()
        c.four((66,), (128,), (out,))
        graph = stream.end_capture()
        with kscope.profile() as prof:
            for _ in range(100):
                graph.launch()
            stream.synchronize()
    assert not doubts(prof.trace)
    assert len(prof.trace.launches) == 100 and len(prof.trace) == 100 * 66 * 4 * c.RECORDS


def test_a_module_may_be_loaded_inside_of_a_capture(c: ModuleType) -> None:
    out = c.ints(8)
    kernel = c.fresh(c.FOUR, "four")
    stream = cupy.cuda.Stream(non_blocking=True)
    sync()
    with kscope.profile() as prof, stream:
        stream.begin_capture()
        kernel((8,), (32,), (out,))
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch()
        stream.synchronize()
    assert not doubts(prof.trace)
    assert len(prof.trace) == 3 * 8 * c.RECORDS


def test_two_devices_record_in_one_session(c: ModuleType) -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with kscope.profile() as prof:
        for device in (0, 1):
            with cupy.cuda.Device(device):
                out = c.ints(33)
                c.four((33,), (128,), (out,))
                sync()
                assert bool((out == 4).all())
    assert not doubts(prof.trace)
    assert set(prof.trace.devices) == {0, 1}  # a context of another test's may be there as well
    assert {prof.trace.devices[launch.device] for launch in prof.trace.launches} == {0, 1}
    assert len(prof.trace) == 2 * 33 * 4 * c.RECORDS


def test_barriers_values_and_results(c: ModuleType) -> None:
    n, blocks = 12, 40
    x, out = cupy.arange(1, 128 * n + 1, dtype=cupy.int32), c.ints(blocks)
    with kscope.profile() as prof:
        c.summed((blocks,), (128,), (x, out, np.int32(n)))
    trace = prof.trace
    assert not doubts(trace)
    assert out.get().tolist() == [128 * n * (128 * n + 1) // 2] * blocks
    assert len(trace) == blocks * 4 * (2 * n + 1)
    assert trace.filter(region="load").value.reshape(-1, n).tolist() == [list(range(n))] * (blocks * 4)
    assert set(trace.filter(region="all").depth.tolist()) == {0}


@pytest.mark.parametrize("strategy", [kscope.Lane0Warp0(), kscope.TargetWarp(1, 3), kscope.AllThreads()])
def test_strategies(c: ModuleType, strategy: kscope.Elected) -> None:
    out = c.ints(50)
    with kscope.profile(strategy=strategy) as prof:
        c.four((50,), (128,), (out,))
    lanes = sum(strategy.records(warp, lane) for warp in range(4) for lane in range(32))
    assert not doubts(prof.trace)
    assert len(prof.trace) == 50 * lanes * c.RECORDS


@pytest.mark.parametrize("placement", ["fence", "schedule"])
def test_templates_by_name_expressions(c: ModuleType, placement: Placement) -> None:
    names = ("filled<int, 3>", "filled<float, 7>")
    module = cupy.RawModule(code=c.TEMPLATE, options=c.INCLUDE, name_expressions=names)
    ints, floats = cupy.zeros(256, cupy.int32), cupy.zeros(256, cupy.float32)
    with kscope.profile(placement=placement) as prof:
        module.get_function(names[0])((2,), (128,), (ints,))
        module.get_function(names[1])((2,), (128,), (floats,))
    assert not doubts(prof.trace)
    assert bool((ints == 3).all()) and bool((floats == 7).all())
    assert len(prof.trace.filter(region="fill")) == 2 * 2 * 4
    assert len(prof.trace.kernels) == 2


def test_the_nvcc_backend(c: ModuleType) -> None:
    out = c.ints(20)
    kernel = cupy.RawKernel(c.FOUR, "four", options=c.INCLUDE, backend="nvcc")
    kernel((20,), (128,), (out,))
    with kscope.profile() as prof:
        kernel((20,), (128,), (out,))
    assert not doubts(prof.trace)
    assert len(prof.trace) == 20 * 4 * c.RECORDS
    assert bool((out == 4).all())


def test_elementwise_and_reduction_kernels(c: ModuleType) -> None:
    kscope.enable()
    square = cupy.ElementwiseKernel("float32 x", "float32 y", 'KSCOPE_REGION("square"); y = x * x', "square")
    norm = cupy.ReductionKernel(
        "T x", "T y", "square_of(x)", "a + b", "y = sqrt(a)", "0", "norm",
        preamble='template <class T> __device__ T square_of(T x) { KSCOPE_REGION("map"); return x * x; }',
    )  # fmt: skip
    x = cupy.arange(1, 4097, dtype=cupy.float32)
    with kscope.profile() as prof:
        squares, length = square(x), norm(x)
    kscope.disable()
    np.testing.assert_allclose(squares.get(), x.get() ** 2)
    np.testing.assert_allclose(float(length), np.linalg.norm(x.get()), rtol=1e-5)
    assert not doubts(prof.trace)
    assert len(prof.trace.filter(region="square")) == 4096 // 32
    assert len(prof.trace.filter(region="map")) > 0


def test_cupyx_jit(c: ModuleType) -> None:
    from cupyx import jit

    @jit.rawkernel()
    def scale(x, out, n):  # type: ignore[no-untyped-def]
        first = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
        with kscope.region("all"):
            for i in range(first, n, jit.gridDim.x * jit.blockDim.x):
                with kscope.region("step", value=i):
                    if i == 3:
                        continue
                    out[i] = x[i] * 2

    x = cupy.arange(4096, dtype=cupy.float32)
    out = cupy.zeros_like(x)
    with kscope.profile() as prof:
        scale((8,), (128,), (x, out, np.int32(4096)))
    expected = 2 * x.get()
    expected[3] = 0
    np.testing.assert_array_equal(out.get(), expected)
    assert not doubts(prof.trace)
    assert len(prof.trace.filter(region="all")) == 8 * 4
    assert len(prof.trace.filter(region="step")) == 8 * 4 * 4  # 1024 threads, 4 rounds
    scale((8,), (128,), (x, out, np.int32(4096)))  # stays prepared, and rests


def test_ptx_that_the_driver_assembles(c: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from kscope_cuda import assembler

    assembler.assemble.cache_clear()
    monkeypatch.setattr(assembler, "ptxas", lambda *most: None)
    monkeypatch.setattr(assembler, "nvjitlink", lambda: None)
    out = c.ints(30)
    with kscope.profile(records=8) as prof:
        c.fresh(c.FOUR, "four")((30,), (128,), (out,))
    assembler.assemble.cache_clear()
    assert not doubts(prof.trace)
    assert len(prof.trace) == 30 * 4 * c.RECORDS
    assert bool((out == 4).all())
