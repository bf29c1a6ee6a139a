"""Selected lines and kinds of statements of unannotated CUDA C++ and Numba kernels on a GPU: complete records and
unchanged results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kscope

from .checks import doubts

Table = Callable[[str, str], None]
Launch = Callable[[], Any]
SIZE, TILE = 256, 16
LIMIT = 5
"""The turn in which `leaves` ends."""
GRID, BLOCK = (SIZE // TILE, SIZE // TILE), (TILE, TILE)
BLOCKS, WARPS, TURNS = (SIZE // TILE) ** 2, TILE * TILE // 32, SIZE // TILE


class Kernels:
    """product() and leaves(): a launch each, which returns its result as numpy has it. text: where they are written;
    begin: how a definition begins there."""

    def __init__(self, product: Launch, leaves: Launch, text: ModuleType, begin: str) -> None:
        self.product, self.leaves, self._begin = product, leaves, begin
        self._file = Path(text.__file__ or "")

    def lines(self, kernel: str, first: str | tuple[str, ...], last: str) -> str:
        """FILE:FIRST-LAST of the statements of a kernel that begin like this."""
        rows = [row.strip() for row in self._file.read_text().splitlines()]
        start = next(number for number, row in enumerate(rows) if row.startswith(f"{self._begin}{kernel}("))
        found = [
            next(number for number, row in enumerate(rows[start:], start + 1) if row.startswith(text))
            for text in (first, last)
        ]
        return f"{self._file.name}:{found[0]}-{found[1]}"


def matrices() -> list[Any]:
    random = np.random.default_rng(1)
    return [random.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2)]


def of_cupy() -> Kernels:
    cupy = pytest.importorskip("cupy")
    from . import selected_kernels

    a, b = map(cupy.asarray, matrices())
    out, totals = cupy.zeros_like(a), cupy.zeros(8, np.int32)

    def product() -> Any:
        out[:] = 0
        cupy.RawModule(code=selected_kernels.SOURCE).get_function("product")(GRID, BLOCK, (a, b, out, np.int32(SIZE)))
        return cupy.asnumpy(out)

    def leaves() -> Any:
        totals[:] = 0
        cupy.RawModule(code=selected_kernels.SOURCE).get_function("leaves")((8,), (64,), (totals, np.int32(9)))
        return cupy.asnumpy(totals)

    return Kernels(product, leaves, selected_kernels, 'extern "C" __global__ void ')


def of_numba() -> Kernels:
    cuda = pytest.importorskip("contract.frontend_numba", exc_type=ImportError).cuda
    from . import selected_numba

    a, b = map(cuda.to_device, matrices())

    def product() -> Any:
        out = cuda.to_device(np.zeros((SIZE, SIZE), np.float32))
        selected_numba.product[GRID, BLOCK](a, b, out, SIZE)
        return out.copy_to_host()

    def leaves() -> Any:
        totals = cuda.to_device(np.zeros(8, np.int64))
        selected_numba.leaves[8, 64](totals, 9)
        return totals.copy_to_host()

    return Kernels(product, leaves, selected_numba, "def ")


@pytest.fixture(params=[of_cupy, of_numba])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    made: Kernels = request.param()
    return made


def counted(trace: kscope.Trace) -> Counter[str]:
    """Records by region."""
    names = trace.region_names()
    return Counter(names[region] for region in trace.region.tolist())


def test_lines_of_a_product_record_and_its_result_is_unchanged(kernels: Kernels) -> None:
    plain = kernels.product()
    loads, multiply = (
        kernels.lines("product", "left[", "right["),
        kernels.lines("product", ("for i", "for (int i"), "total +="),
    )
    with kscope.profile(mark={"loads": loads, "multiply": multiply}) as prof:
        marked = kernels.product()
    assert not doubts(prof.trace)
    assert counted(prof.trace) == {"loads": BLOCKS * WARPS * TURNS, "multiply": BLOCKS * WARPS * TURNS}
    assert np.array_equal(plain, marked)
    assert np.array_equal(kernels.product(), plain)


def test_jumps_out_of_the_lines_end_the_region(kernels: Kernels) -> None:
    plain = kernels.leaves()
    with kscope.profile(mark={"body": kernels.lines("leaves", "if", "total += k")}) as prof:
        assert np.array_equal(kernels.leaves(), plain)
    assert not doubts(prof.trace)
    assert counted(prof.trace) == {"body": 8 * 2 * (LIMIT + 1)}
    assert plain.tolist() == [sum(k for k in range(LIMIT) if k != 2)] * 8


def test_kinds_of_statements_record(kernels: Kernels, table: Table) -> None:
    plain = kernels.product()
    with kscope.profile(auto="loop,barrier,store", kernel="product") as prof:
        assert np.array_equal(kernels.product(), plain)
    assert not doubts(prof.trace)
    found: Counter[str] = Counter()
    for name, count in counted(prof.trace).items():
        found[name.split()[0]] += count
    lanes = BLOCKS * WARPS
    seen = [(kernel.name, len(module.regions)) for module in prof.capture.modules for kernel in module.kernels]
    units = [len(device.lines) for device in prof.capture.devices]
    assert found == {"barrier": 2 * lanes * TURNS, "store": lanes, "loop": lanes * (1 + TURNS)}, (seen, units)
    table("an unannotated product, by kind", f"{len(prof.trace):,} records")


def test_kernels_matching_no_pattern_are_unchanged(kernels: Kernels) -> None:
    plain = kernels.product()
    with kscope.profile(auto=True, kernel="attn_*") as prof:
        assert np.array_equal(kernels.product(), plain)
    assert len(prof.trace) == 0
