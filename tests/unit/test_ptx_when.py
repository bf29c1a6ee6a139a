"""Predicates of marks in the emitted text: evaluated at the enter, in a register, without a branch."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ptxvm import judge
from ptxvm.cases import Case, execute, judged
from ptxvm.host import Pool, Ring
from ptxvm.machine import Grid
from ptxvm.memory import FaultError
from ptxvm.writing import KernelText, Node, written

from kscope.capture import layout
from kscope.instrument.recording import Recording
from kscope.lowering.plan import lower
from kscope.marks.strategies import AllThreads

ODD = (Node("assign", ("and.b32", "%v0", "%v0", "1")),)
BODY = (Node("region", ("dot", None, "%n0", True, "%v0"), ((Node("bar"),),)),)
"""A region recorded by lanes with nonzero %v0 at its enter; %v0 is overwritten inside."""
KERNEL = written((*ODD, Node("loop", ("bottom", 5), (BODY, ())), Node("point", ("tick", None, "0", False, "%v0"))))
CASES = [
    Case(KERNEL, Recording(records=records, fill=fill, strategy=AllThreads()), Grid((1, 1, 1), (64, 1, 1)),
         ((0, 0, 0),), tuple(range(12)), Pool((Ring(12), Ring(12))), order="lockstep")
    for records in (4, 16) for fill in ("ring", "stop")
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_exits_follow_the_predicate_of_their_enter(case: Case) -> None:
    outcome = judged(execute(case))
    counts = {slab.key[3]: int(slab.head["count"]) for slab in outcome.slabs}
    assert {count for lane, count in counts.items() if lane % 2} != {count for lane, count in counts.items()}


def plain(kernel: KernelText) -> KernelText:
    """The kernel without its predicates."""
    body = re.sub(r"( //kscope .*?) if \S+", r"\1", kernel.body)
    return replace(kernel, body=body, marks=tuple(replace(mark, when=None) for mark in kernel.marks))


def test_a_predicate_adds_no_branch_no_access_and_no_clock() -> None:
    with_it, without = (lower(kernel.text(), Recording(), frontend="test").text for kernel in (KERNEL, plain(KERNEL)))
    for word in ("bra", "atom", "red.", "ld.", "st.", "%clock", "bar.", "vote"):
        assert with_it.count(word) == without.count(word), word


def test_kernels_without_predicates_use_no_predicate_registers() -> None:
    text = lower(plain(KERNEL).text(), Recording(), frontend="test").text
    assert not re.search(r"\bks_(w\d|h\b)", text)


@pytest.mark.parametrize("when", ["0", "%v4"])
def test_a_known_false_predicate_emits_no_instructions(when: str) -> None:
    inner = Node("region", ("load", None, None, False, when), ((Node("bar"),),))
    kernel = written((inner, Node("point", ("tick", None, "0", False, when))))
    kernel = replace(kernel, body=kernel.body.replace("and.b32 %v4, %v0, 0;", "mov.u32 %v4, 0;"))  # its only value
    bare = re.sub(r"^ *// begin inline asm\n *//kscope.*\n", "    // begin inline asm\n\n", kernel.text(), flags=re.M)
    lowered = lower(kernel.text(), Recording(), frontend="test")
    assert [line.strip() for line in lowered.text.splitlines() if line.strip()] == [
        line.strip() for line in bare.splitlines() if line.strip()
    ]
    assert lowered.meta.kernels == ()
    assert lowered.meta.regions == ()


def test_a_name_with_and_without_a_predicate_records_where_it_holds() -> None:
    region = ("load", None, None, False)
    kernel = written((*ODD, Node("region", region, ((),)), Node("region", (*region, "%v0"), ((),))))
    case = replace(CASES[1], kernel=kernel)
    outcome = judged(execute(case))
    assert {slab.key[3] % 2: int(slab.head["count"]) for slab in outcome.slabs} == {0: 1, 1: 2}
    name, kind = layout.name_hash("load"), layout.Kind.SPAN
    assert {int(record["id"]) for slab in outcome.slabs for record in slab.records()} == {name << 4 | kind}


MUTATIONS = {
    "the exit ignores the predicate": (r"and\.pred ks_h, ks_w\d+, (\w+);", r"mov.pred ks_h, \1;"),
    "the strategy is forgotten": (r"and\.pred ks_h, (ks_w\d+), \w+;", r"mov.pred ks_h, \1;"),
    "a record that was not made is counted": (r"@ks_h (add\.u32 ks_n)", r"\1"),
    "the predicate is inverted": (r"setp\.ne\.u32 (ks_w\d+)", r"setp.eq.u32 \1"),
    "the predicate is read at the exit": (r"(and\.pred ks_h, (ks_w\d+))", r"setp.ne.u32 \2, %v0, 0; \1"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_predicate_is_detected(name: str) -> None:
    pattern, new = MUTATIONS[name]
    # with one strategy of all lanes, a lane that does not record is one that found no room
    cases = [*CASES, *(replace(case, pool=Pool((Ring(4), Ring(0)))) for case in CASES)]
    assert all(re.search(pattern, case.lowered().text) for case in cases)
    wrong = 0
    for case in cases:
        try:
            judged(execute(case, mutate=lambda text: re.sub(pattern, new, text)))
        except (judge.Wrong, FaultError, KeyError):
            wrong += 1
    assert wrong
