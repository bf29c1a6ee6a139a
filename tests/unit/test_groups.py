"""Groups of cp.async, bulk copies and wgmma: what auto="pipeline" makes of commits and waits, against simulators that
know when each group had landed."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import pipelines
import pytest
from pipelines import Shape, ns
from ptxvm.mbarriers import Barriers
from ptxvm.profile import THOROUGH

import kscope
import kscope_sim
from kscope.analysis.idle import gaps
from kscope.analysis.pipelines.committed import label, slot_of
from kscope.analysis.pipelines.edges import with_phases
from kscope.analysis.pipelines.phases import NO_PHASE, phases
from kscope.analysis.pipelines.stages import pipelines as pipelines_of
from kscope.instrument.selection.auto import Selection
from kscope.lowering import pipeline
from kscope.marks import operations
from kscope.marks.grammar import parse

SEEDS = range(40 if THOROUGH else 6)
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry pipe(.param .u64 out)
{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x; mov.u32 %r4, 0; mov.u32 %r7, 0;
"""
COPY = "cp.async.ca.shared.global [%r7], [%rd1], 16;\n"
COMMIT, WAIT = "cp.async.commit_group;\n", "cp.async.wait_group {};\n"
Inside = list[tuple[float, float, float]]


def source(dice: Random, times: int = 6) -> str:
    """A random program of copies, commits and waits, in straight code and in a loop."""

    def some() -> str:
        kinds = [
            COPY,
            COPY,
            COMMIT,
            COMMIT,
            WAIT.format(dice.randrange(4)),
            "cp.async.wait_all;\n",
            "add.u32 %r5, %r4, 1;\n",
        ]
        return "".join(dice.choice(kinds) for _ in range(dice.randrange(12)))

    loop = f"$AGAIN:\n{some()}add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, {times}; @%p3 bra $AGAIN;\n"
    return f"{HEAD}{some()}{loop}{some()}ret;\n}}\n"


def inside(trace: kscope.Trace, over: Any) -> tuple[Inside, int]:
    """(committed, landed, landed at most) of every group, in ns, and how many are known to have landed.

    over(row, lane, n): when the n-th group that is kept of a lane had landed, in ns.
    """
    found = phases(trace)
    counts: dict[tuple[int, int], int] = defaultdict(int)
    rows, known = [], 0
    for record, phase in sorted(zip(found.signal_record.tolist(), found.signal_phase.tolist(), strict=True)):
        if slot_of(int(found.barrier[phase])) is None:
            continue
        row, lane = int(trace.track[record]), int(trace.bits[record]) >> operations.BLOCK_SHIFT
        when = over(row, lane, counts[row, lane])
        counts[row, lane] += 1
        assert found.first_ns[phase] <= trace.start_ns[record] <= found.issued_ns[phase]
        rows.append((float(trace.start_ns[record]), when, float(found.landed_ns[phase])))
        known += bool(np.isfinite(found.landed_ns[phase]))
    return rows, known


@pytest.mark.parametrize("seed", SEEDS)
def test_every_group_of_a_random_program_lands_inside_its_interval(seed: int) -> None:
    """In the PTX interpreter, which runs each lane for itself."""
    text = source(Random(seed))
    trace, barriers = pipelines.recorded(Shape(consumers=1, source=text), seed)

    def over(row: int, lane: int, n: int) -> float:
        thread = 32 * int(trace.warps.warp[row]) + lane
        return ns(trace, row, barriers.groups[0, 0, 0, thread][n])

    rows, known = inside(trace, over)
    first_lanes = [groups for (*_, thread), groups in barriers.groups.items() if thread % 32 == 0]
    assert len(rows) == sum(map(len, first_lanes)), "the lanes that have a buffer"
    assert all(committed <= when <= landed for committed, when, landed in rows)
    assert known or "wait" not in text or "commit" not in text


def test_groups_are_known_where_a_ring_has_overwritten_older_records() -> None:
    count = 0
    for seed in range(8):
        text = source(Random(seed), times=40)
        trace, barriers = pipelines.recorded(Shape(consumers=1, source=text), seed, records=16)
        kept: dict[tuple[int, int], int] = defaultdict(int)
        found = phases(trace)
        for record in np.unique(found.signal_record).tolist():
            kept[int(trace.track[record]), int(trace.bits[record]) >> operations.BLOCK_SHIFT] += 1

        def over(
            row: int, lane: int, n: int, barriers: Barriers = barriers, kept: Any = kept, trace: Any = trace
        ) -> float:
            groups = barriers.groups[0, 0, 0, 32 * int(trace.warps.warp[row]) + lane]
            return ns(trace, row, groups[len(groups) - kept[row, lane] + n])

        rows, known = inside(trace, over)
        assert all(committed <= when <= landed for committed, when, landed in rows)
        count += known
    assert count > 20


def program(warp: Any, seed: int, truth: dict[Any, Any]) -> None:
    """A random program of the simulator."""
    dice = Random(seed * 64 + warp.index)
    truth[warp.index, ""] = [warp.now]
    kscope.instant("begin")
    for of in ("cp.async", "wgmma", "cp.async.bulk"):
        groups = warp.groups(of)
        for _ in range(dice.randrange(2, 24)):
            match dice.randrange(5):
                case 0 | 1:
                    groups.issue(dice.randrange(1, 1500), 16)
                case 2:
                    groups.commit()
                case 3:
                    groups.wait(dice.randrange(4))
                case _:
                    warp.work(dice.randrange(300))
        truth[warp.index, of] = groups.over


@pytest.mark.parametrize("seed", SEEDS)
def test_every_group_of_a_simulated_program_lands_inside_its_interval(seed: int) -> None:
    truth: dict[tuple[int, str], list[int]] = {}
    with kscope.profile(auto="pipeline") as prof:
        kscope_sim.launch(program, grid=1, block=96, args=(seed, truth))
    trace = prof.trace
    begins = trace.filter(region="begin")
    zero = {int(w): int(tick) for w, tick in zip(begins.warp, begins.start_ticks, strict=True)}
    found, counts, seen = phases(trace), defaultdict[tuple[int, str], int](int), 0
    for record, phase in sorted(zip(found.signal_record.tolist(), found.signal_phase.tolist(), strict=True)):
        warp, of = int(trace.warp[record]), label(int(found.barrier[phase])).partition(" groups")[0]
        over = truth[warp, of][counts[warp, of]] - truth[warp, ""][0] + zero[warp]
        counts[warp, of] += 1
        when = float(trace.ns_of(np.array([trace.track[record]]), np.array([over]))[0])
        assert trace.start_ns[record] <= when + 1e-6 <= found.landed_ns[phase] + 2e-6
        seen += 1
    assert seen == sum(len(over) for (_, of), over in truth.items() if of)
    assert found.wait_known.all() and not found.problems


def multiply(warp: Any, steps: int, stages: int) -> None:
    """A multistage product: every warp copies, waits and computes."""
    copies = warp.groups("cp.async")
    for k in range(steps + stages - 1):
        if k >= stages - 1:
            copies.wait(stages - 2)
            warp.sync()
            warp.work(300)
        copies.issue(1000, 16)
        copies.commit()


def recorded(kernel: Any, *args: Any, block: int = 64) -> kscope.Trace:
    with kscope.profile(auto="pipeline") as prof:
        kscope_sim.launch(kernel, grid=2, block=block, args=args)
    return prof.trace


def test_a_multistage_kernel_has_its_stages_bytes_latency_and_the_stages_it_needs() -> None:
    trace = recorded(multiply, 40, 3)
    (kernel,) = pipelines_of(trace).kernels
    (ring,) = kernel.rings
    assert (ring.groups, ring.stages, ring.barriers, kernel.blocks) == ("cp.async", 2, (), 2), (
        "in flight, while a third buffer is in use"
    )
    assert ring.needed is not None and ring.needed > 2
    assert ring.bytes_per_phase == 2 * 32 * 16, "of both warps of a block"
    assert 1024 < ring.bytes_in_flight <= 2 * 1024
    assert ring.latency_ns[0] == pytest.approx(1000 * float(trace.warps.tick_ns[0]), rel=0.05)
    (waits,) = ring.waits
    assert waits.not_issued_ns == 0
    assert waits.in_flight_ns == pytest.approx(waits.ns)
    assert any(line.startswith("too few stages") for line in kernel.findings)
    assert "group 1" in str(pipelines_of(trace)) and "cp.async" in str(pipelines_of(trace))
    enough = pipelines_of(recorded(multiply, 40, 6)).kernels[0]
    assert not enough.findings


def test_gaps_timelines_and_the_path_know_groups() -> None:
    trace = recorded(multiply, 12, 3)
    (wait,) = gaps(trace).barriers
    assert wait.in_flight == pytest.approx(1) and wait.signals[0][1].startswith("pipeline commit of=cp.async bytes=16")
    drawn, arrows = with_phases(trace)
    tracks = {region.track for region in drawn.regions if region.flight}
    assert tracks == {"cp.async groups 0", "cp.async groups 1"}
    found = phases(trace)
    assert len(arrows.source) == len(found) + int(np.count_nonzero(found.wait_phase != NO_PHASE))
    path = trace.path()
    assert "commit of=cp.async" in str(path)


def test_wgmma_has_latencies_and_needs_no_more_stages() -> None:
    def kernel(warp: Any) -> None:
        products = warp.groups("wgmma")
        for _ in range(20):
            products.issue(500)
            products.commit()
            products.wait(0)

    (ring,) = pipelines_of(recorded(kernel)).kernels[0].rings
    assert (ring.groups, ring.needed, ring.copies, ring.phases) == ("wgmma", None, False, 2 * 2 * 20)
    assert ring.latency_ns


def test_lanes_that_commit_in_branches_are_named_and_not_guessed() -> None:
    def kernel(warp: Any) -> None:
        copies = warp.groups("cp.async")
        for lanes in (0xFFFFFFFF, 0xFFFF):
            with warp.where(lanes):
                copies.issue(900, 16)
                copies.commit()
        copies.wait(0)

    found = phases(recorded(kernel))
    assert not len(found) and not found.wait_known.any()
    assert any("in branches" in problem.text for problem in found.problems)


def commits(body: str) -> list[operations.Named]:
    found = pipeline.mark_operations(f"{HEAD}{body}ret;\n}}\n", {}, Selection((operations.PIPELINE,)))
    names = [operations.of_name(mark.name) for mark in map(parse, found.text.splitlines()) if mark is not None]
    return [one for one in names if one is not None and one.operation == "commit"]


def test_a_commit_has_the_bytes_of_its_group_where_every_path_copies_as_many() -> None:
    guard = "setp.eq.u32 %p1, %r0, 0;\n"
    loop = "$AGAIN:\n{}add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 5; @%p3 bra $AGAIN;\n"
    assert [one.bytes for one in commits(COPY + COPY + COMMIT + COPY + COMMIT + COMMIT)] == [32, 16, None]
    assert [one.bytes for one in commits(f"{guard}@%p1 {COPY}{COMMIT}{COPY}{COMMIT}")] == [None, 16]
    assert [one.bytes for one in commits(loop.format(COPY) + COMMIT)] == [None]
    assert [one.bytes for one in commits(loop.format(COPY + COMMIT))] == [16]
    skipped = f"{guard}@%p1 bra $SKIP;\n{COPY}$SKIP:\n{COPY}{COMMIT}"
    assert [one.bytes for one in commits(skipped)] == [None]
    assert [one.of for one in commits("wgmma.commit_group.sync.aligned;\ncp.async.bulk.commit_group;\n")] == [
        "wgmma", "cp.async.bulk",
    ]  # fmt: skip
