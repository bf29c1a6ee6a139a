"""Groups of copies and products on the device, values of 64 bits, and where records of a CuTe GEMM go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import kscope
from kscope.analysis.pipelines.committed import slot_of
from kscope.analysis.pipelines.phases import phases
from kscope.analysis.pipelines.stages import pipelines

from .test_pipeline import ROOT, Table, example, hopper

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402  # after the check

pytestmark = [
    hopper,
    pytest.mark.filterwarnings("ignore:.*registers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.syspath_prepend(str(ROOT / "tests"))


@triton.jit
def product(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns, inner = tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * K + k + inner[None, :])
        y = tl.load(b + (k + inner[:, None]) * BN + columns[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * BN + columns[None, :], total)


def test_groups_of_a_pipelined_matmul_land_before_their_waits_end(table: Table) -> None:
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((512, 2048), (2048, 128)))
    c = torch.empty(512, 128, device="cuda")
    with kscope.profile(auto="pipeline", records=2048) as prof:
        product[(4,)](a, b, c, 2048, 128, 128, 64, num_warps=4, num_stages=3)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-2, atol=1e-1)
    found = phases(prof.trace)
    assert found.wait_known.all() and not found.problems
    groups = np.array([slot_of(barrier) is not None for barrier in found.barrier.tolist()])
    assert groups.any() and (found.issued_ns <= found.landed_ns)[groups].all()
    (kernel,) = pipelines(prof.trace).kernels
    rings = {ring.groups: ring for ring in kernel.rings if ring.groups}
    for name, ring in rings.items():
        table(
            f"groups: {name}",
            f"{ring.phases:,} phases, {ring.stages} in flight, {ring.exact} exact, latency {ring.latency_ns}, "
            f"{ring.bytes_per_phase:,.0f} bytes, needs {ring.needed}",
        )
    assert "cp.async" in rings


@triton.jit
def wide(out, n, x):
    big = n.to(tl.int64) << 33
    with kscope.region("n", value=big + 1):
        tl.store(out, n)
    kscope.instant("small", n.to(tl.int64) - 9)
    kscope.instant("f", x.to(tl.float64) / 3)
    kscope.instant("address", out)
    kscope.begin("key", big)
    kscope.end("key", key=big)


def test_values_of_64_bits_are_exact() -> None:
    out = torch.zeros(4, device="cuda", dtype=torch.int32)
    with kscope.profile() as prof:
        wide[(2,)](out, 7, 1.0, num_warps=1)

    def of(name: str) -> Any:
        return prof.trace.filter(region=name)

    assert [of("n").integers.number(at) for at in range(2)] == [(7 << 33) + 1] * 2
    assert of("small").value.tolist() == [-2.0] * 2
    assert of("f").value.tolist() == [1.0 / 3] * 2
    assert [of("address").integers.number(at) for at in range(2)] == [out.data_ptr()] * 2
    assert of("key").value.tolist() == [float(7 << 33)] * 2
    assert not [one for one in prof.trace.problems if one.kind in ("unpaired", "half")]


def test_where_the_records_of_a_whole_cute_grid_go(table: Table) -> None:
    """Every lane that arrives claims a buffer; with large ones the pool is full, which must be what is reported."""
    pytest.importorskip("cutlass")
    one = example("cute_gemm")
    from cutlass.cute.runtime import from_dlpack

    a, b = (torch.randn(2048, 2048, device="cuda", dtype=torch.float16) for _ in range(2))
    tensors = [from_dlpack(tensor, assumed_align=16) for tensor in (a, b, torch.empty_like(a))]
    blocks = torch.cuda.get_device_properties(0).multi_processor_count // one.PAIR * one.PAIR
    stream = one.driver.CUstream(torch.cuda.current_stream().cuda_stream)
    for records, pool in ((8192, None), (512, None), ("auto", None), ("auto", 8 << 30)):
        options: dict[str, Any] = {"records": records} | ({} if pool is None else {"pool": pool})
        with kscope.profile(auto="pipeline", **options) as prof:
            for _ in range(1 if records != "auto" else 4):  # sizes grow from launch to launch
                one.matmul(*tensors, blocks, stream)
        found, trace = phases(prof.trace), prof.trace
        kinds = Counter({problem.kind: problem.count for problem in trace.problems})
        known = f"{int(found.wait_known.sum()):,} of {len(found.wait_known):,} waits known"
        most = int(np.max(trace.warps.written, initial=0))
        table(f"CuTe, whole grid, records={records}, pool={pool}", f"{known}; {dict(kinds)}; most {most:,} per warp")
        missing = (trace.warps.written > trace.warps.records).any() or kinds["lost"] or kinds["refused"]
        assert missing or found.wait_known.all(), "unknown waits without missing records"
