"""Libraries that plain nvcc built, loaded with ctypes: armed once, recorded in every session."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import kscope
import kscope_cuda
from kscope.errors import UsageError

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
pytestmark = needs_nvcc

SOURCE = r"""
#include <kscope.cuh>
__device__ __forceinline__ int twice(int x) {
  KSCOPE_REGION("twice");
  return 2 * x;
}
template <class T> __global__ void UNIT_each(T* out, int n) {
  KSCOPE_KERNEL();
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  KSCOPE_REGION_V("block", block);
  for (int k = 0; k < n; k++) {
    KSCOPE_REGION_V("step", k);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += twice(1);
  }
}
// blocks of shape[0..2], threads of shape[3..5]; 0, or the CUDA runtime's error
extern "C" int UNIT_run(float* out, int n, const int* shape, int times, int synchronize) {
  const dim3 grid(shape[0], shape[1], shape[2]), block(shape[3], shape[4], shape[5]);
  for (int i = 0; i < times; i++) UNIT_each<float><<<grid, block>>>(out, n);
  return synchronize ? cudaDeviceSynchronize() : cudaGetLastError();
}
// the same captured into a graph, which is launched `times` times
extern "C" int UNIT_graph(float* out, int n, const int* shape, int times) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  const dim3 grid(shape[0], shape[1], shape[2]), block(shape[3], shape[4], shape[5]);
  int error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (!error) error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (!error) UNIT_each<float><<<grid, block, 0, stream>>>(out, n);
  if (!error) error = cudaStreamEndCapture(stream, &graph);
  if (!error) error = cudaGraphInstantiate(&ready, graph, 0);
  for (int i = 0; i < times && !error; i++) error = cudaGraphLaunch(ready, stream);
  return error ? error : cudaStreamSynchronize(stream);
}
"""
FLAT = (4, 1, 1, 128, 1, 1)
CUBE = (3, 2, 2, 8, 4, 4)
ARCH = "-arch=native"
Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds a shared library of units with these names; the same arguments give the same file."""
    made: dict[tuple[object, ...], Path] = {}

    def build(*units: str, options: tuple[str, ...] = (ARCH,)) -> Path:
        if (units, options) not in made:
            folder = tmp_path_factory.mktemp("library")
            for unit in units:
                (folder / f"{unit}.cu").write_text(SOURCE.replace("UNIT", unit))
            command = ["nvcc", "-O3", "-std=c++17", *kscope_cuda.flags(), *options, "-shared", "-Xcompiler", "-fPIC"]
            command += [*(f"{unit}.cu" for unit in units), "-o", "library.so"]
            subprocess.run(command, cwd=folder, check=True)
            made[units, options] = folder / "library.so"
        return made[units, options]

    return build


class Unit:
    """A unit's functions, and the memory that they write to."""

    def __init__(self, path: Path, name: str = "one") -> None:
        self.library, self.name = ctypes.CDLL(str(path)), name
        self.out = torch.zeros(1 << 16, device="cuda")

    def run(self, n: int, shape: tuple[int, ...] = FLAT, times: int = 1, *, graph: bool = False) -> None:
        pointer, words = ctypes.c_void_p(self.out.data_ptr()), (ctypes.c_int * 6)(*shape)
        torch.cuda.synchronize()
        if graph:
            assert getattr(self.library, f"{self.name}_graph")(pointer, n, words, times) == 0
        else:
            assert getattr(self.library, f"{self.name}_run")(pointer, n, words, times, 1) == 0

    @property
    def sums(self) -> set[float]:
        return {float(x) for x in self.out.unique()}


def counts(trace: kscope.Trace) -> Counter[str]:
    names = trace.region_names()
    return Counter(names[region] for region in trace.region.tolist())


def test_a_library_records_after_it_was_armed(build: Build) -> None:
    unit = Unit(build("one"))
    kscope_cuda.arm(unit.library)
    with kscope.profile() as prof:
        unit.run(3)
    assert counts(prof.trace) == {"block": 16, "step": 48, "twice": 48}
    assert prof.trace.kernels == ("one_each<T = float>",)
    assert {problem.kind for problem in prof.trace.problems} <= {"empty"}  # twice(1) is a constant
    assert unit.sums == {0.0, 6.0}


def test_code_that_ran_before_it_was_armed_records_as_well(build: Build) -> None:
    unit = Unit(build("late"), "late")
    unit.run(2)
    kscope_cuda.arm(unit.library)
    unit.run(2)  # armed, and no session
    with kscope.profile() as prof:
        unit.run(2)
    assert counts(prof.trace) == {"block": 16, "step": 32, "twice": 32}


def test_a_library_that_is_not_armed_records_nothing(build: Build) -> None:
    unit = Unit(build("never"), "never")
    with kscope.profile() as prof:
        unit.run(2)
    assert len(prof.trace) == 0
    assert unit.sums == {0.0, 4.0}


def test_blocks_and_grids_of_three_dimensions(build: Build) -> None:
    unit = Unit(build("one"))
    kscope_cuda.arm(unit.library)
    with kscope.profile() as prof:
        unit.run(1, CUBE)
    blocks = prof.trace.filter(region="block")
    assert sorted(blocks.value.tolist()) == sorted([float(block) for block in range(12)] * 4)
    assert (blocks.block == blocks.value).all()


def test_a_thousand_launches_are_counted(build: Build) -> None:
    unit = Unit(build("one"))
    kscope_cuda.arm(unit.library)
    with kscope.profile() as prof:
        for _ in range(10):
            unit.run(1, times=100)
    assert len(prof.trace.launches) == 1000
    assert counts(prof.trace) == {"block": 16_000, "step": 16_000, "twice": 16_000}
    assert {problem.kind for problem in prof.trace.problems} <= {"empty"}  # twice(1) is a constant


def test_replays_of_a_graph_are_separate_launches(build: Build) -> None:
    unit = Unit(build("one"))
    kscope_cuda.arm(unit.library)
    with kscope.profile() as prof:
        unit.run(1, times=5, graph=True)
    assert len(prof.trace.launches) == 5
    assert counts(prof.trace)["block"] == 5 * 16


def test_sessions_follow_each_other(build: Build) -> None:
    unit = Unit(build("one"))
    kscope_cuda.arm(unit.library)
    for n in (1, 2, 3):
        with kscope.profile(warp=0, block=range(2)) as prof:
            unit.run(n)
        assert counts(prof.trace) == {"block": 2, "step": 2 * n, "twice": 2 * n}


@pytest.mark.parametrize(
    "options",
    [
        (ARCH, "-rdc=true"),
        ("-gencode=arch=compute_75,code=compute_75", "-compress-mode=none"),
        (ARCH, "-DKSCOPE_CLOCK=globaltimer"),
        (ARCH, "-lineinfo", "-cudart=shared"),
    ],
    ids=["relocatable", "ptx", "globaltimer", "shared-runtime"],
)
def test_libraries_record_with_every_build_mode(build: Build, options: tuple[str, ...]) -> None:
    path = build("left", "right", options=options)
    kscope_cuda.arm(path)
    left, right = Unit(path, "left"), Unit(path, "right")
    with kscope.profile() as prof:
        left.run(1)
        right.run(2)
    assert counts(prof.trace) == {"block": 32, "step": 48, "twice": 48}
    assert set(prof.trace.kernels) == {"left_each<T = float>", "right_each<T = float>"}


def test_a_plain_library_is_refused(build: Build) -> None:
    with pytest.raises(UsageError, match="was not built with kscope"):
        kscope_cuda.arm(build("plain", options=(ARCH, "-UKSCOPE", "-DKSCOPE=0")))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_each_gpu_is_armed_once(build: Build) -> None:
    path = build("one")
    for ordinal in (0, 1):
        with torch.cuda.device(ordinal):
            kscope_cuda.arm(path)
    with kscope.profile() as prof:
        for ordinal in (0, 1):
            with torch.cuda.device(ordinal):
                Unit(path).run(1)
    assert [device.ordinal for device in prof.capture.devices if (device.lines != 0).any()] == [0, 1]
    assert counts(prof.trace) == {"block": 32, "step": 32, "twice": 32}


def test_the_demo_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kscope", "demo", "--on", "cuda", "-o", str(tmp_path / "demo.pftrace")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("mainloop", "load", "multiply", "store"))
