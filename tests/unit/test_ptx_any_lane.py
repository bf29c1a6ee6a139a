"""Elected(any_lane=True) in the emitted text: election, late slabs and counts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm import judge
from ptxvm.cases import Case, cases, execute, judged, pools
from ptxvm.host import Pool, Ring
from ptxvm.machine import Grid
from ptxvm.memory import FaultError
from ptxvm.profile import examples
from ptxvm.writing import Node, written

from kscope.capture import wire
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.lowering.plan import lower
from kscope.marks.strategies import ANY_LANE, AllThreads, Elected

ANY = Elected(any_lane=True)
BODY = (Node("region", ("dot", None, "%n0", False), ((Node("bar"),),)),)
LOOP = Node("loop", ("bottom", 6), (BODY, ()))
DIVERGENT = written((Node("if", ("%v0", 2), ((LOOP, Node("point", ("tick", None, "0", False))), ())),))
"""Only threads with bit 2 in their index reach the marks."""
LANES = tuple(range(8))
ROOM = Pool((Ring(12), Ring(12)))


def case(**changes: object) -> Case:
    """One warp of fully diverged lanes."""
    made = Case(
        DIVERGENT, Recording(records=4, strategy=ANY), Grid((1, 1, 1), (32, 1, 1)), ((0, 0, 0),), LANES, ROOM,
        order="random",
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of Case


def recorded(outcome) -> dict[int, int]:
    """Records written by each lane that has a slab."""
    return {slab.key[3]: slab.count for slab in outcome.slabs}


def test_lanes_that_diverge_have_separate_slabs() -> None:
    assert recorded(judged(execute(case()))) == {0: 0, 2: 7, 3: 7, 6: 7, 7: 7}  # lane 0 claims at the entry


def test_the_first_of_converged_lanes_records() -> None:
    outcome = judged(execute(case(followers=frozenset({3, 7}))))
    assert recorded(outcome) == {0: 0, 2: 7, 6: 7}


def test_code_that_lane_0_reaches_costs_one_slab_per_warp() -> None:
    kernel = written((LOOP,))
    outcome = judged(execute(case(kernel=kernel, followers=frozenset(range(1, 32)))))
    assert recorded(outcome) == {0: 6}


@pytest.mark.parametrize("fill", ["ring", "stop"])
def test_dropped_records_of_late_slabs_are_counted(fill: str) -> None:
    outcome = judged(execute(case(recording=Recording(records=4, fill=fill, strategy=ANY))))
    assert {(slab.count, len(slab.records())) for slab in outcome.slabs} == {(0, 0), (7, 4)}


def test_a_pool_without_room_loses_each_late_lane_once() -> None:
    outcome = judged(execute(case(pool=Pool((Ring(2), Ring(0))))))  # room for lane 0
    assert recorded(outcome) == {0: 0}
    assert int(outcome.host.stripe(0)["lost"]) == 4


def test_a_late_lane_goes_to_the_reserve_when_its_stripe_is_full() -> None:
    outcome = judged(execute(case(pool=Pool((Ring(2), Ring(8))))))
    assert {slab.key[3]: slab.stripe for slab in outcome.slabs} == {0: 0, 2: 1, 3: 1, 6: 1, 7: 1}


@pytest.mark.parametrize("changes", [
    {"epoch": 0}, {"bound": False}, {"subset": Subset.of(warp=1)}, {"subset": Subset.of(block=range(1, 2))},
    {"subset": Subset.of(sm=5)},
])  # fmt: skip
def test_unsampled_lanes_make_no_late_claim(changes: dict[str, object]) -> None:
    outcome = judged(execute(case(**changes)))
    assert not outcome.slabs
    assert not outcome.host.claims()


def test_lanes_of_other_strategies_keep_a_single_slab() -> None:
    inner = Node("region", ("load", "all", None, False), ((*BODY,),))
    outcome = judged(execute(case(kernel=written((inner,)))))
    assert recorded(outcome) == dict.fromkeys(LANES, 2)


def test_a_lane_records_only_if_elected_and_its_predicate_is_true() -> None:
    body = (Node("region", ("dot", None, "0", False, "%v0"), ((),)),)
    outcome = judged(execute(case(kernel=written((Node("assign", ("and.b32", "%v0", "%v0", "4")), *body)))))
    assert recorded(outcome) == {0: 0, 4: 1, 5: 1, 6: 1, 7: 1}


@examples(60)
@given(cases(threads=5), st.data())
def test_any_launch_of_elected_lanes_records_what_its_marks_mean(drawn: Case, data: st.DataObject) -> None:
    recording = replace(drawn.recording, strategy=ANY, survive=None)
    units = wire.slab_units(4)
    judged(execute(replace(drawn, recording=recording, pool=data.draw(pools(units)))))


def test_other_strategies_emit_no_lane_election_code() -> None:
    for strategy in (Elected(), AllThreads()):
        text = lower(DIVERGENT.text(), Recording(strategy=strategy), frontend="test").text
        assert not re.search(r"activemask|lanemask|ks_may|ks_own|KS_LATE", text)


def test_late_claims_reread_thread_and_sm_instead_of_holding_registers() -> None:
    """The thread index and the SM are read again, because they would occupy registers in the whole kernel."""
    text = lower(DIVERGENT.text(), Recording(strategy=ANY), frontend="test").text
    for claim in text.split("bra KS_LATE;")[1:]:
        for register in ("ks_thread", "ks_sm"):
            assert re.search(rf"[^@;]*\b{register}\b", claim)[0].strip().startswith("mov.u32"), register


def test_marks_of_a_spec_are_elected_alone() -> None:
    kernel = written(
        (Node("region", ("load", None, None, False), (BODY,)), Node("point", ("tick", ANY_LANE, "0", False)))
    )
    text = lower(kernel.text(), Recording(), frontend="test").text
    assert text.count("%lanemask_lt") == 1


GONE = r"not\.pred ks_q, ks_q; and\.pred ks_may, ks_may, ks_q;"
MUTATIONS = {
    "every lane is elected": (r"setp\.eq\.and\.u32 (ks_w\d+), ks_k, 0, ks_w\d+;", r"mov.pred \1, \1;"),
    "the election ignores the active mask": (r"activemask\.b32 ks_k; mov", "mov.u32 ks_k, -1; mov"),
    "a lane with a slab claims another": (r"not\.pred ks_q, ks_on; and\.pred ks_l, ks_l, ks_q;", ""),
    "a lane that was lost tries again": (r"not\.pred ks_q, ks_l; and\.pred ks_may, ks_may, ks_q;", ""),
    "a lane that was lost at the entry tries again": (rf"and\.pred ks_q, ks_q, ks_own; {GONE}", ""),
    "unsampled lanes claim": (r"and\.pred ks_l, ks_l, ks_may;", ""),
    "a refused lane has a slab": (r"and\.pred ks_l, ks_l, ks_r;", ""),
    "lanes without a slab write its header": (r"@ks_l (st\.global\.v4\.u32)", r"\1"),
    "the slab is not kept": (r"or\.pred ks_on, ks_on, ks_l;", ""),
}
EVERY = written((LOOP, LOOP))
NOTICING = [
    case(followers=frozenset({3, 7})),
    case(pool=Pool((Ring(2), Ring(0))), recording=Recording(records=4, fill="stop", strategy=ANY)),
    case(pool=Pool((Ring(0), Ring(0)))),
    case(pool=Pool((Ring(2), Ring(2)))),
    case(subset=Subset.of(warp=1)),
    case(kernel=EVERY, followers=frozenset({1, 2, 3})),
    case(kernel=EVERY, pool=Pool((Ring(0), Ring(0)))),
    case(kernel=written((Node("region", ("load", "all", None, False), ((LOOP,),)),)), followers=frozenset({1, 5})),
    case(
        kernel=written((Node("region", ("load", "elected", None, False), ((),)), Node("if", ("%v0", 2), ((LOOP,), ()))))
    ),
]


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_claim_is_detected(name: str) -> None:
    pattern, new = MUTATIONS[name]
    assert all(re.search(pattern, one.lowered().text) for one in NOTICING[:1])
    wrong = 0
    for one in NOTICING:
        try:
            judged(execute(one, mutate=lambda text: re.sub(pattern, new, text)))
        except (judge.Wrong, FaultError, KeyError):
            wrong += 1
    assert wrong
