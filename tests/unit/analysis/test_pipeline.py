"""Pipelines in the simulator, which knows when copies land: what is found of them, and that seeded faults are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kscope
from kscope.analysis.pipelines.data import Pipelines, RingStats
from kscope.analysis.pipelines.phases import phases
from kscope.analysis.pipelines.stages import pipelines
from kscope.cli import main
from kscope_sim import Machine, Warp, launch

BYTES = 8192
MACHINE = Machine(2, 1)
Truth = dict[tuple[int, int], list[int]]


def never(warp: int, step: int) -> bool:
    return False


def pipe(
    warp: Warp, truth: Truth, steps: int, stages: int, latency: int, compute: int, late: int,
    forget: Callable[[int, int], bool], spread: int,
) -> None:  # fmt: skip
    """A producer and two consumers. late: cycles from a free buffer to its copy. forget: arrivals that are left out."""
    kscope.role("consumer" if warp.index else "producer")
    full = [warp.barrier(("full", stage), 1) for stage in range(stages)]
    empty = [warp.barrier(("empty", stage), 64) for stage in range(stages)]
    warp.sync()
    for step in range(steps):
        stage, parity = step % stages, step // stages & 1
        if warp.index == 0:
            empty[stage].wait(parity ^ 1)
            warp.work(late)
            with warp.where(1):
                full[stage].expect(BYTES)
                full[stage].copy(BYTES, latency + (warp.random.randrange(spread) if spread else 0))
        else:
            full[stage].wait(parity)
            warp.work(compute)
            if not forget(warp.index, step):
                empty[stage].arrive()
    truth.update({(warp.block[0], number): one.over for number, one in enumerate([*full, *empty])})


def recorded(blocks: int = 1, **shape: Any) -> tuple[kscope.Trace, Truth]:
    truth: Truth = {}
    given = {"steps": 24, "stages": 3, "latency": 900, "compute": 300, "late": 0, "forget": never, "spread": 0, **shape}
    with kscope.profile(auto="pipeline") as prof:
        launch(pipe, grid=blocks, block=96, args=(truth, *given.values()), machine=MACHINE)
    return prof.trace, truth


def filled(found: Pipelines) -> RingStats:
    """The ring at which copies complete."""
    (kernel,) = found.kernels
    (ring,) = [ring for ring in kernel.rings if ring.copies]
    return ring


def says(**shape: Any) -> str:
    """The findings."""
    (kernel,) = pipelines(recorded(**shape)[0]).kernels
    return "\n".join(kernel.findings)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_completions_of_the_simulator_are_inside_their_intervals(stages: int) -> None:
    trace, truth = recorded(blocks=3, stages=stages, spread=700)
    found = phases(trace)
    assert len(found) == 3 * 2 * 24
    assert not found.problems
    addresses = sorted(set(found.barrier.tolist()))
    for n in range(len(found)):
        row, number = int(found.row[n]), addresses.index(int(found.barrier[n]))
        over = truth[int(found.block[n]), number][int(found.number[n])]
        clock = MACHINE.clock64(int(trace.warps.sm[row]), over)
        behind = (clock - int(trace.warps.first_tick[row]) + (1 << 31)) % (1 << 32) - (1 << 31)
        ns = behind * trace.warps.tick_ns[row] + trace.warps.start_ns[row]
        assert found.issued_ns[n] <= ns + 1e-6
        assert ns <= found.landed_ns[n] + 1e-6


def test_a_completion_that_somebody_stood_still_for_is_exact_to_the_reading_of_a_clock() -> None:
    trace, _ = recorded(latency=900)
    found = phases(trace)
    copies = found.exact & (found.expected > 0)
    assert copies.sum() == 8, "of three copies that are issued together, the first"
    took = (found.landed_ns - found.first_ns)[copies] / trace.warps.tick_ns[0]
    assert (abs(took - 900) < 50).all()


def test_the_stages_that_are_needed_are_those_that_leave_no_wait() -> None:
    short = filled(pipelines(recorded(stages=3)[0]))
    assert short.stages == 3
    assert short.needed is not None
    assert short.needed > 3
    assert "too few stages" in says(stages=3)
    assert f"it has 3, and needs {short.needed}" in says(stages=3)
    assert says(stages=short.needed) == ""
    assert "too few stages" in says(stages=short.needed - 1)


def test_a_producer_that_issues_late_is_named() -> None:
    assert says(stages=6) == ""
    assert "the producer issues late" in says(stages=6, late=700)


def test_a_missing_arrive_is_named_with_its_warp() -> None:
    assert "missing arrive" not in says(stages=2)
    found = says(stages=2, forget=lambda warp, step: warp == 2 and step == 23)
    assert "missing arrive: phase 11 of barrier" in found
    assert "32 of 64 arrivals" in found
    assert "warp 2 (consumer) arrived in other phases and not in this one" in found


def test_bytes_that_no_copy_brings_are_named() -> None:
    def kernel(warp: Warp) -> None:
        barrier = warp.barrier("full", 1)
        with warp.where(1):
            barrier.expect(BYTES)
            barrier.copy(BYTES // 2, 100)

    with kscope.profile(auto="pipeline") as prof:
        launch(kernel, block=32)
    (kernel_found,) = pipelines(prof.trace).kernels
    assert "expects 8,192 bytes; its copies deliver 4,096" in kernel_found.findings[0]


def test_waits_are_split_at_the_issue_and_at_the_landing() -> None:
    ring = filled(pipelines(recorded(stages=3)[0]))
    (consumers,) = ring.waits
    assert consumers.role == "consumer"
    assert consumers.in_flight_ns > 0.9 * consumers.ns
    ring = filled(pipelines(recorded(stages=6, late=700)[0]))
    (consumers,) = ring.waits
    assert consumers.not_issued_ns > 0.05 * consumers.ns
    assert consumers.ns == pytest.approx(consumers.not_issued_ns + consumers.in_flight_ns + consumers.landed_ns)


def test_a_ring_has_its_bytes_and_its_stages_in_use() -> None:
    ring = filled(pipelines(recorded(stages=3)[0]))
    assert ring.bytes_per_phase == BYTES
    assert ring.phases == 24
    assert ring.gives_back == ""
    assert 2 < ring.in_flight < 3
    assert ring.in_flight < ring.in_use <= 3
    assert BYTES * 3 / 2000 < ring.bytes_per_cycle < BYTES * 3 / 900
    assert BYTES * 2 < ring.bytes_in_flight < BYTES * 3
    (kernel,) = pipelines(recorded(stages=3)[0]).kernels
    (back,) = [one for one in kernel.rings if not one.copies]
    assert back.gives_back == ring.name


def test_the_picture_draws_the_stages_and_the_warps_that_wait() -> None:
    (kernel,) = pipelines(recorded(stages=3)[0]).kernels
    stages = [line for line in kernel.picture if "0x" in line]
    assert len(stages) == 3
    assert all("=" in line and "#" in line for line in stages)
    assert sum("w" in line.partition("|")[2] for line in kernel.picture[1:]) == 2


def test_the_command_prints_the_findings_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pipe.kscope"
    with kscope.profile(str(file), auto="pipeline"):
        launch(pipe, block=96, args=({}, 24, 3, 900, 300, 0, never, 0))
    assert main(["pipeline", str(file)]) == 0
    text = capsys.readouterr().out
    assert "> too few stages" in text
    assert "stages needed, 3 used" in text
    assert main(["pipeline", str(file), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kernels"][0]["rings"][0]["barriers"]
    assert data["kernels"][0]["findings"]


def test_a_trace_without_such_records_says_how_to_record_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "tests/golden/warp_specialized.kscope"]) == 0
    assert "--kinds pipeline" in capsys.readouterr().out


def test_phases_of_a_filtered_trace_are_those_of_the_whole() -> None:
    trace, _ = recorded()
    assert np.array_equal(phases(trace.filter(warp=0)).landed_ns, phases(trace).landed_ns)
