"""Pairing over every path, and where one condition guards several pieces."""

from __future__ import annotations

import pytest

from kscope.lowering import pairing
from kscope.ptx import cfg

HEAD = ".visible .entry k(.param .u32 n)\n{\n.reg .pred %p<9>;\n"


def faults(body: str) -> list[tuple[str, str]]:
    text = HEAD + body + "\n}\n"
    (function,) = cfg.functions(text)
    found = pairing.check(function, cfg.blocks(function))
    return [(fault.name, fault.text.split()[0] + " " + fault.text.split()[1]) for fault in found.faults]


def enter(name: str, how: str = "with") -> str:
    return f"//kscope enter {name} - - {how}\n"


def leave(name: str, how: str = "with") -> str:
    return f"//kscope exit {name} - - {how}\n"


GUARDED = {
    "one condition twice": f"""
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra L1;
        {enter("a")}
        L1: fence.proxy.async;
        @%p1 bra L2;
        {leave("a")}
        L2: ret;""",
    "one condition, once negated": f"""
        setp.eq.s32 %p1, %r1, 0;
        @!%p1 bra L1;
        bra E;
        L1: bra M;
        E: {enter("a")}
        M: @%p1 bra X;
        bra.uni D;
        X: {leave("a")}
        D: ret;""",
    "an exit shared by two ways": f"""
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra L1;
        {enter("a")}
        L1: setp.ne.s32 %p2, %r2, 0;
        or.pred %p3, %p1, %p2;
        @%p3 bra L2;
        bra.uni L3;
        L2: @%p1 bra L4;
        L3: {leave("a")}
        L4: ret;""",
    "an and": f"""
        setp.eq.s32 %p1, %r1, 0;
        @!%p1 bra L1;
        {enter("a")}
        L1: and.pred %p3, %p1, %p2;
        @%p3 bra L2;
        @!%p1 bra L4;
        L2: {leave("a")}
        L4: ret;""",
    "a copy and its inverse": f"""
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra L1;
        {enter("a")}
        L1: not.pred %p2, %p1;
        mov.pred %p3, %p2;
        @!%p3 bra L2;
        {leave("a")}
        L2: ret;""",
    "in a loop that sets it anew": f"""
        T: setp.eq.s32 %p1, %r1, 0;
        @%p1 bra L1;
        {enter("a")}
        L1: add.s32 %r1, %r1, 1;
        @%p1 bra L2;
        {leave("a")}
        L2: setp.eq.s32 %p2, %r1, 9;
        @%p2 bra T;
        ret;""",
    "a constant on each way": f"""
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra L1;
        {enter("a")}
        mov.pred %p4, -1;
        bra L2;
        L1: mov.pred %p4, 0;
        L2: @!%p4 bra L3;
        {leave("a")}
        L3: ret;""",
    "a constant within a condition": f"""
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra L1;
        {enter("a")}
        L1: or.pred %p2, %p1, 0;
        and.pred %p3, %p2, 1;
        @%p3 bra L2;
        {leave("a")}
        L2: ret;""",
    "a guarded return": f"""
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra L1;
        {enter("a")}
        L1: @%p1 ret;
        {leave("a")}
        ret;""",
    "two names under two conditions": f"""
        setp.eq.s32 %p1, %r1, 0;
        setp.eq.s32 %p2, %r2, 0;
        @%p1 bra L1;
        {enter("a")}
        L1: @%p2 bra L2;
        {enter("b")}
        L2: @%p2 bra L3;
        {leave("b")}
        L3: @%p1 bra L4;
        {leave("a")}
        L4: ret;""",
}


@pytest.mark.parametrize("case", GUARDED)
def test_pieces_that_one_condition_guards_pair(case):
    assert faults(GUARDED[case]) == []


CHANGED = {
    "set anew": "setp.eq.s32 %p1, %r2, 0;",
    "set anew, as a second result": "setp.eq.s32 %p4|%p1, %r2, 0;",
    "set under a condition": "@%p2 setp.eq.s32 %p1, %r2, 0;",
    "perhaps set by a call": "call helper, ();",
    "negated in place": "not.pred %p1, %p1;",
    "written by a barrier": "bar.red.or.pred %p1, 0, %p2;",
    "written by a test of a barrier": "mbarrier.test_wait.shared.b64 %p1, [%r3], %rd1;",
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_condition_changed_between_marks_does_not_guard_them(case):
    body = f"""
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra L1;
        {enter("a")}
        L1: {CHANGED[case]}
        @%p1 bra L2;
        {leave("a")}
        L2: ret;"""
    assert {name for name, _ in faults(body)} == {"a"}


FAULTY = {
    "another condition": ("@%p1 bra L1;\n", "L1: @%p2 bra L2;\n"),
    "the opposite": ("@%p1 bra L1;\n", "L1: @!%p1 bra L2;\n"),
    "none": ("@%p1 bra L1;\n", "L1:\n"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_pieces_under_different_conditions_do_not_pair(case):
    first, second = FAULTY[case]
    body = f"{first}{enter('a')}{second}{leave('a')}L2: ret;"
    assert {name for name, _ in faults(body)} == {"a"}


@pytest.mark.parametrize("store", ["st", "@%p1 st", "@!%p1 st"])
def test_a_store_before_a_label_does_not_imply_its_guard(store):
    assert faults(f"""
        setp.eq.s32 %p1, %r1, 0;
        setp.eq.s32 %p2, %r1, 7;
        @%p2 bra L9;
        @%p1 bra L1;
        {enter("a")}
        L1: {store}.global.u32 [%rd1], %r1;
        L2: {leave("a")}
        L9: ret;
        bra L2;""")


def test_a_region_open_at_a_guarded_return_is_a_fault():
    body = f"@%p1 bra L1;\n{enter('a')}L1: @!%p1 ret;\nL2: ret;"
    assert ("a", "is still") in faults(body)


@pytest.mark.parametrize("declared", ["%p2", "%p1, %p2", "%p<3>"])
def test_shadowed_registers_are_distinct(declared: str) -> None:
    """The %p2 inside a wait's braces is not the kernel's %p2."""
    body = f"""
        {enter("a")}
        {{ .reg .pred {declared}; W: setp.eq.s32 %p2, %r2, 0; @!%p2 bra W; }}
        @!%p2 bra L1;
        {leave("a")}
        L1: ret;"""
    assert {name for name, _ in faults(body)} == {"a"}


def under_conditions(count: int) -> str:
    """That many regions, each under its own condition, all open at once."""
    enters = "".join(f"@%p{n} bra E{n};\n{enter(f'r{n}')}E{n}:\n" for n in range(count))
    return enters + "".join(f"@%p{n} bra X{n};\n{leave(f'r{n}')}X{n}:\n" for n in range(count)) + "ret;"


def test_several_regions_may_be_open_together_each_under_its_condition() -> None:
    assert faults(under_conditions(6)) == []


def test_too_many_conditions_are_reported() -> None:
    text = HEAD + under_conditions(8) + "\n}\n"
    (function,) = cfg.functions(text)
    found = pairing.check(function, cfg.blocks(function)).faults
    assert {fault.text for fault in found} == {"is under too many conditions to follow"}
    assert len(found) == 2  # the others pair


def test_an_unpaired_name_does_not_affect_other_names() -> None:
    body = f"@%p1 bra L1;\n{enter('a')}L1: setp.eq.s32 %p1, %r2, 0;\n{enter('b')}{leave('a')}{leave('b')}ret;"
    assert {name for name, _ in faults(body)} == {"a"}
