"""Loops of products store their records while the tensor cores work: none is lost, none is out of order, and every
completion is inside its interval, as if each were stored where it ends.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pipelines
import pytest
from pipelines import Shape, ns
from ptxvm.assemble import complaint, ptxas
from ptxvm.mbarriers import Barriers
from ptxvm.profile import THOROUGH

import kscope
from kscope.analysis.pipelines.committed import slot_of
from kscope.analysis.pipelines.phases import phases
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.lowering import plan
from kscope.lowering.deferred_stores import Deferral
from kscope.marks.operations import PIPELINE

SEEDS = range(60 if THOROUGH else 3)
OTHER = 512
ENDS = {
    "jump": "",
    # the loop is left at its end, or in the middle, where records of the iteration before are in registers
    "return": "setp.ge.u32 %p7, %r4, STEPS; @%p7 ret;\n",
    "top": "setp.ge.u32 %p7, %r4, STEPS; @%p7 ret;\n",
    "middle": "setp.eq.u32 %p7, %r4, STEPS; @%p7 bra $OUT;\n",
    # another record is stored before the products
    "another": f"@%p5 mbarrier.arrive.shared::cta.b64 _, [%r1+{OTHER}];\n@%p0 bra $ON;\n$ON:\n",
}
SHAPES = [(steps, stages, end) for steps in (1, 2, 9) for stages in (1, 3) for end in ENDS]
STORE = "st.relaxed.gpu.global.v4.b32"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 %r14;\n"


def source(shape: Shape, end: str = "jump", left: int = 0) -> str:
    """The kernel with products in its consumers, whose first lanes arrive."""
    text = pipelines.text(shape)
    arrive = "add.u32 %r8, %r2, %r7;\nmbarrier.arrive.shared::cta.b64 _, [%r8];\n"
    before, _, behind = text.partition("$CONSUME:\n")
    products = f"{PRODUCT}{PRODUCT}wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned {left};\n"
    body = behind.replace(arrive, f"{products}bar.warp.sync 0xffffffff;\n{arrive.replace('mbar', '@%p5 mbar')}")
    stop = ENDS[end].replace("STEPS", str(shape.steps - (end == "return")))
    count = "add.u32 %r4, %r4, 1;"
    if end == "return":
        body = body.replace(count, f"{stop}{count}", 1)
    elif end != "jump":
        body = stop + body
    if end in ("top", "middle"):
        body = body.replace(f"setp.lt.u32 %p3, %r4, {shape.steps}; @%p3 bra", "bra.uni").replace(
            "ret;\n}", "$OUT:\nret;\n}"
        )
    arrivals = f", {shape.consumers * pipelines.LANES};"
    head = before.replace(arrivals, f", {shape.consumers};")
    lane = "mov.u32 %r15, %laneid; setp.eq.u32 %p5, %r15, 0;\n"
    first = "bar.warp.sync"
    head = head.replace(first, f"@%p0 mbarrier.init.shared::cta.b64 [%r1+{OTHER}], {shape.consumers};\n{first}", 1)
    return head.replace("mov.u32 %r10, 0;", f"mov.u32 %r10, 0;\n{lane}") + "$CONSUME:\n" + body


def recorded(shape: Shape, seed: int, end: str = "jump", records: int = 1024) -> tuple[kscope.Trace, Barriers]:
    return pipelines.recorded(replace(shape, source=source(shape, end)), seed, records)


def kept(trace: kscope.Trace) -> Counter[tuple[int, str]]:
    """How many records each warp has, by name."""
    return Counter(zip(trace.warp.tolist(), trace.region_names()[trace.region].tolist(), strict=True))


@pytest.mark.parametrize(("steps", "stages", "end"), SHAPES)
def test_every_record_is_there_and_every_completion_inside_its_interval(steps: int, stages: int, end: str) -> None:
    shape = Shape(steps, stages)
    for seed in SEEDS:
        trace, barriers = recorded(shape, seed, end)
        found = phases(trace)
        assert not found.problems and found.wait_known.all()
        assert {problem.kind for problem in trace.problems} <= {"rate"}
        groups = np.array([slot_of(barrier) is not None for barrier in found.barrier.tolist()])
        assert np.count_nonzero(groups) == shape.consumers * steps
        assert np.count_nonzero(~groups) == (3 if end == "another" else 2) * steps
        for n in range(len(found)):
            row, number = int(found.row[n]), int(found.number[n])
            if groups[n]:
                over = barriers.groups[0, 0, 0, 32 * int(trace.warps.warp[row])]
            else:
                over = barriers.all[(0, 0, 0), int(found.barrier[n])].over
            assert found.issued_ns[n] <= ns(trace, row, over[number]) <= found.landed_ns[n]


@pytest.mark.parametrize("end", ["jump", "another"])
def test_a_ring_keeps_the_newest_records_in_the_order_of_their_ends(end: str) -> None:
    shape = Shape(40, 2)
    for seed in SEEDS:
        (trace, _), (whole, _) = recorded(shape, seed, end, records=16), recorded(shape, seed, end)
        for row in range(len(trace.warps)):
            mine, every = np.flatnonzero(trace.track == row), np.flatnonzero(whole.track == row)
            assert (np.diff((trace.start_ticks + trace.dur_cycles)[mine]) >= 0).all()
            if trace.warps.warp[row]:  # of the fetching warp, two lanes record
                names = whole.region_names()[whole.region[every]].tolist()
                assert trace.region_names()[trace.region[mine]].tolist() == names[-len(mine) :]


def text_of(shape: Shape, end: str = "jump", **options: Any) -> str:
    return plan.lower(source(shape, end), Recording(selection=Selection((PIPELINE,)), **options), frontend="test").text


def test_records_of_an_iteration_are_stored_in_the_next_one_after_its_products() -> None:
    text = text_of(Shape())
    loop = text[text.index("$CONSUME:") : text.rindex("bra $CONSUME")]
    shadow = loop[loop.rindex("wgmma.mma_async") : loop.index("wgmma.commit_group")]
    assert shadow.count(STORE) == 3 == loop.count(STORE), "group, arrival, wait"
    rest = loop.replace(shadow, "")
    assert rest.count("st.global.v4.b32") == 3, "an anchor, and what is before it in its branch"
    assert rest.index("@!ks_due bra") < rest.index("st.global.v4.b32")


def test_with_few_pending_records_those_of_an_iteration_still_stay() -> None:
    few, many = text_of(Shape(), pending=1), text_of(Shape())
    assert few.count(STORE) == many.count(STORE) == 3


@pytest.mark.parametrize("options", [{"pending": 0}, {"survive": "shm"}])
def test_what_must_be_stored_at_once_is(options: dict[str, Any]) -> None:
    text = text_of(Shape(), **options)
    assert STORE not in text and "ks_d0" not in text


def test_without_products_nothing_waits() -> None:
    made = pipelines.lowered(pipelines.text(Shape()))
    assert STORE not in made.text and "ks_d0" not in made.text


def test_the_same_records_as_stored_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(7, 2)
    later, _ = recorded(shape, 1)
    monkeypatch.setattr(plan, "deferral", lambda *_: Deferral())
    pipelines.lowered.cache_clear()
    now, _ = recorded(shape, 1)
    pipelines.lowered.cache_clear()
    assert kept(later) == kept(now)


@pytest.mark.skipif(ptxas() is None, reason="needs ptxas")
def test_ptxas_keeps_the_stores_between_products_and_their_wait() -> None:
    text = text_of(Shape(), "middle")
    product = "wgmma.fence.sync.aligned; { .reg .f32 a<4>; .reg .b64 d; mov.b64 d, 0;"
    product += " wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {a0,a1,a2,a3}, d, d, 1, 1, 1, 0, 0; }"
    assert complaint(re.sub(r"wgmma\.mma_async[^;]*;", product, text), "90a") == ""
