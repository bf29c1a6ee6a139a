"""A kernel claims its slab where its own loads are on their way, in registers that it does not use yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kscope import ptx
from kscope.instrument.recording import Recording
from kscope.sass import claiming, fragments, insert, registers
from kscope.sass.control import control
from kscope.sass.elf import read
from kscope.sass.instructions import BYTES, Function
from kscope.sass.registers import Allocation

from .kernels import ASSEMBLERS, HEAD, assembled, functions, needs_tools

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


def pieces() -> tuple[fragments.Fragment, fragments.Fragment]:
    data = assembled(HEAD + fragments.texts(KERNEL))
    named = {one.name: one for one in functions(data)}
    begin, claim = (fragments.read(read(data), named[name]) for name in fragments.NAMES[:2])
    return begin, claim


def allocation(function: Function) -> Allocation:
    return registers.Pool(function, False).owned((), {})


def placed(marks: tuple[int, int] = (FAR, FAR), most: int = 255) -> claiming.Claim:
    function = kernel()
    return claiming.placed(function, pieces(), KERNEL, allocation(function), marks, 0, most)


def loads() -> list[int]:
    return [one.at for one in kernel().instructions if one.name == "LDG"]


def test_it_stands_behind_the_kernels_loads_and_in_front_of_what_waits_for_them() -> None:
    found = placed()
    waits = next(one.at for one in kernel().instructions if one.at > loads()[-1] and one.name.startswith("FADD"))
    assert loads()[-1] < found.at <= waits


def test_it_uses_no_register_that_has_a_value_there() -> None:
    function, found = kernel(), placed()
    ahead = [one for one in function.instructions if one.at < found.at]
    used = {name for one in ahead for name in one.reads | one.writes if name[0] == "R"}
    data = assembled(LOADING)
    insertion = insert.Insertion({0: found.begin, found.at: found.claim}, tail=found.behind, registers=250)
    (after,) = functions(insert.inserted(data, function, insertion))
    added = insert.added(function, insertion)
    mine = [one for one in after.instructions if one.at in added]
    assert len(mine) > 100
    assert not used & {name for one in mine for name in one.writes}


def test_a_predicate_with_a_value_is_kept_meanwhile() -> None:
    """The kernel's condition is computed in front of its loads, and the claim has no predicate to spare."""
    function, found = kernel(), placed()
    needed = registers.needed_predicates(function)[found.at]
    data = assembled(LOADING)
    insertion = insert.Insertion({found.at: found.claim}, tail=found.behind, registers=250)
    (after,) = functions(insert.inserted(data, function, insertion))
    saved = [one for one in after.instructions if one.name == "P2R"]
    free = 7 - len(needed)
    assert len(saved) == max(0, len(pieces()[1].used("P")) - free)


def test_it_stands_in_front_of_the_first_mark_that_stores() -> None:
    first, second = loads()
    assert placed((FAR, second)).at <= second
    assert placed((FAR, first)).at <= first


@pytest.mark.parametrize("most", [40, 255])
def test_without_registers_it_stands_at_the_entry(most: int) -> None:
    assert (placed(most=most).at == 0) == (most == 40)


def test_registers_of_records_that_are_open_there_are_left_alone() -> None:
    function = kernel()
    own = allocation(function)
    quad = 4 * -(-placed().highest // 8)
    records = replace(own, quads={("open", ""): quad})  # type: ignore[dict-item]  # a key is a name and a strategy
    begin = function.instructions[1].at
    found = claiming.placed(function, pieces(), KERNEL, records, (begin, FAR), 0, 255)
    assert found.at > begin
    insertion = insert.Insertion({0: found.begin, found.at: found.claim}, tail=found.behind, registers=250)
    (after,) = functions(insert.inserted(assembled(LOADING), function, insertion))
    added = insert.added(function, insertion)
    written = {name for one in after.instructions if one.at in added for name in one.writes}
    assert not written & {f"R{quad + n}" for n in range(4)}


def test_the_gate_is_asked_for_at_once_and_waited_for_late() -> None:
    found = placed()
    assert ASSEMBLERS
    data = assembled(LOADING)
    insertion = insert.Insertion({0: found.begin}, registers=250)
    (after,) = functions(insert.inserted(data, kernel(), insertion))
    begin = after.instructions[: len(found.begin)]
    (gate,) = [one for one in begin if one.name == "LDG"]
    behind = begin[gate.at // BYTES + 1 :]
    assert gate.control.writes is not None
    assert not any(gate.control.writes in one.control.waits for one in behind)
    assert gate.control.writes in control(found.claim[1].word).waits
