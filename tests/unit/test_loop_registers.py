"""Loop registers: which loops around one region get them, that they do not change records, and the resulting machine
code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm.assemble import complaint, ptxas
from ptxvm.cases import Case, Outcome, cases, execute, judged
from ptxvm.host import Pool, Ring
from ptxvm.machine import Grid
from ptxvm.profile import examples
from ptxvm.writing import HEAD, KernelText, Node, written

from kscope.errors import MissingError
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.lowering import loop_registers, plan
from kscope.machine_code import tools
from kscope.marks.strategies import AllThreads, Elected, Lane0Warp0, Strategy, TargetWarp

BENCH = Path(__file__).resolve().parents[2] / "bench"

# -- records

LANES = (0, 1, 32, 64, 65)
"""Lanes of three warps: elected ones, and such as only AllThreads takes."""
STRATEGIES: tuple[Strategy, ...] = (Elected(), Lane0Warp0(), TargetWarp(0, 2), AllThreads())
ROOMY = Pool((Ring(12), Ring(12)))


def mixed(count: int) -> tuple[Node, ...]:
    """This many arithmetic statements, on the registers that regions record as values."""
    ops = ("add.u32", "xor.b32", "mul.lo.u32", "sub.s32")
    return tuple(Node("assign", (ops[n % 4], f"%v{n % 4}", f"%v{(n + 1) % 4}", "%n0")) for n in range(count))


def region(
    name: str = "dot", value: str = "%v1", work: int = 0, clobber: bool = False, spec: str | None = None
) -> Node:
    return Node("region", (name, spec, value, clobber), (mixed(work),))


def loop(inside: Node, times: int = 9, shape: str = "bottom", before: int = 0, behind: int = 0) -> Node:
    """A loop around one region, with arithmetic before and after it."""
    return Node("loop", (shape, times), ((*mixed(before), inside), mixed(behind)))


def around(*nodes: Node, name: str = "dot", value: str = "%v1") -> Node:
    return Node("region", (name, None, value, True), (nodes,))


def within(*nodes: Node, times: int = 3) -> Node:
    return Node("loop", ("bottom", times), (nodes, ()))


STORED = tuple(Node("store", (n, f"%v{n}")) for n in range(4))
"""All that was computed."""
LOAD = Node("load", ("%v3",))
TICK = Node("point", ("tick", None, None, False))
FORMS: dict[str, tuple[tuple[Node, ...], int]] = {
    "an empty region": ((loop(region("load")),), 1),
    "a value": ((loop(region()),), 1),
    "a number": ((loop(region("a b/c", "42")),), 1),
    "a float": ((loop(region("überlauf", "0f3F800000")),), 1),
    "the loop's counter as value": ((loop(region(value="%n0")),), 1),
    "a value that the count changes": ((loop(region(value="%v2"), behind=4),), 1),
    "a value that the region changes": ((loop(region(value="%v2", clobber=True, work=3)),), 1),
    "a short region": ((loop(region("load", work=5), before=2, behind=3),), 1),
    "the longest short region": ((loop(region(work=23)),), 1),
    "the shortest long region": ((loop(region(work=24)),), 1),
    "a long region": ((loop(region(work=60, clobber=True), before=3, behind=3),), 1),
    "a long region without value": ((loop(region("wait.x", work=40), behind=3),), 1),
    "one turn": ((loop(region(), times=1),), 1),
    "one long turn": ((loop(region(work=30), times=1),), 1),
    "three after one another": ((loop(region("load")), loop(region(work=30), 2), loop(region(work=2), 5)), 3),
    "one region in two loops": ((loop(region(value="%v0"), 2), TICK, loop(region(value="%v3", work=30), 3)), 2),
    "in another loop": ((within(loop(region(), 3), loop(region("load", work=30), 2)),), 2),
    "in another loop, with more": ((within(TICK, region("load"), loop(region(value="%n0"), 2), TICK, times=4),), 1),
    "in a loop of loops": ((within(within(loop(region(value="%n2"), 2))),), 1),
    "two ways in": ((loop(region(value="%v3"), shape="two ways in"),), 1),
    "two ways in, in another loop": ((within(loop(region(value="%v3", work=30), 3, "two ways in")),), 1),
    "in a region of its name": ((Node("region", ("dot", None, "%v0", False), ((loop(region()),),)),), 1),
    "in a branch": ((Node("if", ("%v0", 1), ((loop(region()),), (loop(region("load")), TICK))),), 2),
    "of another strategy": ((TICK, loop(region(spec="all")), loop(region("load", spec="warps:0,2"))), 2),
    "a load in front of its region": ((Node("loop", ("bottom", 9), ((LOAD, *mixed(2), region()), mixed(2))),), 1),
    "a load in its region": ((Node("loop", ("bottom", 9), ((around(LOAD, *mixed(3)),), mixed(1))),), 1),
    "a load in its long region": ((Node("loop", ("bottom", 9), ((around(LOAD, *mixed(30)),), ())),), 1),
    "a store in its region": ((Node("loop", ("bottom", 9), ((around(*mixed(3), Node("store", (6, "%v2"))),), ())),), 1),
    "a store behind its region": ((Node("loop", ("bottom", 9), ((region(work=2), Node("store", (6, "%v2"))), ())),), 1),
    "nothing recorded elsewhere": ((Node("store", (5, "%v1")), loop(region(work=1)), Node("bar")), 1),
}  # fmt: skip
"""Statements by name, and how many of their loops are tight."""


def case(kernel: KernelText, recording: Recording, **changes: Any) -> Case:
    made = Case(kernel, recording, Grid((3, 2, 1), (70, 1, 1)), ((0, 0, 0), (1, 1, 0)), LANES, ROOMY, spare=True)
    return replace(made, **changes)


def loops_of(text: str) -> int:
    """The number of loops with loop registers in a lowered text."""
    return len(set(re.findall(r"\bks_nth\d+", text)))


def options() -> Iterator[Recording]:
    """Every two of their values are met together."""
    both = cycle([(("cycles", 0), ("globaltimer", 8)), (("cycles", 8), ("globaltimer", 0))])
    for (strategy, fill), halves in zip(product(STRATEGIES, ("ring", "stop")), both, strict=False):
        for clock, pending in halves:
            yield Recording(strategy=strategy, records=4, fill=fill, clock=clock, pending=pending)  # type: ignore[arg-type]  # words of the parameters


@pytest.mark.parametrize("form", FORMS)
def test_loop_registers_do_not_change_records(form: str) -> None:
    """With room for four of nine records: overwritten and refused ones are included."""
    nodes, count = FORMS[form]
    kernel = written((*nodes, *STORED))
    for recording in options():
        outcome = judged(execute(case(kernel, recording)))
        assert loops_of(outcome.lowered.text) == count
        assert outcome.slabs
    judged(execute(case(kernel, Recording(records=64), threads=(0,), blocks=((0, 0, 0),))))  # and its own results


@pytest.mark.parametrize("form", ["a value", "a long region", "in another loop", "of another strategy"])
@pytest.mark.parametrize("fill", ["ring", "stop"])
@pytest.mark.parametrize(
    "changes",
    [
        {"pool": Pool((Ring(0, free=0), Ring(0, free=0)))},
        {"pool": Pool((Ring(3), Ring(2, free=3)))},
        {"pool": Pool((Ring(5, head=40, free=-8), Ring(0)))},
        {"bound": False},
        {"epoch": 0},
        {"subset": Subset.of(warp=1)},
        {"subset": Subset.of(block=range(4, 6))},
    ],
    ids=["a full pool", "some refused", "the ring's edge", "not bound", "not armed", "one warp", "one block"],
)
@pytest.mark.parametrize("order", ["lockstep", "random"])
def test_a_lane_without_a_slab_stores_nothing(form: str, fill: Any, changes: dict[str, Any], order: Any) -> None:
    kernel = written((*FORMS[form][0], *STORED))
    for strategy in (Elected(), AllThreads()):
        outcome = judged(
            execute(case(kernel, Recording(strategy=strategy, records=4, fill=fill), order=order, **changes))
        )
        assert loops_of(outcome.lowered.text)
        assert len(outcome.slabs) < len(outcome.ideals)


def test_conflicting_strategies_in_one_region_store_and_count_with_the_exits() -> None:
    """If the marks disagree, the storing lanes also count: a counted record that is never stored would stay missing."""
    text = written((TICK, loop(region(spec="all")))).text().replace("exit dot - all", "exit dot - lane0-warp0")
    low = plan.lower(text, Recording(), frontend="test").text
    stored = re.findall(r"@(\w+) st\.global\.v4\.b32 \[ks_to", low)
    counted = re.findall(r"@(\w+) add\.u32 ks_n, ks_n, 1; *\n\t@\w+ mov", low)
    assert stored == counted == ["ks_on2"]  # of "all", "elected" and "lane0-warp0"


_values = st.sampled_from(["%v0", "%v1", "%v2", "%v3", "%n0", "7"])
_names = st.sampled_from(["load", "dot", "a b/c", "überlauf", "wait.x"])
_specs = st.sampled_from([None, None, None, "lane0-warp0", "elected", "all", "warps:0,2"])
_assigned = st.builds(
    lambda *args: Node("assign", args),
    st.sampled_from(["add.u32", "xor.b32", "mul.lo.u32", "sub.s32", "min.u32"]),
    st.sampled_from(["%v0", "%v1", "%v2", "%v3"]), _values, _values,
)  # fmt: skip


@st.composite
def _loops(draw: st.DrawFn) -> Node:
    few = st.lists(st.one_of(_assigned, _assigned, st.just(LOAD)), max_size=4).map(tuple)
    work = st.one_of(st.just(()), few, st.lists(_assigned, min_size=20, max_size=30).map(tuple))
    args = (draw(_names), draw(_specs), draw(_values), False)
    shape = draw(st.sampled_from(["bottom", "bottom", "two ways in"]))
    inside = (*draw(few), Node("region", args, (draw(work),)))
    return Node("loop", (shape, draw(st.sampled_from([1, 2, 3, 7]))), (inside, draw(few)))


def _around(inner: st.SearchStrategy[tuple[Node, ...]]) -> st.SearchStrategy[tuple[Node, ...]]:
    """Statements around others, with loops, regions and branches among them."""
    value = st.sampled_from(["%v0", "%v2"])
    return st.lists(
        st.one_of(
            _loops(),
            st.builds(lambda body, times: within(*body, times=times), inner, st.sampled_from([1, 2, 3])),
            st.builds(lambda n, s, v, b: Node("region", (n, s, v, True), (b,)), _names, _specs, value, inner),
            st.builds(lambda v, b, c: Node("if", (v, 1), (b, c)), value, inner, inner),
            st.just(TICK), st.just(Node("bar")), st.just(Node("wait")), _assigned,
        ),
        min_size=1, max_size=3,
    ).map(tuple)  # fmt: skip


_kernels = st.builds(
    lambda first, nodes: written((*first, *nodes, *STORED)),
    st.lists(_loops(), min_size=1, max_size=3),
    _around(_around(st.lists(_loops(), max_size=2).map(tuple))),
)


@examples(60)
@given(cases(threads=4), _kernels, st.sampled_from(STRATEGIES))
def test_any_launch_of_optimized_loops_records_what_its_marks_mean(
    drawn: Case, kernel: KernelText, strategy: Strategy
) -> None:
    recording = replace(drawn.recording, strategy=strategy)
    outcome = judged(execute(replace(drawn, kernel=kernel, recording=recording, spare=True)))
    assert loops_of(outcome.lowered.text)


@examples(20)
@given(cases(threads=2, ample=True), _kernels, st.sampled_from(STRATEGIES))
def test_own_and_shared_loop_registers_record_the_same(drawn: Case, kernel: KernelText, who: Strategy) -> None:
    def slabs(outcome: Outcome) -> dict[Any, list[Any]]:
        return {slab.key: slab.records().tolist() for slab in outcome.slabs}

    recording = replace(drawn.recording, strategy=who)
    made = replace(drawn, kernel=kernel, recording=recording, spare=True)
    own = judged(execute(made))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop_registers, "loops", lambda *_, **__: [])
        shared = judged(execute(made))
    assert loops_of(own.lowered.text) and not loops_of(shared.lowered.text)
    assert slabs(own) == slabs(shared)
    assert own.out == shared.out


# -- which loops

ENTER, EXIT = "//kscope enter a - - with\n", "//kscope exit a - - with\n"
WORK = "add.s32 %r2, %r2, %r3;\n"
TURN = f"L:\n{ENTER}{WORK}{EXIT}sub.s32 %r1, %r1, 1;\nsetp.gt.s32 %p1, %r1, 0;\n@%p1 bra L;\n"
START = """.visible .entry k(.param .u64 out, .param .u32 n)
{
.reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .pred %p<4>;
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n]; setp.gt.s32 %p1, %r1, 3; mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y;
cvt.rn.f32.u32 %f1, %r1;
"""
END = "st.global.u32 [%rd1], %r2;\nst.global.f32 [%rd1+4], %f1;\nret;\n}\n"


def module(body: str, arch: int = 90) -> str:
    return HEAD.format(arch=arch) + START + body + END


def lowered(body: str, recording: Recording | None = None, arch: int = 90) -> str:
    return plan.lower(module(body, arch), recording or Recording(), frontend="test", spare=True).text


def test_arithmetic_loops_around_one_region_use_loop_registers() -> None:
    assert loops_of(lowered(TURN)) == 1
    assert loops_of(lowered(TURN.replace(WORK, ""))) == 1
    assert loops_of(lowered(TURN.replace(WORK, 64 * WORK))) == 1
    assert loops_of(lowered(TURN + TURN.replace("L", "M").replace(" a ", " b "))) == 2


@pytest.mark.parametrize(
    "work",
    [
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r2}, {%r3}, {%f1};",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%f2}, {%f3}, {%f1};",
        "shfl.sync.bfly.b32 %r2, %r2, 1, 31, -1;",
        "ld.param.u32 %r2, [n];",
        "@%p2 add.s32 %r2, %r2, 1;",
        "mov.u64 %rd2, %clock64;",
    ],
)
def test_loops_with_any_arithmetic_use_loop_registers(work: str) -> None:
    assert loops_of(lowered(TURN.replace(WORK, f"{work}\n"))) == 1


def test_code_without_a_back_edge_has_no_loop() -> None:
    assert not loops_of(lowered(f"{ENTER}{WORK}{EXIT}"))
    assert not loops_of(lowered(TURN.replace("@%p1 bra L;", "@%p1 bra M;\nM:")))


def with_line(line: str, where: str) -> str:
    parts = {
        "before": f"{line}\n{ENTER}{WORK}{EXIT}",
        "within": f"{ENTER}{line}\n{EXIT}",
        "behind": f"{ENTER}{WORK}{EXIT}{line}\n",
    }
    return TURN.replace(ENTER + WORK + EXIT, parts[where])


@pytest.mark.parametrize(
    "instead",
    [
        "cp.async.cg.shared.global [%r2], [%rd1], 16;",
        "cp.async.wait_all;",
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r2], %r3, [%r4];",
        "bar.sync 0;",
        "barrier.sync 0;",
        "call.uni f;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r3];",
        "@%p2 stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r2};",
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r2}, [%r3];",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r2}, [%r3];",
        "multimem.red.global.add.u32 [%rd1], %r2;",
        "membar.gl;",
        "{ add.s32 %r2, %r2, 1; }",
        "//kscope instant i - - with",
        "//kscope counter c u32 - with %r2",
        "//kscope pin x - - with %r2",
        "@%p2 bra M;\nM:",
        "@%p2 bra M;\nadd.s32 %r2, %r2, 1;\nM:",
        "@%p2 ret;",
        "@%p2 trap;",
    ],
)
@pytest.mark.parametrize("where", ["before", "within", "behind"])
def test_loops_with_hidden_stores_or_branches_use_no_loop_registers(instead: str, where: str) -> None:
    assert not loops_of(lowered(with_line(instead, where)))


@pytest.mark.parametrize(
    "access",
    [
        "ld.global.u32 %r2, [%rd1];",
        "ld.shared.u32 %r2, [%r3];",
        "st.global.u32 [%rd1], %r2;",
        "atom.global.add.u32 %r2, [%rd1], 1;",
        "red.global.add.u32 [%rd1], 1;",
        "prefetch.global.L1 [%rd1];",
        "@%p2 ld.global.u32 %r2, [%rd1];",
    ],
)
@pytest.mark.parametrize("where", ["before", "within", "behind"])
def test_loops_with_memory_accesses_use_loop_registers_only_if_spare(access: str, where: str) -> None:
    text = module(with_line(access, where))
    low = plan.lower(text, Recording(), frontend="test", spare=True)
    assert loops_of(low.text) == 1
    assert not low.has_spare_registers
    low = plan.lower(text, Recording(), frontend="test")
    assert not loops_of(low.text)
    assert low.has_spare_registers
    assert not plan.lower(module(TURN), Recording(), frontend="test").has_spare_registers


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ENTER + WORK + EXIT, ENTER + EXIT + ENTER.replace(" a ", " b ") + EXIT.replace(" a ", " b ")),
        (ENTER + WORK + EXIT, ENTER + EXIT + ENTER + EXIT),
        (ENTER + WORK + EXIT, ENTER + ENTER.replace(" a ", " b ") + EXIT.replace(" a ", " b ") + EXIT),
        (ENTER, ENTER.replace("with", "with if %r2")),
        (ENTER, f"{{ {ENTER}}}\n"),
        (EXIT, f"{{ {EXIT}}}\n"),
        (ENTER, ""),
        ("@%p1 bra L;", "{ @%p1 bra L; }"),
    ],
    ids=["two", "the same twice", "nested", "a predicate", "begin in braces", "end in braces", "broken",
         "jump in braces"],
)  # fmt: skip
def test_loops_with_other_marks_use_no_loop_registers(old: str, new: str) -> None:
    assert old in TURN
    body = TURN.replace(old, new)
    assert not loops_of(lowered(body + (ENTER + EXIT if new == "" else "")))


def test_a_loop_entered_from_inside_braces_is_not_optimized() -> None:
    assert not loops_of(lowered(f"{{ @%p1 bra L; }}\n{WORK}{TURN}"))
    assert loops_of(lowered(f"@%p1 bra L;\n{WORK}{TURN}"))
    assert loops_of(lowered(f"{{ @%p1 bra M; }}\n{TURN}M:\n"))


def test_any_lane_marks_disable_loop_registers_in_their_kernel() -> None:
    assert not loops_of(lowered(TURN, Recording(strategy=Elected(any_lane=True))))
    spec = Elected(any_lane=True).spec
    assert not loops_of(lowered(f"//kscope instant i - {spec} with\n{TURN}"))


def test_unpaired_names_use_no_loop_registers() -> None:
    """Of another loop's region with that name, too."""
    low = plan.lower(module(TURN + ENTER), Recording(), frontend="test")
    assert low.problems
    assert not loops_of(low.text)


# -- order in the text


def order(text: str, *parts: str) -> None:
    at = [text.find(part) for part in parts]
    assert -1 not in at, f"{parts[at.index(-1)]!r} is missing"
    assert at == sorted(at), [part for _, part in sorted(zip(at, parts, strict=True))]


def test_loop_registers_are_initialized_on_every_entry() -> None:
    held = "and.b32 ks_nil0, ks_l, 15;"
    assert lowered(TURN).count(held) == 1
    twice = lowered(f"@%p1 bra L;\n{WORK}{TURN}")
    assert twice.count(held) == 2
    order(twice, held, "@%p1 bra L;")
    order(twice[twice.index("@%p1 bra L;") :], WORK.strip(), held, "L:", "mov.u32 ks_b0, %clock;")


def test_adjacent_loops_initialize_registers_between_them() -> None:
    text = lowered(TURN + TURN.replace("L", "M"))
    order(text, "ks_nil0, ks_l", "L:", "@%p1 bra L;", "ks_nil1, ks_l", "M:", "@%p1 bra M;")


def test_a_short_region_counts_before_it_and_stores_after_it() -> None:
    text = lowered(TURN)
    turn = text[text.index("L:") :]
    order(turn, "setp.gt.s32 %p1", "add.u32 ks_n", "mov.u32 ks_b0, %clock", "add.s32 %r2", "mov.u32 ks_x0, %clock",
          "mad.lo.u32", "st.global.v4.b32 [ks_to0+32]", "and.b32 ks_nth0", "@%p1 bra")  # fmt: skip


def test_the_record_count_is_updated_inside_a_long_region() -> None:
    text = lowered(TURN.replace(WORK, 30 * WORK))
    turn = text[text.index("L:") :]
    order(turn, "mov.u32 ks_b0, %clock", "add.s32 %r2", "add.u32 ks_n", "mov.u32 ks_x0, %clock",
          "mad.lo.u32", "st.global.v4.b32 [ks_to0+32]", "and.b32 ks_nth0", "@%p1 bra")  # fmt: skip


COUNT = "sub.s32 %r1, %r1, 1;"


def turn(old: str = "", new: str = "") -> str:
    """From the loop's label on."""
    assert old in TURN
    text = lowered(TURN.replace(old, new) if old else TURN)
    assert loops_of(text) == 1
    return text[text.index("L:") :]


def test_the_loop_counter_moves_above_a_short_region() -> None:
    order(turn(), COUNT, "setp.gt.s32 %p1", "mov.u32 ks_b0")
    order(turn(WORK, ""), COUNT, "setp.gt.s32 %p1", "mov.u32 ks_b0")
    order(turn(ENTER, f"add.s32 %r4, %r1, 1;\n{ENTER}"), "add.s32 %r4, %r1, 1;", COUNT, "mov.u32 ks_b0")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ENTER, ENTER.replace("- - with", "i32 - with %r1")),
        (WORK, "add.s32 %r2, %r2, %r1;\n"),
        (WORK, "@%p1 add.s32 %r2, %r2, 1;\n"),
        (WORK, "setp.gt.s32 %p1, %r2, 0;\n"),
        (WORK, "add.s32 %r1, %r1, 0;\n"),
        (WORK, "shfl.sync.idx.b32 %r2|%p1, %r2, 0, 31, -1;\n"),
    ],
)
def test_the_loop_counter_stays_if_the_region_reads_it(old: str, new: str) -> None:
    order(turn(old, new), "mov.u32 ks_b0", "mov.u32 ks_x0", COUNT, "setp.gt.s32 %p1, %r1")


def test_the_loop_counter_moves_into_a_long_region() -> None:
    order(turn(WORK, 30 * WORK), "mov.u32 ks_b0", WORK, COUNT, "setp.gt.s32 %p1", "mov.u32 ks_x0")


def test_values_of_long_regions_are_read_before_the_count() -> None:
    text = turn(ENTER + WORK, ENTER.replace("- - with", "i32 - with %r1") + 30 * WORK)
    order(text, "mov.u32 ks_b0", "mov.b32 ks_v0, %r1;", COUNT, "mov.u32 ks_x0")


# -- machine code


def _has(tool: str) -> bool:
    try:
        return bool(tools.find(tool))
    except MissingError:
        return False


needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="needs ptxas: pip install triton, or put it on PATH")
needs_sass = pytest.mark.skipif(
    ptxas() is None or not _has("cuobjdump"), reason="needs ptxas and cuobjdump: pip install triton"
)


@needs_ptxas
@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_the_text_assembles(arch: str) -> None:
    """All forms in one text: ptxas takes as long to start as for several kernels."""
    kernels = [written((*nodes, *STORED), f"k{n}") for n, (nodes, _) in enumerate(FORMS.values())]
    text = HEAD.format(arch=arch) + "".join(kernel.body for kernel in kernels)
    for fill, clock in (("ring", "cycles"), ("stop", "globaltimer")):
        recording = Recording(fill=fill, clock=clock)  # type: ignore[arg-type]  # words of the parameters
        assert not complaint(plan.lower(text, recording, frontend="test").text, arch)


CHAINED = 64 * "fma.rn.f32 %f1, %f1, %f1, %f1;\n"
_INSTRUCTION = re.compile(
    r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<text>[^;]+);\s*/\* 0x[0-9a-f]{16} \*/\s*/\* 0x(?P<high>[0-9a-f]{16}) \*/"
)


@dataclass(frozen=True)
class Code:
    """A loop in machine code. waits: the barriers (of six) that each instruction waits for. read: the barrier set
    when the record's store has read its registers. cycles: planned."""

    texts: list[str]
    waits: list[int]
    read: int
    cycles: int

    @property
    def clocks(self) -> list[int]:
        return [n for n, text in enumerate(self.texts) if "CLOCK" in text]


@pytest.fixture
def assembled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Code]:
    """What the assembler makes of a loop that has all of the work, for sm_90. Bits as bench/scheduled.py has them: 113
    to 115 name the barrier of an instruction that reads late, 116 to 121 are what is waited for."""
    monkeypatch.syspath_prepend(str(BENCH))
    scheduled = import_module("scheduled")

    def made(inside: str, work: dict[str, int], **options: Any) -> Code:
        body = f'L:\n.pragma "nounroll";\n{inside}{COUNT}\nsetp.gt.s32 %p1, %r1, 0;\n@%p1 bra L;\n'
        source, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
        source.write_text(lowered(body, Recording(**options)))
        subprocess.run([str(ptxas()), "-arch=sm_90", str(source), "-o", str(cubin)], check=True)
        (found,) = scheduled.loops(cubin, work).values()
        command = [tools.find("cuobjdump"), "-sass", str(cubin)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        every = [(one["text"].strip(), int(one["high"], 16)) for one in _INSTRUCTION.finditer(text)]
        count = len(found.instructions)
        at = next(n for n in range(len(every)) if [t for t, _ in every[n : n + count]] == list(found.instructions))
        inner = every[at : at + count]
        stores = [high for t, high in inner if "STG" in t]
        read = stores[0] >> 113 - 64 & 7 if stores else 7
        return Code([t for t, _ in inner], [high >> 116 - 64 & 63 for _, high in inner], read, found.cycles)

    return made


@needs_sass
@pytest.mark.parametrize("fill", ["ring", "stop"])
@pytest.mark.parametrize("begin", [ENTER, ENTER.replace("- - with", "i32 - with %r1")], ids=["no value", "a value"])
def test_an_empty_region_is_two_clock_reads_without_a_store_between(
    assembled: Callable[..., Code], begin: str, fill: str
) -> None:
    code = assembled(begin + EXIT, {"STG": 1, "CS2R": 2}, fill=fill)
    first, last = code.clocks
    assert all("CS2R.32" in code.texts[n] for n in (first, last))
    assert last == first + 1
    assert code.read < 6, "the store signals when it has read"
    assert any(wait >> code.read & 1 for wait in code.waits), "and the writer of its registers waits"
    assert not code.waits[first] and not code.waits[last]


VALUES = {"no value": (ENTER, 0), "a value": (ENTER.replace("- - with", "i32 - with %r2"), 2)}
"""The begin, and cycles more for a value's copy."""
PLANNED = {"ring": 12, "stop": 13}
"""Cycles of a record, by its fill: the one that stops has a bound to test."""


@needs_sass
@pytest.mark.parametrize("fill", ["ring", pytest.param("stop", marks=pytest.mark.slow)])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", ["around", "behind"])
def test_a_loop_record_beside_64_multiplications_costs_a_dozen_cycles(
    assembled: Callable[..., Code], value: str, fill: str, place: str
) -> None:
    """The loop does not wait for the previous iteration's store."""
    (begin, more), work = VALUES[value], {"FFMA": 64}
    plain = assembled(CHAINED, work)
    assert not plain.clocks
    code = assembled(begin + CHAINED + EXIT if place == "around" else CHAINED + begin + EXIT, work, fill=fill)
    assert code.cycles <= plain.cycles + PLANNED[fill] + more
    waiting = [n for n, wait in enumerate(code.waits) if wait >> code.read & 1]
    last = code.clocks[-1]
    assert waiting and len(code.clocks) == 2
    assert min(waiting) >= (last if place == "around" else last + 1)
