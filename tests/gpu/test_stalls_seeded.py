"""Kernels whose regions do not contain their work: crosscheck names them, from samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from seeded_regions import DRIFTED, EMPTIED

import kscope
from kscope.analysis.samples.crosscheck import Crossed, crosscheck

cupy = pytest.importorskip("cupy")
Table = Callable[[str, str], None]

BLOCKS, THREADS, TURNS, LAUNCHES = 264, 256, 256, 25


def crossed(source: str, name: str, table: Table) -> dict[str, Crossed]:
    """A kernel's regions by clocks and by samples."""
    kernel = cupy.RawKernel(source, name, ("-I" + kscope.cuda_include(), "-lineinfo"))
    index = cupy.arange(1 << 20, dtype=cupy.uint32)
    chain = ((index * 1103515245 + 12345) & 0xFFFFF).astype(cupy.int32)
    out = cupy.zeros(BLOCKS * THREADS, cupy.float32)
    with kscope.profile(stalls=True, pool=256 << 20) as prof:
        for _ in range(LAUNCHES):
            kernel((BLOCKS,), (THREADS,), (chain, out, TURNS))
        cupy.cuda.Device().synchronize()
    samples = prof.trace.samples
    assert samples is not None, [problem.text for problem in prof.trace.problems]
    rows = crosscheck(prof.trace, samples).rows
    for row in rows:
        table(f"{name}, {row.region}", f"{row.clocks:.1%} by clocks, {row.samples:.1%} by samples: {row.verdict}")
    return {row.region: row for row in rows}


def test_arithmetic_that_drifted_is_named_in_both_regions(table: Table) -> None:
    found = crossed(DRIFTED, "drifted", table)
    assert {name: row.verdict for name, row in found.items()} == {"products": "moved", "rest": "moved"}
    assert any(" FFMA" in one for one in found["rest"].foreign)


def test_a_region_that_the_compiler_emptied_is_empty(table: Table) -> None:
    found = crossed(EMPTIED, "emptied", table)
    assert found["products"].verdict == "empty"
