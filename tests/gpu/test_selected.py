"""Lines and kinds of statements of CUDA C++ and Numba kernels that nobody annotated, on a GPU.

They record what they must, and compute what they compute without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kscope

from . import selected_kernels as kernels
from .checks import doubts
from .selected_kernels import FILE, LIMIT, SIZE, TILE, line

Table = Callable[[str, str], None]
Launch = Callable[[], Any]
GRID, BLOCK = (SIZE // TILE, SIZE // TILE), (TILE, TILE)
BLOCKS, WARPS, TURNS = (SIZE // TILE) ** 2, TILE * TILE // 32, SIZE // TILE


@pytest.fixture(params=["cupy", "numba"])
def launches(request: pytest.FixtureRequest) -> tuple[Launch, Launch, str]:
    """product() and leaves(): a launch each, which returns its result as numpy has it; and how the kernels begin."""
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    if request.param == "cupy":
        cupy = pytest.importorskip("cupy")
        left, right, out, totals = cupy.asarray(a), cupy.asarray(b), cupy.zeros_like(a), cupy.zeros(8, np.int32)

        def product() -> Any:
            cupy.RawModule(code=kernels.SOURCE).get_function("product")(GRID, BLOCK, (left, right, out, np.int32(SIZE)))
            return cupy.asnumpy(out)

        def leaves() -> Any:
            cupy.RawModule(code=kernels.SOURCE).get_function("leaves")((8,), (64,), (totals, np.int32(9)))
            return cupy.asnumpy(totals)

        return product, leaves, 'extern "C" __global__'
    cuda = pytest.importorskip("contract.frontend_numba", exc_type=ImportError).cuda
    ours, early = kernels.numba_kernels()
    on = [cuda.to_device(one) for one in (a, b, np.zeros_like(a), np.zeros(8, np.int64))]

    def numba_product() -> Any:
        ours[GRID, BLOCK](on[0], on[1], on[2], SIZE)
        return on[2].copy_to_host()

    def numba_leaves() -> Any:
        early[8, 64](on[3], 9)
        return on[3].copy_to_host()

    return numba_product, numba_leaves, "def "


def counted(trace: kscope.Trace) -> Counter[str]:
    """Records by region."""
    names = trace.region_names()
    return Counter(names[region] for region in trace.region.tolist())


def place(name: str, first: str, last: str, after: str) -> str:
    return f"{name}={FILE}:{line(first, after)}-{line(last, after)}"


def test_lines_of_a_product_record_and_its_result_is_unchanged(launches: tuple[Launch, Launch, str]) -> None:
    product, _, head = launches
    after = f"{head}{' void product' if head.startswith('extern') else 'product'}"
    plain = product()
    loads = place("loads", "left[", "right[", after)
    multiply = place("multiply", "for (int i" if head.startswith("extern") else "for i", "total +=", after)
    with kscope.profile(regions=[loads, multiply]) as prof:
        marked = product()
    assert not doubts(prof.trace)
    assert counted(prof.trace) == {"loads": BLOCKS * WARPS * TURNS, "multiply": BLOCKS * WARPS * TURNS}
    assert np.array_equal(plain, marked)
    assert np.array_equal(product(), plain)


def test_jumps_out_of_the_lines_end_the_region(launches: tuple[Launch, Launch, str]) -> None:
    _, leaves, head = launches
    after = f"{head}{' void leaves' if head.startswith('extern') else 'leaves'}"
    plain = leaves()
    body = place("body", "if (k == 5)" if head.startswith("extern") else "if k == 5", "total += k", after)
    with kscope.profile(regions=body) as prof:
        assert np.array_equal(leaves(), plain)
    assert not doubts(prof.trace)
    assert counted(prof.trace) == {"body": 8 * 2 * (LIMIT + 1)}
    assert plain.tolist() == [sum(k for k in range(LIMIT) if k != 2)] * 8


def test_kinds_of_statements_record(launches: tuple[Launch, Launch, str], table: Table) -> None:
    product, _, _ = launches
    plain = product()
    with kscope.profile(auto="loop,barrier,store", kernels="product") as prof:
        assert np.array_equal(product(), plain)
    assert not doubts(prof.trace)
    found: Counter[str] = Counter()
    for name, count in counted(prof.trace).items():
        found[name.split()[0]] += count
    lanes = BLOCKS * WARPS
    assert found["barrier"] == 2 * lanes * TURNS and found["store"] == lanes
    assert found["loop"] == lanes * (1 + TURNS)
    table(f"unannotated product, {len(prof.trace)} records", ", ".join(sorted(found)))


def test_another_kernels_pattern_leaves_the_kernel_alone(launches: tuple[Launch, Launch, str]) -> None:
    product, _, _ = launches
    plain = product()
    with kscope.profile(auto=True, kernels="attn_*") as prof:
        assert np.array_equal(product(), plain)
    assert len(prof.trace) == 0
