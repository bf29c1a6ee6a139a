"""The analyses on a GPU: the cost of a region, compensation, the effect of marks."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kscope
from kscope.analysis.instructions import region_code
from kscope.analysis.trust.overhead import RegionCost, compensate, overheads
from kscope.analysis.trust.perturbation import perturbation
from kscope.instrument.registry import backend
from kscope.machine_code import disassembly, tools

ROUNDS, BLOCKS = 200, 132
Table = Callable[[str, str], None]


@pytest.fixture
def k() -> ModuleType:
    """The kernels' module, imported late because Triton may be missing."""
    from . import analysis_kernels

    return analysis_kernels


def floats() -> Any:
    import torch

    return torch.ones(BLOCKS, device="cuda")


def cost() -> RegionCost:
    cycles, inside = backend("cuda").region_cost()
    return RegionCost(cycles, min(inside, cycles))


def test_the_cost_of_a_region_is_measured_here(table: Table) -> None:
    found = cost()
    assert 1 <= found.inside <= found.cycles < 200
    table("a region", f"{found.cycles:.1f} cycles, {found.inside:g} of them in its duration")


def test_compensation_approaches_the_time_without_inner_marks(k: ModuleType, table: Table) -> None:
    outer: dict[bool, kscope.Trace] = {}
    for inner in (False, True):
        k.chained[(BLOCKS,)](floats(), ROUNDS, inner, num_warps=1)
        with kscope.profile(records=256) as prof:
            k.chained[(BLOCKS,)](floats(), ROUNDS, inner, num_warps=1)
        outer[inner] = prof.trace

    def cycles(trace: kscope.Trace) -> float:
        return statistics.median(trace.filter(region="outer").dur_cycles.tolist())

    without, within = cycles(outer[False]), cycles(outer[True])
    corrected = cycles(compensate(outer[True], cost()))
    reported = (
        f"{within:.0f} cycles with {ROUNDS} regions inside, {corrected:.0f} compensated, {without:.0f} without any"
    )
    table("compensation of a loop", reported)
    assert within > without
    assert abs(corrected - without) < within - without


def test_the_report_compares_builds_and_times_of_a_kernel(k: ModuleType, tmp_path: Path, table: Table) -> None:
    off, off_ns = _built(k, tmp_path / "off.cubin")
    with kscope.profile(records=256):
        on, on_ns = _built(k, tmp_path / "on.cubin")
    found = perturbation(off, on, threads=32, times_ns=(off_ns, on_ns))
    assert found.on.instructions > found.off.instructions > 64
    assert found.on.registers >= found.off.registers > 0
    assert found.off.arch == found.on.arch > 0
    registers = f"{found.off.registers} to {found.on.registers} registers"
    table("marks, recording", f"{registers}, {found.off.instructions} to {found.on.instructions} instructions, "
          f"time {found.slowdown or 0.0:+.1%}")  # fmt: skip


def test_instructions_of_the_recorded_build_are_joined_with_its_cycles(
    k: ModuleType, tmp_path: Path, table: Table
) -> None:
    cubin = tmp_path / "k.cubin"
    with kscope.profile() as prof:
        cubin.write_bytes(k.chained[(BLOCKS,)](floats(), ROUNDS, True, num_warps=1).asm["cubin"])
    found = region_code(prof.trace, disassembly.functions(tools.disassembly(cubin)), tools.builds(cubin))
    assert found.problems == ()
    [inner] = [row for row in found.regions if row.region == "inner"]
    assert inner.executions == BLOCKS * ROUNDS
    assert inner.straight
    assert (inner.least or 0) >= 32  # pure arithmetic may move across marks, most of it stays
    table("inner", f"{inner.text}, {inner.cycles:.0f} cycles, {inner.ipc_least:.2f} instructions per cycle")
    shares = {row.region: row.share for row in overheads(prof.trace, cost())}
    table("overhead of inner", f"{shares['inner']:.1%} of the lanes' time")


def _built(k: ModuleType, path: Path) -> tuple[Path, float]:
    """The kernel's cubin, and its median time in ns."""
    import torch

    out, times = floats(), []
    compiled = k.chained[(BLOCKS,)](out, ROUNDS, True, num_warps=1)
    path.write_bytes(compiled.asm["cubin"])
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        k.chained[(BLOCKS,)](out, ROUNDS, True, num_warps=1)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e6)
    return path, statistics.median(times)
