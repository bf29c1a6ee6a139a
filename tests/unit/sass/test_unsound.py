"""Code that the checkers once accepted, and must not."""

from __future__ import annotations

import pytest

from kscope.sass.checks import clobbers, hazards, record_words, register_limits
from kscope.sass.cubin.control_codes import Control
from kscope.sass.cubin.insertion import Word
from kscope.sass.cubin.instructions import BYTES

from .listed import Line, inserted, listed

CLAIM = ("MOV R200, RZ", "ISETP.NE.U32.AND P5, PT, R200, RZ, PT", "@P5 MOV R202, RZ")
"""R202 is written where P5 is true."""


def said(*lines: Line, own: tuple[int, ...] = (), **targets: int) -> str:
    function = listed(*lines, **targets)
    return "\n".join(map(str, clobbers.check(function, inserted(function, *own))))


def test_a_comparison_of_64_bits_is_not_narrowed_from_that_of_its_low_words() -> None:
    """It is true wherever the high words differ. What it is narrowed from is the operand in front."""
    of_low_words = "ISETP.NE.U32.AND.EX P4, PT, R200, RZ, PT, P5"
    narrowed = "ISETP.NE.U32.AND.EX P4, PT, R200, RZ, P5, P3"
    read, end = "@P4 MOV R203, R202", "EXIT"
    own = "NOP"  # before the first own instruction, nothing has a value
    lowest = "ISETP.NE.U32.AND P3, PT, R200, RZ, PT"
    assert "R202 is read" in said(own, *CLAIM, of_low_words, read, end, own=(0,))
    assert said(own, *CLAIM, lowest, narrowed, read, end, own=(0,)) == ""


def test_a_conditional_instruction_writes_for_its_own_lanes_only() -> None:
    """And for those of a predicate that was narrowed from theirs, before or after."""
    narrow = "ISETP.NE.U32.AND P4, PT, R200, RZ, P5"
    again = "ISETP.NE.U32.AND P5, PT, R200, RZ, PT"
    assert said("NOP", *CLAIM, "@P5 MOV R203, R202", "EXIT", own=(0,)) == ""
    assert "R202 is read" in said("NOP", *CLAIM, "MOV R203, R202", "EXIT", own=(0,))
    assert said("NOP", *CLAIM, narrow, "@P4 MOV R203, R202", "EXIT", own=(0,)) == ""
    first = (*CLAIM[:2], narrow, CLAIM[2], "@P4 MOV R203, R202")
    assert said("NOP", *first, "EXIT", own=(0,)) == ""
    other = (*CLAIM[:2], narrow, again, CLAIM[2], "@P4 MOV R203, R202")
    assert "R202 is read" in said("NOP", *other, "EXIT", own=(0,))


SECOND = "ISETP.NE.U32.AND P4, PT, R201, RZ, PT"
"""Another predicate than P5 of CLAIM."""


@pytest.mark.parametrize(("branch", "right"), [("@!P5 BRA `(over)", True), ("@!P5 BRA P4, `(over)", False)])
def test_a_branch_with_two_predicates_is_passed_also_where_its_guard_holds(branch: str, right: bool) -> None:
    lines = ("NOP", "MOV R201, RZ", *CLAIM, SECOND, branch, "MOV R203, R202", "EXIT")
    assert ("R202 is read" not in said(*lines, own=(0,), over=8)) == right


@pytest.mark.parametrize(("branch", "right"), [("@P5 BRA `(over)", True), ("@P5 BRA P4, `(over)", False)])
def test_a_store_may_run_after_a_branch_with_two_predicates_of_which_one_is_its_own(branch: str, right: bool) -> None:
    lines: tuple[Line, ...] = (
        *("MOV R200, RZ", "MOV R201, RZ", "MOV R202, RZ", "MOV R203, RZ", "ISETP.NE.U32.AND P5, PT, R4, RZ, PT"),
        *(branch, "@P5 STG.E.128 desc[UR60][R206.64+0x20], R200", "EXIT"),
    )
    words = {n * BYTES: Word(("mine", "")) for n in (0, 1, 2, 6)} | {3 * BYTES: Word(("other", ""))}
    assert bool(record_words.check(listed(*lines, over=7), words)) != right


@pytest.mark.parametrize("branch", ["BRA P4, `(over)", "BRA.U !UP2, `(over)", "BRA.DIV UR4, `(over)"])
def test_code_after_a_branch_whose_only_condition_is_an_operand_is_reached(branch: str) -> None:
    soon = Control(stall=1)
    function = listed(("MOV R200, RZ", soon), (branch, soon), ("MOV R201, R200", soon), "EXIT", over=3)
    assert ["R200 is read after 2 cycles" in one.what for one in hazards.check(function)] == [True]


def test_registers_are_granted_where_the_repeated_request_has_no_second_way_out() -> None:
    def limit(branch: str) -> int:
        request = ("USETMAXREG.DEALLOC.CTAPOOL 0x18", "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8")
        function = listed(*request, "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0", branch, "EXIT", again=1)
        return register_limits.limits(function)[4 * BYTES]

    assert limit("@!P0 BRA `(again)") == 0xE8
    assert limit("@!P0 BRA P1, `(again)") == 0x18


def test_a_predicate_is_back_only_if_its_bit_alone_was_saved() -> None:
    def around(mask: str, restore: str) -> str:
        saved = f"P2R R200, PR, RZ, {mask}"
        use = "ISETP.NE.U32.AND P0, PT, R201, RZ, PT"
        return said(
            "ISETP.NE.U32.AND P0, PT, R4, RZ, PT",
            *("MOV R201, RZ", saved, use, restore),
            "@P0 EXIT",
            "EXIT",
            own=(0, 5, 6),
        )

    good = "ISETP.NE.U32.AND P0, PT, R200, RZ, PT"
    assert around("0x1", good) == ""
    assert "P0 was overwritten, and is not restored" in around("0x3", good)
    assert "P0 was overwritten, and is not restored" in around("0x1", good.replace(".AND", ".OR"))


def uniform(*branch: str) -> str:
    """Inserted code behind a branch overwrites UR4, which own code at the branch's other side writes and reads."""
    lines = ("NOP", *branch, "ULDC.64 UR4, c[0x0][0x208]", "EXIT", "ULDC.64 UR4, c[0x0][0x210]", "BRA `(back)")
    back = len(branch) + 1
    return said(*lines, own=(0, back, back + 1), back=back, over=back + 2)


def test_lanes_that_an_inserted_branch_parts_keep_off_what_belongs_to_the_warp() -> None:
    by_lane = ("S2R R200, SR_LANEID", "ISETP.NE.U32.AND P5, PT, R200, RZ, PT", "@P5 BRA `(over)")
    of_all = ("MOV R200, RZ", "ISETP.NE.U32.AND P5, PT, R200, RZ, PT", "@P5 BRA `(over)")
    vote = (*by_lane[:2], "VOTE.ANY P4, P5", "@P4 BRA `(over)")
    also_by_lane = (*of_all[:2], *by_lane[:1], "ISETP.NE.U32.AND P4, PT, R200, RZ, PT", "@P5 BRA P4, `(over)")
    assert "UR4 belongs to the whole warp" in uniform(*by_lane)
    assert "UR4 belongs to the whole warp" in uniform(*also_by_lane)
    assert uniform(*of_all) == uniform(*vote) == ""


def test_lanes_that_meet_again_in_inserted_code_have_the_warp_to_themselves() -> None:
    def met(last: str) -> str:
        lines = (
            *("NOP", "S2R R200, SR_LANEID", "ISETP.NE.U32.AND P5, PT, R200, RZ, PT", "BSSY B0, `(met)"),
            *("@P5 BRA `(met)", "ULDC.64 UR4, c[0x0][0x210]", last, "ULDC.64 UR4, c[0x0][0x208]", "EXIT"),
        )
        return said(*lines, own=(0, 7, 8), met=6)

    assert met("BSYNC B0") == ""
    assert "UR4 belongs to the whole warp" in met("NOP")


def test_what_does_not_run_writes_no_word_of_a_record() -> None:
    """On the way on which P5 is false, the record's last word is that of another one."""
    lines: tuple[Line, ...] = (
        *("MOV R200, RZ", "MOV R201, RZ", "MOV R202, RZ", "MOV R203, RZ", "ISETP.NE.U32.AND P5, PT, R4, RZ, PT"),
        *("@P5 BRA `(over)", "NOP", "@P5 MOV R203, RZ", "STG.E.128 desc[UR60][R206.64+0x20], R200", "EXIT"),
    )
    function = listed(*lines, over=7)
    words = {n * BYTES: Word(("mine", "")) for n in (0, 1, 2, 7, 8)} | {3 * BYTES: Word(("other", ""))}
    assert "R203 of record 'mine' was not written by its marks alone" in "\n".join(
        map(str, record_words.check(function, words))
    )


@pytest.mark.parametrize(
    ("test", "together"),
    [
        (("UISETP.GT.U32.AND UP0, UPT, UR7, 0x4, UPT", "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0"), True),
        (("MOV R3, R4", "ISETP.NE.U32.AND P0, PT, R3, RZ, PT"), False),
        (("IMAD.U32 R3, RZ, RZ, UR7", "ISETP.NE.U32.AND P0, PT, R3, RZ, PT"), True),
        (("LDG.E R3, desc[UR4][R4.64]", "ISETP.NE.U32.AND P0, PT, R3, RZ, PT"), False),
        (("@P1 MOV R3, RZ", "ISETP.NE.U32.AND P0, PT, R3, RZ, PT"), False),
    ],
)
def test_lanes_stay_together_at_a_branch_of_the_kernel_that_depends_on_uniform_values(
    test: tuple[str, str], together: bool
) -> None:
    function = listed(*test, "@P0 BRA `(over)", "R2UR UR40, R200", "NOP", "EXIT", over=4)
    found = clobbers.check(function, frozenset({3 * BYTES}), {3 * BYTES: frozenset({"R200"})})
    assert any("may have diverged" in one.what for one in found) is not together
