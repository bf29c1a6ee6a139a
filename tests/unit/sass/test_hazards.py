"""The checker accepts what ptxas writes, and rejects an instruction that is put where it races or takes a register."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kscope.sass.checks import clobbers, hazards
from kscope.sass.cubin import insert
from kscope.sass.cubin.control_codes import Control
from kscope.sass.cubin.insertion import Insertion, New
from kscope.sass.cubin.instructions import Function, Instruction
from kscope.sass.encoding import forms, writing

from .kernels import BRANCHING, CONTRACT, EACH, HEAD, assembled, contract, functions, needs_tools

pytestmark = needs_tools
COPIES = (
    HEAD
    + """.visible .entry copies(.param .u64 p) {
    .reg .b64 %d<3>; .reg .b32 %r<9>; .reg .pred %p; .shared .align 16 .b8 kept[8192];
    ld.param.u64 %d1, [p]; cvta.to.global.u64 %d1, %d1; mov.u32 %r1, %tid.x; mov.u32 %r2, kept;
    mad.lo.u32 %r2, %r1, 16, %r2; mul.wide.u32 %d2, %r1, 16; add.u64 %d1, %d1, %d2; mov.u32 %r3, 0;
LOOP:
    cp.async.cg.shared.global [%r2], [%d1], 16; cp.async.commit_group;
    cp.async.wait_group 1; bar.sync 0; ld.shared.u32 %r4, [%r2]; add.u64 %d1, %d1, 8192; st.global.u32 [%d1], %r4;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p, %r3, 100; @%p bra LOOP;
    ret; }
"""
)
"""Asynchronous copies, of which one stays in flight."""
TENSOR = (
    HEAD
    + """.visible .entry tensor(.param .u64 p, .param .u64 a, .param .u64 b) {
    .reg .b64 %d<4>; .reg .f32 %f<5>;
    ld.param.u64 %d1, [p]; ld.param.u64 %d2, [a]; ld.param.u64 %d3, [b]; cvta.to.global.u64 %d1, %d1;
    mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d2, %d3, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    st.global.v4.f32 [%d1], {%f1, %f2, %f3, %f4}; ret; }
"""
)
"""A product of the tensor cores, which run while the warp goes on."""
FEWER = (
    HEAD
    + """.visible .entry fewer(.param .u64 p) .maxntid 128 .maxnreg 64 {
    .reg .b64 %d; ld.param.u64 %d, [p]; setmaxnreg.dec.sync.aligned.u32 24; bar.sync 0; st.global.u32 [%d], 1; ret; }
"""
)
WIDE = (
    HEAD
    + """.visible .entry wide(.param .u64 p) {
    .reg .b64 %d<6>; .reg .b32 %r<5>; ld.param.u64 %d1, [p];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %ctaid.x;
    cvt.s64.s32 %d2, %r1; mul.wide.s32 %d3, %r2, %r3; add.s64 %d2, %d2, %d3;
    shl.b64 %d4, %d2, 3; add.s64 %d1, %d1, %d4; st.global.u64 [%d1], %d2; ret; }
"""
)
"""A wide multiplication, which reads the high half of its addend one cycle late."""
SPIN = (
    HEAD
    + """.visible .entry spin(.param .u64 p, .param .u32 n) {
    .reg .b64 %d; .reg .b32 %r<3>; .reg .pred %p; ld.param.u64 %d, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, 0;
LOOP: bar.sync 0; add.u32 %r2, %r2, 3; setp.lt.u32 %p, %r2, %r1; @%p bra LOOP;
    st.global.u32 [%d], %r2; ret; }
"""
)
"""A loop without memory, whose scoreboards would be waited for."""

Chosen = Callable[[Function], Insertion]


def found(text: str, chosen: Chosen) -> str:
    """The findings of the two checkers in a kernel with an insertion."""
    data = assembled(text)
    (kernel,) = functions(data)
    insertion = replace(chosen(kernel), registers=210)
    (after,) = functions(insert.inserted(data, kernel, insertion))
    new = insert.inserted_addresses(kernel, insertion).keys()
    assert new
    return "\n".join(map(str, (*hazards.check(after, new), *clobbers.check(after, new))))


def new(*instructions: tuple[str, Control]) -> list[New]:
    return [New(forms.word(text, code)) for text, code in instructions]


def named(kernel: Function, *names: str) -> Instruction:
    """The first instruction of one of these opcodes."""
    return next(one for one in kernel.instructions if one.name in names)


def after(name: str, *instructions: tuple[str, Control]) -> Chosen:
    return lambda kernel: Insertion(after={named(kernel, name).at: new(*instructions)})


def before(name: str, *instructions: tuple[str, Control]) -> Chosen:
    return lambda kernel: Insertion({named(kernel, name).at: new(*instructions)})


SLOW = Control(stall=15)
CLOCK, CLOCK_END = "CS2R.32 R200, SR_CLOCKLO", "CS2R.32 R202, SR_CLOCKLO"
STORE = "@!P5 STG.E.128 desc[UR60][R204.64], R200"
SETUP: Sequence[tuple[str, Control]] = (
    ("ULDC.64 UR60, c[0x0][0x208]", SLOW),
    ("MOV R204, R255".replace("R255", "RZ"), Control()),
    ("MOV R205, RZ", Control()),
    ("MOV R201, RZ", Control()),
    ("MOV R203, RZ", Control(stall=6)),
    ("ISETP.NE.U32.AND P5, PT, R204, RZ, PT", Control(stall=13)),
)
"""A record's registers, none of which the kernels use."""


@pytest.mark.parametrize(
    "text", [BRANCHING, COPIES, TENSOR, FEWER, WIDE], ids=["branching", "copies", "tensor", "fewer", "wide"]
)
@pytest.mark.parametrize("tool", EACH)
def test_code_of_every_assembler_is_accepted(text: str, tool: str) -> None:
    (kernel,) = functions(assembled(text, tool))
    assert hazards.check(kernel) == ()


@pytest.mark.parametrize("name", [CONTRACT[1], *(pytest.param(one, marks=pytest.mark.variation) for one in CONTRACT)])
def test_code_of_the_contract_is_accepted(name: str) -> None:
    (kernel,) = functions(contract(name))
    assert hazards.check(kernel) == ()


def test_a_record_with_its_waits_is_accepted() -> None:
    def record(kernel: Function) -> Insertion:
        here = named(kernel, "BAR").at
        begin = new((CLOCK, Control(waits=frozenset({5}))))
        end = new((CLOCK_END, Control(stall=10)), (STORE, Control(stall=2, reads=5)))
        return Insertion({0: new(*SETUP), here: begin}, {here: end})

    assert found(BRANCHING, record) == ""


@pytest.mark.parametrize(
    ("missing", "chosen", "said"),
    [
        ("cycles behind a clock", ((CLOCK_END, Control(stall=4)), (STORE, Control(stall=2, reads=5))), "takes 8"),
        (
            "cycles in front of a guard",
            (("ISETP.NE.U32.AND P5, PT, R204, RZ, PT", Control(stall=5)), (STORE, Control(stall=2, reads=5))),
            "P5 is read after 5 cycles; its result takes 13",
        ),
        (
            "cycles of an addition",
            (("IADD3 R204, R204, 0x10, RZ", Control(stall=2)), (STORE, Control(stall=2, reads=5))),
            "R204 is read after 2 cycles; its result takes 5",
        ),
        (
            "a wait for a store's operands",
            ((STORE, Control(stall=2, reads=5)), (CLOCK, Control())),
            "R200 may still be read: scoreboard 5 was not waited for",
        ),
        (
            "a scoreboard for a store's operands",
            ((STORE, Control(stall=2)), (CLOCK, Control())),
            "R200 may still be read: no scoreboard counts it",
        ),
        (
            "cycles until a scoreboard counts",
            ((STORE, Control(stall=1, reads=5)), (CLOCK, Control(waits=frozenset({5})))),
            "scoreboard 5 is waited for after 1 cycle; it counts after 2",
        ),
        (
            "a wait for a special register",
            (("S2R R201, SR_LANEID", Control(stall=15, writes=5)), ("IADD3 R204, R201, 0x10, RZ", SLOW)),
            "R201 may not be written yet: scoreboard 5 was not waited for",
        ),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) and " " in value else "",
)
def test_without_something_it_is_rejected(missing: str, chosen: Sequence[tuple[str, Control]], said: str) -> None:
    def record(kernel: Function) -> Insertion:
        return Insertion({0: new(*SETUP)}, {named(kernel, "BAR").at: new(*chosen)})

    assert said in found(BRANCHING, record), missing


def test_a_store_of_the_previous_iteration_is_waited_for() -> None:
    """The end of a loop's body precedes its beginning."""

    def record(kernel: Function) -> Insertion:
        (to,) = {one.target for one in kernel.instructions if one.name == "BRA" and (one.target or 0) < one.at}
        here = next(one.at for one in kernel.instructions if one.name == "BAR" and one.at >= (to or 0))
        begin, end = new((CLOCK, SLOW)), new((CLOCK_END, Control(stall=10)), (STORE, Control(stall=2, reads=5)))
        return Insertion({0: new(*SETUP), here: begin}, {here: end})

    assert "R200 may still be read: scoreboard 5" in found(SPIN, record)


def test_a_register_that_is_needed_later_is_not_free() -> None:
    def clock(kernel: Function) -> Insertion:
        where = named(kernel, "BAR")
        later = (one for one in kernel.instructions if one.at > where.at and one.name == "STG")
        (needed, *_) = sorted(one for one in next(later).reads if one[0] == "R")
        return Insertion({where.at: new((f"CS2R.32 {needed}, SR_CLOCKLO", SLOW))})

    assert "is overwritten, but the code still needs it" in found(BRANCHING, clock)


def test_a_register_that_a_load_will_write_is_not_free() -> None:
    def clock(kernel: Function) -> Insertion:
        load = named(kernel, "LDG")
        return Insertion(after={load.at: new((f"CS2R.32 {load.operands[0]}, SR_CLOCKLO", SLOW))})

    assert "may not be written yet" in found(BRANCHING, clock)


def test_a_register_that_a_store_still_reads_is_not_free() -> None:
    def clock(kernel: Function) -> Insertion:
        store = next(one for one in reversed(kernel.instructions) if one.name == "STG")
        return Insertion(after={store.at: new((f"CS2R.32 {store.operands[-1]}, SR_CLOCKLO", SLOW))})

    said = found(BRANCHING, clock)
    assert "may still be read" in said and "overwritten" not in said  # no later instruction needs it


def test_a_register_that_an_asynchronous_copy_reads_is_not_free() -> None:
    def clock(kernel: Function) -> Insertion:
        copy = named(kernel, "LDGSTS")
        (low, *_) = sorted(one for one in copy.reads if one[0] == "R")
        return Insertion(after={copy.at: new((f"CS2R.32 {low}, SR_CLOCKLO", SLOW))})

    assert "may still be read" in found(COPIES, clock)


def test_accumulators_are_in_use_until_the_tensor_cores_were_waited_for() -> None:
    def clock(kernel: Function) -> Insertion:
        (accumulator,) = {one.operands[0] for one in kernel.instructions if one.name == "HGMMA"}
        return Insertion(after={named(kernel, "HGMMA").at: new((f"CS2R.32 {accumulator}, SR_CLOCKLO", SLOW))})

    assert "may not be written yet: no scoreboard counts it" in found(TENSOR, clock)


def test_a_scoreboard_that_a_depbar_counts_in_flight_is_not_shared() -> None:
    (kernel,) = functions(assembled(COPIES))
    counting = [one for one in kernel.instructions if one.name == "DEPBAR" and one.operands[-1] == "0x1"]
    board = int(counting[0].operands[0].removeprefix("SB"))
    special = ("S2R R201, SR_LANEID", Control(stall=15, writes=board))
    assert f"a DEPBAR counts scoreboard {board}" in found(COPIES, after("LDGSTS", special))


def test_uniform_registers_and_convergence_barriers_belong_to_the_warp() -> None:
    (kernel,) = functions(assembled(BRANCHING))
    used = min(name for one in kernel.instructions for name in one.writes if name.startswith("UR"))
    number = int(used.removeprefix("UR")) // 2 * 2
    said = found(BRANCHING, before("BAR", (f"ULDC.64 UR{number}, c[0x0][0x208]", SLOW)))
    assert f"{used} belongs to the whole warp" in said
    assert found(BRANCHING, before("BAR", ("ULDC.64 UR60, c[0x0][0x208]", SLOW))) == ""

    def join(kernel: Function) -> Insertion:
        here = named(kernel, "BAR").at
        return Insertion({here: [New(forms.word("BSSY B0, `()", SLOW), to=here)]})

    assert "B0 belongs to the whole warp" in found(BRANCHING, join)


def test_a_lane_gives_its_value_to_the_warp_only_where_the_warp_is_whole() -> None:
    """R2UR takes the value of the lowest active lane: of lanes that have diverged, the last ones' would stay."""
    given = "R2UR UR59, R200", SLOW
    assert "where the lanes may have diverged" in found(BRANCHING, before("BAR", given))
    written = ("MOV R200, RZ", SLOW)
    assert found(BRANCHING, lambda kernel: Insertion({kernel.instructions[1].at: new(written, given)})) == ""


RECORD = "STG.E.128 [RZ.U32+UR56+0x20], R200"


@pytest.mark.parametrize(("stall", "said"), [(4, "UR56"), (15, "")])
def test_a_store_waits_for_its_uniform_address(stall: int, said: str) -> None:
    def stored(kernel: Function) -> Insertion:
        zeros = (f"MOV R{number}, RZ" for number in range(200, 204))
        steps = [*((zero, SLOW) for zero in zeros), ("UMOV UR57, URZ", SLOW)]
        last = ("R2UR UR56, R200", Control(stall=stall)), (RECORD, Control(stall=2, reads=5))
        return Insertion({kernel.instructions[1].at: new(*steps, *last)})

    assert said in found(BRANCHING, stored) if said else found(BRANCHING, stored) == ""


def test_a_uniform_address_that_the_code_overwrites_is_lost() -> None:
    (kernel,) = functions(assembled(BRANCHING))
    first, last = (one.at for one in (kernel.instructions[1], named(kernel, "BAR")))
    between = [one for one in kernel.instructions if first <= one.at < last]
    used = min({int(name[2:]) // 2 * 2 for one in between for name in one.writes if name.startswith("UR")})

    def stored(kernel: Function) -> Insertion:
        store = RECORD.replace("UR56", f"UR{used}")
        return Insertion({first: new((f"ULDC.64 UR{used}, c[0x0][0x208]", SLOW)), last: new((store, SLOW))})

    assert f"UR{used} is read, but no inserted instruction wrote it on every path" in found(BRANCHING, stored)


def test_registers_that_the_warp_gave_back_are_not_used() -> None:
    assert "R200 does not exist: USETMAXREG leaves 24 registers" in found(FEWER, before("BAR", (CLOCK, SLOW)))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("", ""),
        ("save", "is overwritten, but the code still needs it"),
        ("restore", "was overwritten, and is not restored where the code needs it"),
        ("its register", "was overwritten, and is not restored where the code needs it"),
    ],
)
def test_a_predicate_may_be_overwritten_between_saving_and_restoring_it(missing: str, said: str) -> None:
    def used(kernel: Function) -> Insertion:
        branch = next(one for one in kernel.instructions if one.name == "BRA" and one.guard.startswith("@P"))
        name = branch.guard.lstrip("@!")
        steps = {
            "before": ("MOV R200, RZ", SLOW),
            "save": (f"P2R R200, PR, RZ, {1 << int(name[1:]):#x}", SLOW),
            "its register": ("NOP", SLOW),
            "use": (f"ISETP.NE.U32.AND {name}, PT, R204, RZ, PT", SLOW),
            "restore": (f"ISETP.NE.U32.AND {name}, PT, R200, RZ, PT", SLOW),
        }
        if missing == "its register":
            steps[missing] = ("MOV R200, RZ", SLOW)
        else:
            steps.pop(missing, None)
        return Insertion({0: new(*SETUP), branch.at: new(*steps.values())})

    assert said in found(BRANCHING, used) if said else found(BRANCHING, used) == ""


def test_a_uniform_register_is_free_where_the_warp_has_not_diverged() -> None:
    """If it has no value there."""
    (kernel,) = functions(assembled(BRANCHING))
    first = next(one.at for one in kernel.instructions if one.name in ("BRA", "EXIT"))
    written = {
        name: one.at
        for one in reversed(kernel.instructions)
        for name in one.writes
        if name.startswith("UR") and int(name[2:]) % 2 == 0
    }
    late = next((name for name, at in written.items() if at > first), None)
    early = next(name for name, at in written.items() if at < first)
    used = next(one.at for one in kernel.instructions if early in one.reads)
    taken = f"ULDC.64 {early}, c[0x0][0x208]"
    said = found(BRANCHING, lambda kernel: Insertion({used: new((taken, SLOW))}))
    assert f"{early} belongs to the whole warp" in said
    if late is not None:
        free = f"ULDC.64 {late}, c[0x0][0x208]"
        assert found(BRANCHING, lambda kernel: Insertion({kernel.instructions[1].at: new((free, SLOW))})) == ""


def test_an_inserted_value_that_the_code_overwrites_is_lost() -> None:
    def kept(kernel: Function) -> Insertion:
        (written, *_) = (one for one in named(kernel, "S2R").writes)
        first = new((f"MOV {written}, RZ", SLOW))
        return Insertion({0: first, named(kernel, "BAR").at: new((f"IADD3 R200, {written}, 0x10, RZ", SLOW))})

    assert "is read, but no inserted instruction wrote it on every path" in found(BRANCHING, kept)


def test_a_value_written_on_one_path_only_is_missed() -> None:
    def kept(kernel: Function) -> Insertion:
        one_side = named(kernel, "MUFU").at
        return Insertion(
            {one_side: new((CLOCK, SLOW)), named(kernel, "BAR").at: new(("IADD3 R202, R200, 0x1, RZ", SLOW))}
        )

    assert "R200 is read, but no inserted instruction wrote it on every path" in found(BRANCHING, kept)


OPEN = "ISETP.NE.U32.AND P5, PT, R200, RZ, PT", SLOW


def at_rest(*marks: tuple[str, Control]) -> Chosen:
    """Code after the kernel writes R202 if P5 is true; marks are before the store."""

    def chosen(kernel: Function) -> Insertion:
        first, store = kernel.instructions[1].at, named(kernel, "STG").at
        asks = [*new(("MOV R200, RZ", SLOW), OPEN), writing.new("@P5 BRA `()", Control(stall=5), to="claim")]
        back = writing.new("BRA `()", Control(stall=5), to=insert.label_of(first))
        claim = [writing.new("MOV R202, RZ", SLOW, label="claim"), back]
        return Insertion({first: asks, store: new(*marks)}, tail=claim)

    return chosen


def test_what_the_claim_writes_is_read_only_under_the_predicate_that_leads_to_it() -> None:
    assert found(SPIN, at_rest(("@P5 MOV R203, R202", SLOW))) == ""
    assert "R202 is read, but no inserted instruction wrote" in found(SPIN, at_rest(("MOV R203, R202", SLOW)))
    assert "R202 is read, but no inserted" in found(SPIN, at_rest(("@!P5 MOV R203, R202", SLOW)))


def test_a_predicate_that_is_narrowed_from_another_one_counts_as_that_one() -> None:
    narrow = "ISETP.NE.U32.AND P4, PT, R200, RZ, P5", SLOW
    wide = "ISETP.NE.U32.AND P4, PT, R200, RZ, PT", SLOW
    read = "@P4 MOV R203, R202", SLOW
    assert found(SPIN, at_rest(narrow, read)) == ""
    assert "R202 is read" in found(SPIN, at_rest(wide, read))


def test_a_predicate_that_is_written_again_proves_nothing() -> None:
    assert "R202 is read" in found(SPIN, at_rest(OPEN, ("@P5 MOV R203, R202", SLOW)))


@pytest.mark.parametrize(("cycles", "wrong"), [(12, True), (13, False)])
def test_a_vote_reads_predicates_as_late_as_a_guard(cycles: int, wrong: bool) -> None:
    votes = (OPEN[0], Control(stall=cycles)), ("VOTE.ANY P4, P5", SLOW)
    said = found(SPIN, before("STG", ("MOV R200, RZ", SLOW), *votes))
    assert ("P5 is read after 12 cycles" in said) == wrong
