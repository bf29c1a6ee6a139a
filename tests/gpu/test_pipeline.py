"""auto="pipeline" on the device: edges that are found equal those that are written by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import edges
import numpy as np
import pytest

import kscope
from kscope.analysis.pipelines.phases import Phases, phases
from kscope.analysis.pipelines.stages import pipelines

from .checks import ROOT

torch = pytest.importorskip("torch")
Table = Callable[[str, str], None]
hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="needs an sm_90 GPU"
)
pytestmark = [
    hopper,
    pytest.mark.filterwarnings("ignore:.*registers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # CuTe's, of names that 4.4 still needs
]

PLACEMENTS = ["fence", "schedule"]


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.syspath_prepend(str(ROOT / "tests"))


def example(name: str) -> Any:
    sys.modules.pop(name, None)
    return import_module(name)


def report(found: Phases, table: Table, name: str) -> None:
    known = f"{int(found.wait_known.sum()):,} of {len(found.wait_known):,} waits"
    exact = f"{found.exact.mean():.0%} exact" if len(found) else ""
    table(f"pipeline: {name}", f"{len(found):,} phases, {known} known, {exact}; {[one.text for one in found.problems]}")


def placed(trace: kscope.Trace) -> None:
    """No kernel was recorded with another placement than the one that was chosen."""
    assert not [one.text for one in trace.problems if one.kind == "placement"]


def whole(found: Phases) -> None:
    """Every phase is complete, every wait is known, and every interval is one."""
    assert not found.problems
    assert found.wait_known.all()
    assert (found.issued_ns <= found.landed_ns).all()
    assert (found.arrived <= found.needed).all()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_gluon_matmul_has_the_edges_of_its_example(table: Table, placement: str) -> None:
    one = example("gluon_warp_specialized")
    a, b = (torch.randn(one.SIZE, one.SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    tiles = ((a, [one.BM, one.BK]), (b, [one.BK, one.BN]), (c, [one.BM, one.BN]))
    described = [
        one.TensorDescriptor.from_tensor(matrix, shape, one.gl.NVMMASharedLayout.get_default_for(shape, one.gl.float16))
        for matrix, shape in tiles
    ]
    grid = (one.SIZE // one.BM, one.SIZE // one.BN)
    with kscope.profile(auto="pipeline", placement=placement) as prof:
        one.matmul[grid](*described, one.SIZE, one.BK, one.STAGES, num_warps=4)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    placed(prof.trace)
    found = phases(prof.trace)
    report(found, table, f"Gluon, {placement}")
    whole(found)
    steps = one.SIZE // one.BK
    blocks = grid[0] * grid[1]
    ready = edges.compare(prof.trace, "ask", "wait_ready")
    assert (ready.waits, ready.unknown, ready.wrong) == (blocks * steps * 4, 0, ())
    empty = edges.compare(prof.trace, "multiply", "wait_empty", one.STAGES)
    assert (empty.waits, empty.first, empty.unknown, empty.wrong) == (blocks * steps, blocks * one.STAGES, 0, ())
    print(pipelines(prof.trace).text(120))


def test_a_cute_gemm_in_clusters_has_the_edges_of_its_example(table: Table) -> None:
    pytest.importorskip("cutlass")
    one = example("cute_gemm")
    from cutlass.cute.runtime import from_dlpack

    a, b = (torch.randn(2048, 2048, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    tensors = [from_dlpack(tensor, assumed_align=16) for tensor in (a, b, c)]
    blocks = torch.cuda.get_device_properties(0).multi_processor_count // one.PAIR * one.PAIR
    stream = one.driver.CUstream(torch.cuda.current_stream().cuda_stream)
    # four blocks: of the whole grid records are missing, which leaves nearly all phases unknown
    with kscope.profile(auto="pipeline", records=8192, block="0:4") as prof:
        one.matmul(*tensors, blocks, stream)
    torch.testing.assert_close(c, a @ b.T, rtol=1e-2, atol=1e-1)
    found = phases(prof.trace)
    report(found, table, "CuTe DSL")
    assert found.wait_known.all()
    ready = edges.compare(prof.trace, "ask", "wait_ready", behind=(-1, 0))
    empty = edges.compare(prof.trace, "multiply", "wait_empty", one.STAGES, behind=(0, 1))
    table("pipeline: CuTe DSL, edges", f"{ready.waits:,} ready, {len(ready.wrong)} wrong {ready.wrong[:2]}; "
          f"{empty.waits:,} empty, {len(empty.wrong)} wrong {empty.wrong[:2]}")  # fmt: skip
    assert not ready.wrong
    assert not empty.wrong


def test_cuda_cpp_with_tma_has_the_edges_of_its_example(table: Table) -> None:
    cupy = pytest.importorskip("cupy")
    source = (
        (ROOT / "examples" / "cuda_tma.cu").read_text().partition("// The scalar product of two vectors in host")[0]
    )
    with kscope.profile(auto="pipeline", records=4096) as prof:
        kernel = cupy.RawModule(code=source, options=("-std=c++17",), name_expressions=("product",)).get_function(
            "product"
        )
        left, right = cupy.random.random((2, 1 << 22), dtype=cupy.float32)
        out = cupy.zeros(1, cupy.float32)
        kernel((264,), (288,), (left, right, out, np.int32(left.size // 1024)))
    cupy.testing.assert_allclose(out[0], left @ right, rtol=1e-3)
    found = phases(prof.trace)
    report(found, table, "CUDA C++")
    whole(found)
    ready = edges.compare(prof.trace, "ask", "wait")
    room = edges.compare(prof.trace, "multiply", "room", 4)
    assert ready.waits == 8 * left.size // 1024
    assert (ready.unknown, ready.wrong, room.unknown, room.wrong) == (0, (), 0, ())
    assert (found.copied[found.copies > 0] == 8192).all()


@pytest.mark.filterwarnings("ignore:.*under a predicate is not recorded")
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("apart", [False, True], ids=["persistent", "warp-specialized"])
def test_a_persistent_triton_matmul_has_a_phase_per_step(table: Table, apart: bool, placement: str) -> None:
    import triton

    from .pipeline_kernels import TILES, multiply

    if apart and placement == "schedule" and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
        pytest.skip("Triton 3.6 leaves no uniform registers in its machine code")
    size = 2048
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    triton.set_allocator(lambda bytes, align, stream: torch.empty(bytes, dtype=torch.int8, device="cuda"))
    warps = 4 if apart else 8
    with kscope.profile(auto="pipeline", records=8192, placement=placement) as prof:
        multiply[(132,)](a, b, c, size, size, size, **TILES, APART=apart, num_warps=warps, num_stages=3)
    torch.testing.assert_close(c, a @ b.T, rtol=1e-2, atol=1e-1)
    placed(prof.trace)
    found = phases(prof.trace)
    report(found, table, f"Triton{', warp-specialized' if apart else ''}, {placement}")
    whole(found)
    tiles, steps = (size // TILES["BM"]) * (size // TILES["BN"]), size // TILES["BK"]
    bytes = int(found.expected.sum())
    assert bytes == tiles * steps * (TILES["BM"] + TILES["BN"]) * TILES["BK"] * 2
    print(pipelines(prof.trace).text(120))
