"""auto="pipeline" in the PTX interpreter, whose barriers know when each phase was over."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pipelines
import pytest
from pipelines import EMPTY, FULL, LANES, LOOPS, Shape, ns
from ptxvm.mbarriers import Barriers
from ptxvm.profile import THOROUGH

import kscope
from kscope.analysis.pipelines.phases import NO_PHASE, Phases, phases
from kscope.instrument.recording import Survive
from kscope.marks import operations

SHAPES = [Shape(loop=loop, stages=stages, dynamic=stages == 2) for loop in LOOPS for stages in (1, 2, 3)]
PARTS = 20
SEEDS = range(400 if THOROUGH else 6)


def completions(trace: kscope.Trace, found: Phases, barriers: Barriers) -> list[tuple[float, float, float]]:
    """(issued, over, landed at most) of every phase of which the interpreter knows when it was over, in ns."""
    rows = []
    for n in range(len(found)):
        over = barriers.all[(int(found.block[n]), 0, 0), int(found.barrier[n])].over
        if found.number[n] < len(over):
            when = ns(trace, int(found.row[n]), over[int(found.number[n])])
            rows.append((float(found.issued_ns[n]), when, float(found.landed_ns[n])))
    return rows


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.loop}-{shape.stages}")
def test_every_completion_is_inside_its_interval(shape: Shape) -> None:
    for seed in SEEDS:
        trace, barriers = pipelines.recorded(shape, seed)
        found = phases(trace)
        known = completions(trace, found, barriers)
        assert len(known) == sum(len(one.over) for one in barriers.all.values()) == 2 * shape.steps
        assert all(issued <= over <= landed for issued, over, landed in known)
        assert not found.problems


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_million_completions_are_inside_their_intervals(part: int) -> None:
    count, seed = 0, 1_000_000 * (part + 1)
    while count < (1_000_000 if THOROUGH else 8_000) / PARTS:
        trace, barriers = pipelines.recorded(Shape(200, seed % 4 + 1, loop=list(LOOPS)[seed % 3]), seed, records=4096)
        known = completions(trace, phases(trace), barriers)
        assert all(issued <= over <= landed for issued, over, landed in known)
        count, seed = count + len(known), seed + 1


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.loop}-{shape.stages}")
@pytest.mark.parametrize("survive", [None, "shm"])
def test_every_wait_is_joined_to_the_phase_that_it_is_for(shape: Shape, survive: Survive | None) -> None:
    """Also where each wait is stored when it begins."""
    trace, _ = pipelines.recorded(shape, 3, survive=survive)
    found = phases(trace)
    assert found.wait_known.all()
    assert len(found.wait_record) == LANES * (1 + shape.consumers) * shape.steps
    seen: dict[tuple[int, int], list[int]] = defaultdict(list)
    for record, phase in zip(found.wait_record, found.wait_phase, strict=True):
        at = int(trace.bits[record]) & operations.ADDRESS_MASK
        seen[int(trace.warp[record]), at].append(NO_PHASE if phase == NO_PHASE else int(found.number[phase]))
    for (warp, at), numbers in seen.items():
        before = NO_PHASE if warp == 0 else 0  # the producer's first wait is for buffers that were never used
        steps = range(before, before + len(numbers) // LANES)
        assert numbers == [step for step in steps for _ in range(LANES)], (warp, at)


def test_a_phase_has_its_arrivals_its_bytes_and_its_copies() -> None:
    shape = Shape(dynamic=True)
    trace, _ = pipelines.recorded(shape, 1)
    found = phases(trace)
    full, empty = found.barrier < EMPTY, found.barrier >= EMPTY
    assert set(found.barrier[full].tolist()) == {FULL + 8 * stage for stage in range(shape.stages)}
    assert (found.expected[full] == 2048).all()
    assert (found.copied[full] == 2048).all()
    assert (found.copies[full] == 2).all()
    assert (found.arrived[full] == 1).all()
    assert (found.arrived[empty] == shape.consumers * LANES).all()
    assert (found.copies[empty] == 0).all()


def test_a_wait_that_failed_and_was_tried_again_is_one_wait() -> None:
    trace, _ = pipelines.recorded(Shape(stages=1), 5)
    waits = trace.filter(region="pipeline wait *")
    assert len(waits) == LANES * 3 * Shape().steps
    assert waits.dur_cycles.max() > 200, "some were tried many times"


def test_a_lane_that_waits_before_its_first_arrival_counts_from_there() -> None:
    """Lanes but the first get a buffer where they first arrive or copy; what they waited for before is not missing."""
    shape = Shape()
    apart = "add.u32 %r8, %r2, %r7;\nmbarrier.arrive"
    source = pipelines.text(shape).replace(apart, f"@%p0 bra $APART;\n$APART:\n{apart}")
    assert "$APART" in source
    trace, barriers = pipelines.recorded(replace(shape, source=source), 2)
    assert {problem.kind for problem in trace.problems} <= {"rate"}
    found = phases(trace)
    assert not found.problems and found.wait_known.all()
    consumers = LANES * shape.consumers * shape.steps
    first = shape.consumers * (LANES - 1)
    assert len(found.wait_record) == consumers - first + LANES * shape.steps, "the first wait of lanes without a buffer"
    assert len(completions(trace, found, barriers)) == 2 * shape.steps


def test_phases_are_known_to_be_unknown_where_records_are_missing() -> None:
    shape = Shape(40, 2)
    right = unknown = 0
    for seed in range(8):
        trace, barriers = pipelines.recorded(shape, seed, records=32)
        found = phases(trace)
        assert found.problems
        unknown += int(np.count_nonzero(~found.wait_known))
        for n in np.flatnonzero(found.landed_ns < np.inf).tolist():
            row, over = int(found.row[n]), barriers.all[(0, 0, 0), int(found.barrier[n])].over
            inside = [
                number
                for number, tick in enumerate(over)
                if found.issued_ns[n] <= ns(trace, row, tick) <= found.landed_ns[n]
            ]
            assert any(number % 2 == found.number[n] % 2 for number in inside), "of this phase, by its parity"
            right += 1
    assert right + unknown > 100


def test_an_initialization_begins_new_phases() -> None:
    shape = Shape(steps=2, stages=1)
    source = pipelines.text(shape)
    again = "@%p0 mbarrier.init.shared::cta.b64 [%r1+64], 1;\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1+64];\n"
    source = source.replace("bar.warp.sync", again * 3 + "bar.warp.sync", 1)
    trace, _ = pipelines.recorded(replace(shape, source=source), 0)
    found = phases(trace)
    assert found.number[found.barrier == FULL + 64].tolist() == [0, 0, 0]
