"""Marks that do not pair: an error if the user placed them explicitly, a problem if a compiler broke them; other
regions are recorded correctly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ptxvm.cases import Case, cases, execute, judged, left_out
from ptxvm.kernels import loose_kernels
from ptxvm.profile import examples
from ptxvm.writing import HEAD, KernelText

from kscope.capture.model import RegionMeta
from kscope.errors import PairingError, UnsupportedError, UsageError
from kscope.instrument.recording import Recording
from kscope.lowering.plan import lower


def lowered(body: str, **options: object) -> object:
    text = HEAD.format(arch="90") + f'.file 1 "/src" "attention.py"\n.entry attend()\n{{\n{body}\nret;\n}}\n'
    return lower(text, Recording(**options), frontend="test")  # type: ignore[arg-type]  # fields of Recording


@examples(30)
@given(cases(threads=4), st.integers(0, 1 << 10))
def test_a_mark_deleted_by_the_compiler_does_not_affect_other_regions(case: Case, which: int) -> None:
    case = replace(case, kernel=case.kernel.without(which))
    outcome = judged(execute(case), pairs=False)
    named = " ".join(problem.text for problem in outcome.lowered.problems)
    assert all(repr(name) in named for name in left_out(case, outcome.lowered))


@examples(30)
@given(cases(threads=2), st.integers(0, 1 << 10))
def test_deleted_enters_and_exits_are_always_reported(case: Case, which: int) -> None:
    mark = case.kernel.marks[which % len(case.kernel.marks)]
    assume(mark.act in ("enter", "exit"))
    broken = replace(case, kernel=case.kernel.without(which)).lowered()
    if mark.name in {region.name for region in broken.meta.regions}:
        # only if the mark was in unreachable code
        assert not broken.problems
    else:
        assert any(repr(mark.name) in problem.text for problem in broken.problems)


@examples(30)
@given(cases(threads=4, ample=True), loose_kernels())
def test_names_accepted_by_the_pairing_check_pair_on_every_executed_path(case: Case, kernel: KernelText) -> None:
    """The check is sound: of the names that it lets pass, no thread leaves one open, unless by `exit`, enters one at
    another depth, or exits one that is not open."""
    outcome = judged(execute(replace(case, kernel=kernel)), pairs=False)
    for one in outcome.ideals.values():
        assert one.thread.quit or not any(one.open.values()), f"{one.thread.key} leaves {one.open} open"


def test_an_explicit_enter_without_exit_is_refused_with_kernel_region_and_line() -> None:
    with pytest.raises(PairingError) as caught:
        lowered(".loc 1 7 3\n//kscope enter load - - call")
    assert "kernel attend" in str(caught.value)
    assert "'load'" in str(caught.value)


def test_entering_an_open_region_explicitly_is_refused_with_the_remedy() -> None:
    """As when iteration k + 1 begins before k ends: taken innermost first, its records would tell wrong times."""
    turn = (
        "//kscope enter load - - call\nL: //kscope enter load - - call\n//kscope exit load - - call\n"
        "@%p1 bra L;\n//kscope exit load - - call"
    )
    with pytest.raises(PairingError, match=r"region 'load' is entered while it is open.* value= or two names"):
        lowered(turn)


def test_a_with_region_without_exit_is_a_problem_and_the_kernel_compiles() -> None:
    low = lowered("//kscope enter load - - with\n//kscope enter dot - - with\n//kscope exit dot - - with")
    assert [region.name for region in low.meta.regions] == ["dot"]  # type: ignore[attr-defined]  # a Lowered
    (problem,) = low.problems  # type: ignore[attr-defined]  # as above
    assert problem.kind == "pairing"
    assert "'load'" in problem.text


def test_regions_with_exiting_lanes_end_with_the_remaining_lanes() -> None:
    """asm("exit;") in a kernel's source: the compiler's code continues to the region's end. Exited lanes make no
    record of it, as if they had trapped."""
    marks = "//kscope enter load - - {0}\n{1}\n//kscope exit load - - {0}"
    for how in ("with", "call"):
        for leaving in ("@%p1 exit;", "@%p1 bra L;\nexit;\nL:", "trap;", "@%p1 trap;"):
            low = lowered(marks.format(how, leaving))
            assert [region.name for region in low.meta.regions] == ["load"]  # type: ignore[attr-defined]  # a Lowered
            assert not low.problems  # type: ignore[attr-defined]  # as above


def test_too_many_conditions_are_refused_with_the_reason() -> None:
    names = [f"r{n}" for n in range(8)]
    enters = "".join(f"@%p{n} bra E{n};\n//kscope enter {name} - - call\nE{n}:\n" for n, name in enumerate(names))
    exits = "".join(f"@%p{n} bra X{n};\n//kscope exit {name} - - call\nX{n}:\n" for n, name in enumerate(names))
    with pytest.raises(PairingError, match=r"region 'r\d' is under too many conditions to follow"):
        lowered(enters + exits)


def test_one_name_has_one_type_of_value() -> None:
    with pytest.raises(UsageError, match="one type everywhere"):
        lowered("//kscope instant a i32 - call 1\n//kscope instant a f32 - call 1")


@pytest.mark.parametrize("sorts", [("enter", "counter"), ("instant", "enter"), ("counter", "instant")])
def test_a_names_values_have_one_type_for_every_kind_of_mark(sorts: tuple[str, str]) -> None:
    marks = [f"//kscope {act} a {{}} - call {{}}" + ("\n//kscope exit a - - call" * (act == "enter")) for act in sorts]
    with pytest.raises(UsageError, match=r"'a' has a value of type f32 at one place .*and i32 at another"):
        lowered("\n".join((marks[0].format("i32", 1), marks[1].format("f32", 2))))
    if sorts[1] != "counter":  # which always has a value
        (region,) = lowered("\n".join((marks[0].format("i32", 1), marks[1].format("-", "").rstrip()))).meta.regions  # type: ignore[attr-defined]  # a Lowered
        assert region.type == "i32"


def test_kernels_of_a_module_may_give_a_name_values_of_different_types() -> None:
    def module(*types: str) -> tuple[RegionMeta, ...]:
        bodies = [f"//kscope instant a {kind} - call{' 1' * (kind != '-')}\nret;" for kind in types]
        text = HEAD.format(arch="90") + "".join(f".entry k{n}()\n{{\n{body}\n}}\n" for n, body in enumerate(bodies))
        return lower(text, Recording(), frontend="test").meta.regions

    assert [(one.name, one.type, one.kernel) for one in module("i32", "-")] == [("a", "i32", None)]
    assert [(one.name, one.type, one.kernel) for one in module("-", "f32")] == [("a", "f32", None)]
    assert [(one.type, one.kernel) for one in module("i32", "-", "f32")] == [("i32", 0), (None, 1), ("f32", 2)]


def test_marks_in_functions_that_were_not_inlined_are_refused_by_name() -> None:
    text = HEAD.format(arch="90") + ".func helper()\n{\n//kscope instant a - - call\nret;\n}\n.entry k()\n{\nret;\n}\n"
    with pytest.raises(UnsupportedError, match="helper"):
        lower(text, Recording(), frontend="test")


def test_ptx_without_marks_is_returned_unchanged() -> None:
    text = HEAD.format(arch="90") + ".entry k()\n{\nret;\n}\n"
    low = lower(text, Recording(), frontend="test")
    assert low.text is text
    assert not low.meta.kernels


def test_unmarked_kernels_beside_marked_ones_are_unchanged() -> None:
    plain = ".entry plain()\n{\n\tmov.u32 %r1, 1;\nret;\n}\n"
    text = HEAD.format(arch="90") + plain + ".entry k()\n{\n//kscope instant a - - call\nret;\n}\n"
    low = lower(text, Recording(), frontend="test")
    assert plain in low.text
    assert [kernel.name for kernel in low.meta.kernels] == ["k"]


def test_the_same_marks_give_the_same_text_and_another_option_another_kernel_id() -> None:
    def one(**options: object) -> object:
        return lowered("//kscope instant a - - call", **options)

    assert one() == one()
    assert one().meta.kernels[0].id != one(clock="globaltimer").meta.kernels[0].id  # type: ignore[attr-defined]  # a Lowered
