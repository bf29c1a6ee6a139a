"""CuTe DSL on a device: every way to launch a kernel, every state, caches, graphs, and the GEMM's regions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

cutlass = pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl: pip install '.[cute]' in a checkout")

torch = pytest.importorskip("torch", reason="needs PyTorch")

from cuda.bindings import driver  # noqa: E402
from cutlass import cute  # noqa: E402
from cutlass.cute import runtime  # noqa: E402
from cutlass.cute.runtime import from_dlpack, load_module  # noqa: E402

import kscope  # noqa: E402
from kscope.trace import Trace  # noqa: E402

from .checks import doubts, run  # noqa: E402
from .cute_kernels import BLOCKS, THREADS, launch  # noqa: E402

STEPS = 5
RECORDS = BLOCKS * (THREADS // 32) * (STEPS + 1)
FFI = "--enable-tvm-ffi"
Call = Callable[[], object]


class Job:
    """A tensor, and the ways to count it up."""

    def __init__(self) -> None:
        self.x = torch.zeros(BLOCKS * THREADS, device="cuda")
        self.tensor, self.n = from_dlpack(self.x), cutlass.Int32(STEPS)

    @property
    def stream(self) -> int:
        return int(torch.cuda.current_stream().cuda_stream)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.tensor, self.n, driver.CUstream(self.stream)

    def compile(self, options: str = "") -> Any:
        return cute.compile(launch, *self.arguments, options=options)

    def check(self, launches: int) -> None:
        torch.cuda.synchronize()
        assert (self.x == launches * STEPS).all()


@pytest.fixture
def job() -> Job:
    return Job()


def full(trace: Trace, launches: int = 1) -> None:
    """The trace is complete and has no problems."""
    assert not doubts(trace)
    assert len(trace) == launches * RECORDS
    names = Counter(trace.region_names()[region] for region in trace.region.tolist())
    assert names == {"all": launches * RECORDS // (STEPS + 1), "step": launches * RECORDS * STEPS // (STEPS + 1)}


def test_a_direct_call_records(job: Job) -> None:
    with kscope.profile() as prof:
        launch(*job.arguments)
        launch(*job.arguments)
        job.check(2)
    full(prof.trace, 2)


def test_states_change_in_one_process(job: Job) -> None:
    launch(*job.arguments)
    with kscope.profile() as prof:
        launch(*job.arguments)
    full(prof.trace)
    launch(*job.arguments)
    with kscope.profile(clock="globaltimer", strategy=kscope.AllThreads()) as other:
        launch(*job.arguments)
    assert len(other.trace) == 32 * RECORDS
    job.check(4)


def test_an_object_compiled_before_is_named(job: Job) -> None:
    compiled = job.compile()
    with kscope.profile() as prof:
        compiled(*job.arguments)
    job.check(1)
    assert any("count_up" in problem.text and problem.kind == "plain" for problem in prof.trace.problems)


def compiled(job: Job, folder: Path) -> Call:
    """An object that `cute.compile` made."""
    made = job.compile()
    return lambda: made(*job.arguments)


def exported(job: Job, folder: Path) -> Call:
    """A loaded object file. Its function is looked up once: each look-up loads the kernels again, and unloads them
    with the returned function, even if a graph has captured them."""
    job.compile().export_to_c(str(folder), "made", function_prefix="made")
    made = load_module(str(folder / "made.o")).made
    return lambda: made(*job.arguments)


def tvm_ffi(job: Job, folder: Path) -> Call:
    """A TVM-FFI function, which loads its own library."""
    made = job.compile(FFI)
    return lambda: made(job.x, STEPS, job.stream)


def exported_for_tvm_ffi(job: Job, folder: Path) -> Call:
    """The same as an object file, loaded."""
    job.compile(FFI).export_to_c(str(folder / "made.o"), function_name="made")
    loaded = load_module(str(folder / "made.o"), enable_tvm_ffi=True)
    made = loaded.made
    return lambda: made(job.x, STEPS, job.stream)


@pytest.fixture(params=[compiled, exported, tvm_ffi, exported_for_tvm_ffi], ids=lambda way: way.__name__)
def call(request: pytest.FixtureRequest, job: Job, tmp_path: Path) -> Call:
    """Every kind of precompiled object, compiled while recording is enabled, as a function that launches it once."""
    if "tvm_ffi" in request.param.__name__:
        pytest.importorskip("tvm_ffi")
    kscope.enable()
    found: Call = request.param(job, tmp_path)
    return found


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to link with")
def test_shared_libraries_not_loaded_by_cute_record_after_bind(job: Job, tmp_path: Path) -> None:
    ffi = pytest.importorskip("tvm_ffi")
    path = tmp_path / "made.so"
    kscope.enable()
    job.compile(FFI).export_to_c(str(tmp_path / "made.o"), function_name="made")
    kscope.disable()
    libraries = runtime.find_runtime_libraries(enable_tvm_ffi=True)
    found = [f"-Wl,-rpath,{Path(library).parent}" for library in libraries]
    subprocess.run(["cc", "-shared", tmp_path / "made.o", *libraries, *found, "-o", path], check=True)
    made = ffi.load_module(str(path)).made
    with kscope.profile() as before:
        made(job.x, STEPS, job.stream)
        torch.cuda.synchronize()
    assert len(before.trace) == 0
    (name,) = kscope.bind(path)
    assert "count_up" in name
    with kscope.profile() as prof:
        made(job.x, STEPS, job.stream)
        job.check(2)
    full(prof.trace)


def test_precompiled_kernels_switch_recording_on_and_off(job: Job, call: Call) -> None:
    def launch_and_wait() -> None:
        call()
        torch.cuda.synchronize()

    launch_and_wait()
    for _ in range(2):
        with kscope.profile() as prof:
            launch_and_wait()
            with prof.paused():
                launch_and_wait()
            launch_and_wait()
        full(prof.trace, 2)
        launch_and_wait()
    kscope.disable()
    launch_and_wait()  # at rest
    job.check(10)


def test_a_graph_of_precompiled_kernels_replays(job: Job, call: Call) -> None:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for replays in (3, 2):
        graph.replay()
        torch.cuda.synchronize()
        with kscope.profile() as prof:
            for _ in range(replays):
                graph.replay()
            torch.cuda.synchronize()
        full(prof.trace, replays)
    job.check(8)


PROCESS = """
import sys, torch, kscope, cutlass
from cuda.bindings import driver
from cutlass.cute.runtime import from_dlpack
from gpu.cute_kernels import BLOCKS, THREADS, launch
x = torch.zeros(BLOCKS * THREADS, device="cuda")
if sys.argv[1] == "on":
    kscope.enable()
    with kscope.profile() as prof:
        launch(from_dlpack(x), cutlass.Int32(5), driver.CUstream(torch.cuda.current_stream().cuda_stream))
    from gpu.checks import doubts
    print(len(prof.trace), doubts(prof.trace))
else:
    launch(from_dlpack(x), cutlass.Int32(5), driver.CUstream(torch.cuda.current_stream().cuda_stream))
    torch.cuda.synchronize()
    print(int(x.sum()))
"""


def test_the_disk_cache_keeps_the_states_apart(tmp_path: Path) -> None:
    def process(state: str) -> str:
        done = run([sys.executable, "-c", PROCESS, state], CUTE_DSL_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().splitlines()[-1]

    plain, recorded = str(BLOCKS * THREADS * STEPS), f"{RECORDS} []"
    assert [process(state) for state in ("off", "on", "off", "on")] == [plain, recorded, plain, recorded]


@pytest.mark.filterwarnings(
    "ignore:cutlass.*deprecated:DeprecationWarning"
)  # 4.4 lacks the replacement that its warning names
def test_producer_and_consumers_of_the_gemm_are_roles(
    table: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    gemm: Any = import_module("cute_gemm")
    size = 2048
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    arguments = [from_dlpack(tensor, assumed_align=16) for tensor in (a, b, c)]
    with kscope.profile(records=1024) as prof:
        gemm.matmul(*arguments, blocks, driver.CUstream(torch.cuda.current_stream().cuda_stream))
    torch.testing.assert_close(c, a @ b.T, rtol=1e-2, atol=1e-1)
    trace = prof.trace
    assert not doubts(trace)
    names = trace.region_names()
    roles: dict[str, set[int]] = {}
    for region, track in zip(trace.region.tolist(), trace.track.tolist(), strict=True):
        roles.setdefault(names[region], set()).add(int(trace.warps.warp[track]))
    assert roles["producer"] == roles["ask"] == {0}
    assert roles["consumer"] == roles["multiply"] == set(range(4, 12))
    of = np.array(names)[trace.region]
    for region in ("wait_empty", "ask", "wait_ready", "multiply"):
        table(f"CuTe GEMM {size}: {region}", f"mean {trace.dur_ns[of == region].mean():.0f} ns")
