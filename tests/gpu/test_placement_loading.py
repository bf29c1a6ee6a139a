"""Kernels of placement="schedule" have the address of their context's control block in the code that is loaded: in
every session, in graphs, and on every GPU.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from control_addresses import addresses

import kscope
from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.sass.encoding import forms

from .checks import doubts, python, sync

BLOCKS, WARPS, SIZE = 100, 4, 1024
RECORDS = 2 * BLOCKS * WARPS
"""Of a launch."""
pytestmark = pytest.mark.filterwarnings("ignore:(?s)kscope.*never ran on a device:UserWarning")


class Launched:
    """The kernel on the current device."""

    def __init__(self) -> None:
        import torch

        self.a = torch.arange(BLOCKS * SIZE, device="cuda", dtype=torch.float32)
        self.out = torch.zeros_like(self.a)

    def __call__(self) -> Any:
        from .kernels import doubled

        return doubled[(BLOCKS,)](self.a, self.out, SIZE, num_warps=WARPS)

    def is_right(self) -> bool:
        import torch

        sync()
        found = bool(torch.equal(self.out, self.a * 2))
        self.out.zero_()
        return found


@pytest.fixture
def launch() -> Launched:
    import torch

    major, minor = torch.cuda.get_device_capability()
    if not forms.has_forms(10 * major + minor):
        pytest.skip("its encodings are not known")
    return Launched()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The code of kernels, as it is loaded."""
    from .kernels import doubled

    backend, found = registry.backend("cuda"), list[bytes]()
    real = backend.patched

    def kept(cubin: bytes, ordinal: int = 0) -> bytes:
        found.append(real(cubin, ordinal))
        return found[-1]

    monkeypatch.setattr(backend, "patched", kept)
    doubled.device_caches.clear()
    return found


def recorded(prof: Any) -> int:
    """The number of records, all of them from machine code, of which none was lost."""
    assert not [one for one in doubts(prof.trace) if one.startswith(("placement", "metadata", "lost", "driver"))]
    return len(prof.trace)


def test_what_is_loaded_has_the_address_and_what_is_kept_has_none(launch: Launched, loaded: list[bytes]) -> None:
    with kscope.profile(placement="schedule") as prof:
        kernel = launch()
        assert launch.is_right()
    assert recorded(prof) == RECORDS
    (address,) = {one for cubin in loaded for one in addresses(cubin)}
    assert address >> 32
    assert addresses(kernel.asm["cubin"]) == [0]


def test_a_loaded_kernel_records_in_each_session(launch: Launched, loaded: list[bytes]) -> None:
    for times in (1, 3, 2):
        with kscope.profile(placement="schedule") as prof:
            for _ in range(times):
                launch()
                assert launch.is_right()
        launch()
        assert launch.is_right()
        assert recorded(prof) == times * RECORDS
    assert sum(map(bool, map(addresses, loaded))) == 1


def test_a_graph_records_in_sessions_alone(launch: Launched) -> None:
    import torch

    with kscope.profile(placement="schedule") as first:
        launch()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        for _ in range(2):
            graph.replay()
        assert launch.is_right()
    assert recorded(first) == 3 * RECORDS
    for times in (3, 5):
        for _ in range(2):
            graph.replay()
            assert launch.is_right()
        with kscope.profile(placement="schedule") as prof:
            for _ in range(times):
                graph.replay()
                assert launch.is_right()
        graph.replay()
        assert launch.is_right()
        assert recorded(prof) == times * RECORDS


def test_a_graph_that_was_captured_at_rest_records_in_a_session(launch: Launched) -> None:
    import torch

    kscope.enable(placement="schedule")
    launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    graph.replay()
    assert launch.is_right()
    with kscope.profile(placement="schedule") as prof:
        for _ in range(3):
            graph.replay()
        assert launch.is_right()
    assert recorded(prof) == 3 * RECORDS


def test_a_thread_without_a_context_may_load_it_first(launch: Launched, loaded: list[bytes]) -> None:
    with kscope.profile(placement="schedule") as prof:
        thread = threading.Thread(target=launch)
        thread.start()
        thread.join()
        assert launch.is_right()
    assert recorded(prof) == RECORDS
    assert any(map(addresses, loaded))


def test_a_copy_that_something_else_has_loaded_is_refused(launch: Launched) -> None:
    from cuda.bindings import driver

    with kscope.profile(placement="schedule"):
        kernel = launch()
        sync()
    status, module = driver.cuModuleLoadData(kernel.asm["cubin"])
    assert int(status) == 0
    with pytest.raises(UsageError, match="was not loaded by the frontend"):
        kscope.bind(module)


DOUBLED = r"""
extern "C" __global__ void doubled(const float* a, float* out) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    float x;
    { KSCOPE_REGION("load"); x = a[at]; }
    KSCOPE_REGION("store");
    out[at] = 2 * x;
}
"""
"""Two records a warp."""


def test_a_kernel_of_cupy_records_in_each_session(launch: Launched) -> None:
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(DOUBLED, "doubled", options=("-I" + kscope.cuda_include(),))
    a = cupy.arange(BLOCKS * 32 * WARPS, dtype=cupy.float32)
    out = cupy.zeros_like(a)
    for times in (1, 3):
        with kscope.profile(placement="schedule") as prof:
            for _ in range(times):
                kernel((BLOCKS,), (32 * WARPS,), (a, out))
            cupy.cuda.Device().synchronize()
        assert bool((out == 2 * a).all())
        assert recorded(prof) == times * RECORDS


@pytest.mark.usefixtures("two_gpus")
def test_each_gpu_has_an_address_of_its_own(launch: Launched, loaded: list[bytes]) -> None:
    import torch

    launches = {0: launch}
    with torch.cuda.device(1):
        launches[1] = Launched()
    for times in (2, 1):
        with kscope.profile(placement="schedule") as prof:
            for device, one in launches.items():
                with torch.cuda.device(device):
                    for _ in range(times + device):
                        one()
                    assert one.is_right()
        assert recorded(prof) == (2 * times + 1) * RECORDS
        for device in launches:
            assert len(prof.trace.filter(device=device)) == (times + device) * RECORDS
    found = [one for cubin in loaded for one in addresses(cubin)]
    assert len(found) == len(set(found)) == 2


PROGRAM = """
from gpu.test_placement_loading import RECORDS, Launched, addresses
from kscope.instrument import registry
backend, found = registry.backend("cuda"), []
real = backend.patched
backend.patched = lambda cubin, ordinal=0: found.append(real(cubin, ordinal)) or found[-1]
hold = torch.zeros(int(sys.argv[1]), device="cuda")
launch = Launched()
with kscope.profile(placement="schedule") as prof:
    kernel = launch()
    assert launch.is_right()
assert len(prof.trace) == RECORDS, len(prof.trace)
assert addresses(kernel.asm["cubin"]) == [0]
assert len([one for cubin in found for one in addresses(cubin) if one >> 32]) == 1
"""


def test_processes_share_a_cache(launch: Launched, tmp_path: Any) -> None:
    for size in (1, 1 << 24):
        done = python(PROGRAM, size, TRITON_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("*.cubin"))) == 1
