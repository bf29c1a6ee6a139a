"""Shares of regions by clocks and by samples on a GPU: kernels in Triton and CuTe DSL, all of whose warps record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kscope
from kscope.analysis.samples.crosscheck import Crosscheck

Table = Callable[[str, str], None]
LAUNCHES = 20


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("bench", "examples"):
        monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / folder))


def compared(
    name: str, launch: Callable[[], Any], table: Table, launches: int = LAUNCHES, **options: Any
) -> Crosscheck:
    """The crosscheck of a few launches, in the table, too."""
    with kscope.profile(stalls=True, pool=2 << 30, **options) as prof:
        for _ in range(launches):
            launch()
    found: Crosscheck = prof.trace.crosscheck()
    assert found.rows and not found.problems, (found.problems, [one.text for one in prof.trace.problems])
    for row in found.rows:
        shares = f"{row.clocks:.2%}, {row.samples:.2%} +- {row.margin:.2%}, {row.verdict}"
        table(f"{name}, {row.region}: by clocks, by samples", shares)
    return found


def apart(found: Crosscheck, most: float = 0.01) -> dict[str, float]:
    """Regions whose shares differ by more."""
    return {row.region: row.samples - row.clocks for row in found.rows if abs(row.clocks - row.samples) > most}


@pytest.mark.parametrize("name", ["matmul", "persistent", "attention", "layernorm"])
def test_shares_of_triton_kernels_agree_within_a_point(name: str, table: Table, examples: None) -> None:
    pytest.importorskip("triton")
    import on_triton

    [work] = on_triton.workloads([name]).values()
    short = {"period": 1 << 7} if name == "layernorm" else {}  # its warps live for 9 us, in step with each other
    found = compared(name, partial(work.launch, name, on_triton.annotated(name, False), 0), table, **short)
    assert apart(found) == {}


@pytest.mark.filterwarnings("ignore:.*LayoutEnum is deprecated:DeprecationWarning")
def test_shares_of_a_warp_specialized_matmul_in_cute_agree_within_a_point(table: Table, examples: None) -> None:
    pytest.importorskip("cutlass")
    import cute_gemm
    import torch
    from cuda.bindings import driver
    from cutlass.cute.runtime import from_dlpack

    size = cute_gemm.SIZE
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    tensors = [from_dlpack(one, assumed_align=16) for one in (a, b, torch.empty_like(a))]
    blocks = torch.cuda.get_device_properties(0).multi_processor_count // cute_gemm.PAIR * cute_gemm.PAIR
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    launch = partial(cute_gemm.matmul, *tensors, blocks, stream)
    found = compared("CuTe matmul", launch, table, 10, records=1024)
    assert {"wait_empty", "ask", "wait_ready", "multiply", "store"} <= {row.region for row in found.rows}
    assert apart(found) == {}
