"""A kernel claims its slab where its own loads are on their way, in registers that it does not use yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kscope import ptx
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.machine_code.elf import read
from kscope.sass.checks import hazards, kernel_check
from kscope.sass.cubin import insert
from kscope.sass.cubin.control_codes import Control, control, controlled
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import BYTES, Function, Instruction
from kscope.sass.encoding import writing
from kscope.sass.recording import claim_registers, claiming, fragments, liveness, registers
from kscope.sass.recording.registers import Allocation

from .kernels import HEAD, assembled, functions, needs_tools
from .listed import listed

pytestmark = needs_tools
KERNEL = ptx.Kernel(Recording(), ("elected",), 8, ("1", "2"), 90)
LOADING = (
    HEAD
    + """.visible .entry loading(.param .u64 p, .param .u32 n) .reqntid 128
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<6>; .reg .f32 %f<12>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mul.wide.u32 %d2, %r2, 16;
    add.u64 %d3, %d1, %d2; setp.gt.u32 %p1, %r1, 7;
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d3]; ld.global.v4.f32 {%f5, %f6, %f7, %f8}, [%d3+4096];
    add.f32 %f1, %f1, %f5; add.f32 %f2, %f2, %f6; add.f32 %f3, %f3, %f7; add.f32 %f4, %f4, %f8;
    @%p1 mul.f32 %f1, %f1, %f1;
    st.global.v4.f32 [%d3], {%f1, %f2, %f3, %f4};
    ret;
}
"""
)
STORING = LOADING.replace("loading", "storing").replace("ld.global.v4.f32", "mov.v4.f32")
FAR = 1 << 20


def kernel(text: str = LOADING) -> Function:
    (found,) = functions(assembled(text))
    return found


def piece() -> fragments.Fragment:
    data = assembled(HEAD + fragments.text(KERNEL))
    (found,) = functions(data)
    return fragments.read(read(data), found)


def allocation(function: Function) -> Allocation:
    return registers.Pool(function, False).owned((), {})


def placed(stores: int = FAR, most: int = 255) -> claiming.Claim:
    function = kernel()
    return claiming.place_claim(function, piece(), KERNEL, allocation(function), {}, stores, 0, most)


def insertion(found: claiming.Claim) -> Insertion:
    put = {0: found.begin}
    put[found.loaded] = (*put.get(found.loaded, ()), *found.load)
    put[found.at] = (*put.get(found.at, ()), *found.test)
    tail = [*claiming.with_return(found, put, len(put[found.at])), *found.aside]
    return Insertion(put, tail=tail, registers=250)


def inserted(found: claiming.Claim) -> list[Instruction]:
    """The instructions of a claim in the kernel's code."""
    (after,) = functions(insert.inserted(assembled(LOADING), kernel(), insertion(found)))
    added = insert.inserted_addresses(kernel(), insertion(found))
    return [one for one in after.instructions if one.at in added]


def loads() -> list[int]:
    return [one.at for one in kernel().instructions if one.name == "LDG"]


def test_it_stands_behind_the_kernels_loads_and_in_front_of_what_waits_for_them() -> None:
    found = placed()
    waits = next(one.at for one in kernel().instructions if one.at > loads()[-1] and one.name.startswith("FADD"))
    assert loads()[-1] < found.at <= waits


def test_it_uses_no_register_that_has_a_value_there() -> None:
    function, found = kernel(), placed()
    mine = inserted(found)
    assert len(mine) > 100
    needed = liveness.live(function.instructions)[found.at] | hazards.in_flight(function)[found.at]
    written = {name for one in mine for name in one.writes if name[0] == "R"}
    assert not needed & written


def test_what_a_lane_never_changes_is_in_uniform_registers_that_the_kernel_leaves() -> None:
    """Where one lane of a warp records; else, and on architectures before sm_90, in registers of the lane."""
    function = kernel()
    own, alone = (registers.Pool(function, False, alone=alone).owned((), {}).state for alone in (False, True))
    assert (own.uniform, alone.uniform) == (frozenset(), frozenset({59, 60, 61}))
    assert len(own.registers) == len(alone.registers) + 3
    assert fragments.is_one_lane(KERNEL)
    assert not fragments.is_one_lane(replace(KERNEL, specs=("all",))) and not fragments.is_one_lane(
        replace(KERNEL, arch=80)
    )


def using(*numbers: int) -> registers.Pool:
    """A kernel that uses all uniform registers but these, and whose lane 0 records."""
    used = [f"UMOV UR{number}, URZ" for number in range(63) if number not in numbers]
    return registers.Pool(listed(*used, "EXIT"), sized=True, alone=True)


def test_uniform_registers_are_two_in_a_row_that_the_kernel_leaves_and_others() -> None:
    """Where there are no others, only the descriptor is in them: stores need it."""
    state = using(4, 12, 13, 61).owned((), {}).state
    assert (state.base, state.descriptor, state.uniform) == ("UR12", 12, frozenset({4, 12, 13, 61}))
    assert "UR12" in state.place(0) and not state.warp_wide - state.uniform
    assert using(12, 13, 18, 19, 61).owned((), {}).state.uniform == {12, 13, 19, 61}
    odd = using(4, 8, 14, 15, 61).owned((), {}).state
    assert (odd.descriptor, odd.uniform) == (14, frozenset())
    few = using(4, 8, 9).owned((), {}).state
    assert (few.descriptor, few.uniform, few.warp_wide) == (8, frozenset(), frozenset({8, 9}))
    assert few.place(0).startswith("desc[UR8]")
    with pytest.raises(UnsupportedError, match="no two uniform registers in a row"):
        using(4, 6, 9).owned((), {})


def test_uniform_registers_that_ptxas_never_uses_stay_unused() -> None:
    with pytest.raises(UnsupportedError, match="no two uniform registers in a row"):
        using(0, 1, 2, 3, 62).owned((), {})


@pytest.mark.parametrize(("number", "known"), [(2, False), (4, True)])
def test_nvdisasm_must_know_each_uniform_register_of_an_inserted_instruction(number: int, known: bool) -> None:
    """It reads the text of UR2, but that is in no table of its registers."""
    new = writing.new(f"R2UR UR{number}, R8")
    assert new.seen is not None
    read = new.seen if known else replace(new.seen, writes=frozenset())
    assert kernel_check._is_intended(new, read) is known


def test_a_claim_leaves_the_descriptor_to_the_stores_behind_it() -> None:
    function, text = kernel(), piece()
    used = text.used("UR")
    for at in (0, placed().at):
        names = claim_registers.uniform(claim_registers.Known(function, {}, {}), used, at, used)
        assert not used & set(names.values()) and names.keys() == used


def test_values_between_entry_and_claim_are_in_registers_that_nothing_uses_meanwhile() -> None:
    function, found = kernel(), placed()
    ahead = [one for one in function.instructions if one.at < found.at]
    used = {name for one in ahead for name in one.reads | one.writes if name[0] == "R"}
    early = [one for one in (*found.begin, *found.load) if one.seen is not None]
    assert not used & {name for one in early if one.seen for name in one.seen.writes}


def test_a_shut_gate_costs_a_test_and_a_branch() -> None:
    """The claim stands behind the kernel, which goes on where it was."""
    found = placed()
    assert [one.seen.name for one in found.test if one.seen] == ["ISETP", "BRA"]
    assert found.test[-1].to in [one.label for one in found.behind]
    assert insert.label_of(found.at) in [one.to for one in claiming.with_return(found, {}, 0)]


def test_the_claim_waits_for_no_scoreboard_that_counts_the_kernels_loads() -> None:
    """Else it would ask when these are there. If all do, it shares them."""
    function, at = kernel(), placed().at
    ahead = [one.at for one in function.instructions if one.at < at]

    def counted(boards: range) -> set[int]:
        """The claim's scoreboards in a kernel that has these in use."""
        loading = dict(zip(reversed(ahead), boards, strict=False))
        code = tuple(
            replace(one, word=controlled(one.word, Control(stall=4, writes=loading.get(one.at))))
            if one.at < at
            else one
            for one in function.instructions
        )
        return set(claim_registers.boards(replace(function, instructions=code), at)[0].values())

    assert len(ahead) > 6
    assert counted(range(4)) == {4, 5} and counted(range(1, 6)) == {0}
    assert counted(range(6)) == set(range(6))


def test_a_predicate_with_a_value_is_kept_meanwhile() -> None:
    """The kernel's condition is computed in front of its loads, and the claim has no predicate to spare."""
    found = placed()
    needed = {name for name in registers.needed_predicates(kernel())[found.at] if name[0] == "P"}
    saved = [one for one in inserted(found) if one.name == "P2R"]
    free = 7 - len(needed)
    assert len(saved) == max(0, len(piece().used("P")) - free)


def test_it_stands_in_front_of_the_first_mark_that_stores() -> None:
    first, second = loads()
    assert placed(second).at <= second
    assert placed(first).at <= first


@pytest.mark.parametrize("most", [30, 255])
def test_without_registers_it_stands_at_the_entry(most: int) -> None:
    assert (placed(most=most).at == 0) == (most == 30)


def test_registers_of_records_that_are_open_there_are_left_alone() -> None:
    """Other words of the record are written behind the claim."""
    function = kernel()
    own = allocation(function)
    quad = 4 * -(-placed().highest // 8)
    key = ("open", "")
    records = replace(own, quads={key: quad}, own={quad: 7})
    begin = function.instructions[1].at
    opened = {begin: frozenset({quad})}
    found = claiming.place_claim(function, piece(), KERNEL, records, opened, FAR, 0, 255)
    assert found.at > begin
    mine = inserted(found)
    assert f"R{quad}" not in {name for one in mine for name in one.writes}
    ids = [one for one in mine if one.operands[:1] == (f"R{quad + 1}",)]
    assert ids[-1].operands[-1] == "0x7"


def test_nothing_waits_for_the_address_of_the_control_block_or_the_gate_before_the_kernel_does() -> None:
    found = placed()
    function = kernel()
    first = next(one.at for one in function.instructions if one.control.waits)
    assert 0 < found.loaded == first < found.at
    assert not any(control(one.word).waits for one in found.begin)
    address, gate = found.begin[0], found.load[-1]
    assert [control(address.word).writes] == [board for one in found.load for board in control(one.word).waits]
    assert control(gate.word).writes in control(found.test[0].word).waits


def test_where_the_kernel_waits_for_every_scoreboard_the_gate_is_loaded_behind_the_first_of_these() -> None:
    """It has that scoreboard: with another one, the kernel would wait for the gate where it waits for its own."""
    function, at = kernel(), placed().at
    ahead = [one for one in function.instructions if one.at < at]
    waiting = {one.at: Control(stall=4, waits=frozenset({n - 1} if 0 < n <= 6 else ())) for n, one in enumerate(ahead)}
    code = tuple(
        replace(one, word=controlled(one.word, waiting.get(one.at, one.control))) for one in function.instructions
    )
    busy = replace(function, instructions=code)
    _, gate, loaded = claim_registers.boards(busy, at)
    assert len(ahead) > 7
    assert (gate, loaded) == (0, ahead[2].at)
    assert all(gate not in one.control.waits for one in code if loaded <= one.at < at)


def test_it_comes_back_to_the_mark_that_stands_behind_the_test() -> None:
    """In front of the own instruction, where it would pass the mark by."""
    found = placed()
    put = {found.at: [*found.test, writing.new("CS2R.32 R200, SR_CLOCKLO")]}
    ways = [one.to for one in claiming.with_return(found, put, len(found.test))]
    assert put[found.at][-1].label in ways and insert.label_of(found.at) not in ways


def test_the_test_stands_in_front_of_a_loop_that_the_entry_falls_into() -> None:
    """In front of the loop's first instruction it would run in each turn, and claim again."""
    text = f"""{HEAD}.visible .entry turning(.param .u64 p, .param .u32 n) .reqntid 128
{{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<6>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %ctaid.x; mov.u32 %r3, 0;
LOOP:
    .pragma "nounroll";
    st.global.u32 [%d1], %r3; add.u32 %r3, %r3, %r2; setp.lt.u32 %p1, %r3, %r1; @%p1 bra LOOP;
    ret;
}}
"""
    function = kernel(text)
    (head,) = {one.target for one in function.instructions if one.target is not None and one.target < one.at - BYTES}
    assert head
    found = claiming.place_claim(function, piece(), KERNEL, allocation(function), {}, FAR, 0, 255)
    assert found.at < head


def test_what_a_lane_knows_where_the_gate_is_shut_takes_no_register_that_the_claim_still_reads() -> None:
    """Without a predicate for it, ids of records are written in front of the branch to the claim."""
    function = kernel()
    some = allocation(function)
    first = max(some.state.registers) // 4 * 4 + 4
    quads = {("region", number): first + 4 * number for number in range(8)}
    own, state = dict.fromkeys(quads.values(), 0x1111), replace(some.state, on=None)
    known = replace(some, quads=quads, own=own, state=state)  # type: ignore[arg-type]
    found = claiming.place_claim(function, piece(), KERNEL, known, {}, FAR, 0, 255)
    assert found.at
    early, test = (
        {name for one in part if one.seen for name in one.seen.writes if name[0] == "R"}
        for part in ((*found.begin, *found.load), found.test)
    )
    assert {f"R{quad + word}" for quad in quads.values() for word in (1, 3)} <= test
    assert not early & test


def test_a_kept_predicate_is_back_before_ids_of_records_are_written() -> None:
    """In the registers that kept it there may be one."""
    tests = " ".join(f"setp.gt.u32 %p{n}, %r1, {7 * n};" for n in range(1, 7))
    uses = " ".join(f"@%p{n} mul.f32 %f1, %f1, %f{n % 3 + 2};" for n in range(1, 7))
    text = LOADING.replace("%p<4>", "%p<7>").replace("setp.gt.u32 %p1, %r1, 7;", tests)
    function = kernel(text.replace("@%p1 mul.f32 %f1, %f1, %f1;", uses))
    quads = {("region", number): number for number in range(16, 240, 4)}
    known = replace(allocation(function), quads=quads, own=dict.fromkeys(quads.values(), 0x1111))  # type: ignore[arg-type]
    behind = claiming.place_claim(function, piece(), KERNEL, known, {}, FAR, 0, 255).behind
    found = [one.seen for one in behind if one.seen]
    kept = [number for number, one in enumerate(found) if one.name == "P2R"]
    assert kept
    for number in kept:
        register = found[number].operands[0]
        back = next(n for n, one in enumerate(found) if n > number and register in one.reads)
        assert found[back].name == "ISETP"
        assert not any(register in one.writes for one in found[number + 1 : back])
