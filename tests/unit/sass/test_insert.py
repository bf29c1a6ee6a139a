"""Code with insertions is the code before, plus the insertions; everything that names its addresses follows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kscope.errors import UnsupportedError
from kscope.machine_code import elf
from kscope.sass.cubin import attributes, insert
from kscope.sass.cubin.control_codes import Control, controlled
from kscope.sass.cubin.insertion import Insertion, New
from kscope.sass.cubin.instructions import BYTES, Function

from .kernels import BRANCHING, CONTRACT, EACH, HEAD, assembled, contract, functions, needs_tools
from .stripping import lines, printed, stripped

pytestmark = needs_tools
NOP = controlled(0x7918, Control())


def some_nops(function: Function, seed: int) -> Insertion:
    """NOPs before a third of the instructions, after a tenth, and after the code."""
    dice = random.Random(seed)

    def nops(share: float) -> dict[int, Sequence[New]]:
        chosen = [one.at for one in function.instructions if dice.random() < share]
        return {at: [New(NOP)] * dice.randrange(1, 4) for at in chosen}

    return Insertion(nops(1 / 3), nops(1 / 10), [New(NOP)] * 3)


def added(function: Function, insertion: Insertion) -> frozenset[int]:
    """Addresses of what is inserted, in the new code."""
    at, found, last = 0, set[int](), function.instructions[-1]
    while last.name == "NOP":
        last = function.instructions[last.at // BYTES - 1]
    for one in function.instructions:
        here = [*insertion.before.get(one.at, ()), None, *insertion.after.get(one.at, ())]
        here += insertion.tail if one is last else ()
        found |= {at + BYTES * number for number, new in enumerate(here) if new is not None}
        at += BYTES * len(here)
    return frozenset(found)


def check(data: bytes, function: Function, insertion: Insertion) -> bytes:
    """Insert, and compare what is left without the inserted instructions with the code before."""
    out = insert.inserted(data, function, insertion)
    before, after = printed(data, function.name), printed(out, function.name)
    new = added(function, insertion)
    assert new == insert.inserted_addresses(function, insertion).keys()
    assert all(after.instructions[at // BYTES].name == "NOP" for at in new)
    kept = stripped(after, new)
    assert kept[: len(before.instructions)] == stripped(before, frozenset())
    assert all(one[1] == "NOP" for one in kept[len(before.instructions) :])  # padding
    places = [one.at for one in after.instructions if one.at not in new]
    was, now = lines(data), lines(out)
    assert [was[one.at] for one in before.instructions] == [now[at] for at in places[: len(before.instructions)]]
    return out


@pytest.mark.parametrize("tool", EACH)
def test_nothing_inserted_changes_no_byte(tool: str) -> None:
    data = assembled(BRANCHING, tool)
    (kernel,) = functions(data)
    assert insert.inserted(data, kernel, Insertion()) == data
    assert insert.inserted(data, kernel, Insertion({0: []}, {16: []})) == data


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.variation)])
def test_without_its_nops_the_code_is_the_code_before(tool: str, seed: int) -> None:
    data = assembled(BRANCHING, tool)
    (kernel,) = functions(data)
    assert {"BRA", "BSSY", "BSYNC", "EXIT"} <= {one.name for one in kernel.instructions}
    check(data, kernel, some_nops(kernel, seed))


@pytest.mark.variation
@pytest.mark.parametrize("name", CONTRACT)
def test_kernels_of_the_contract_take_nops(name: str) -> None:
    data = contract(name)
    (kernel,) = functions(data)
    assert insert.inserted(data, kernel, Insertion()) == data
    check(data, kernel, some_nops(kernel, 3))


def test_branches_go_to_what_is_inserted_before_and_skip_what_is_inserted_after() -> None:
    data = assembled(BRANCHING)
    (kernel,) = functions(data)
    (to,) = {one.target for one in kernel.instructions if one.name == "BRA" and one.target and one.target < one.at}
    out = insert.inserted(data, kernel, Insertion({to: [New(NOP)]}, {to - BYTES: [New(NOP)] * 2}))
    after = printed(out, kernel.name)
    assert [after.instructions[to // BYTES + n].name for n in range(3)] == ["NOP"] * 3
    back = {one.target for one in after.instructions if one.name == "BRA" and one.target and one.target < one.at}
    assert back == {to + 2 * BYTES}


def test_inserted_branches_lead_to_old_addresses_and_new_labels() -> None:
    data = assembled(BRANCHING)
    (kernel,) = functions(data)
    branch = next(one for one in kernel.instructions if one.name == "BRA")
    entry = [New(branch.word, to="there"), New(NOP), New(NOP, label="there"), New(branch.word, to=0x40)]
    out = printed(insert.inserted(data, kernel, Insertion({0: entry})), kernel.name)
    assert [out.instructions[n].target for n in (0, 3)] == [2 * BYTES, 0x40 + 4 * BYTES]


def test_an_operand_is_not_kept_for_an_inserted_instruction() -> None:
    body = "".join(f"fma.rn.f32 %f{n}, %f1, %f2, %f{n}; " for n in range(3, 9))
    loads = "".join(f"ld.global.f32 %f{n}, [%d+{4 * n}]; " for n in range(1, 9))
    stores = "".join(f"st.global.f32 [%d+{4 * n}], %f{n}; " for n in range(3, 9))
    text = f"{{ .reg .f32 %f<9>; .reg .b64 %d; ld.param.u64 %d, [p]; {loads} {body} {stores} ret; }}"
    data = assembled(HEAD + f".visible .entry k(.param .u64 p) {text}", options=())
    (kernel,) = functions(data)
    keeps = [one for one in kernel.instructions if one.control.reuse]
    out = insert.inserted(data, kernel, Insertion(after={one.at: [New(NOP)] for one in keeps}))
    assert keeps and not any(one.control.reuse for one in printed(out, kernel.name).instructions)


@pytest.mark.parametrize("tool", EACH)
def test_attributes_symbols_and_registers_follow(tool: str) -> None:
    data = assembled(BRANCHING, tool)
    (kernel,) = functions(data)
    leaves = next(one for one in kernel.instructions if one.name == "EXIT" and one.conditional)
    insertion = Insertion({0x20: [New(NOP)] * 9, leaves.at: [New(leaves.word)]}, registers=77)
    out = insert.inserted(data, kernel, insertion)
    file, (after,) = elf.read(out), functions(out)
    own, shared = file.find(".nv.info.branching"), file.find(".nv.info")
    assert own is not None and shared is not None
    exits = {one.number: attributes.addresses(one) for one in attributes.read(own.content)}[attributes.EXITS]
    assert exits == tuple(one.at for one in after.instructions if one.name == "EXIT")
    assert len(exits) == 1 + sum(one.name == "EXIT" for one in kernel.instructions)
    counts = [one.payload[4] for one in attributes.read(shared.content) if one.number == attributes.REGISTERS]
    assert counts == [77]
    (symbol,) = [one for one in file.symbols() if one.name == "branching"]
    assert symbol.size == after.size > kernel.size


def _spilling() -> str:
    """A kernel with more values than registers."""
    names = range(40)
    body = "".join(f"ld.global.volatile.f32 %f{n}, [%d+{4 * n}]; " for n in names)
    body += "".join(f"st.global.volatile.f32 [%d+{4 * n}], %f{n}; " for n in names)
    start = ".visible .entry k(.param .u64 p) .maxntid 32 .maxnreg 24 { .reg .f32 %f<40>; .reg .b64 %d; "
    return f"{HEAD}{start}ld.param.u64 %d, [p]; cvta.to.global.u64 %d, %d; {body} ret; }}"


@pytest.mark.parametrize("tool", EACH)
def test_annotations_follow_the_accesses_of_spilled_registers(tool: str) -> None:
    data = assembled(_spilling(), tool)
    (kernel,) = functions(data)

    def annotated(cubin: bytes) -> list[int]:
        own, (function,) = elf.read(cubin).find(".nv.info.k"), functions(cubin)
        assert own is not None
        some = [one for one in attributes.read(own.content) if one.number == attributes.ANNOTATIONS]
        return [function.instructions[at // BYTES].word for one in some for at in attributes.addresses(one)]

    before = annotated(data)
    if not before:
        pytest.skip("this ptxas does not annotate")
    spills = {one.word for one in kernel.instructions if one.name in ("LDL", "STL")}
    assert set(before) == spills
    assert annotated(insert.inserted(data, kernel, some_nops(kernel, 3))) == before


def test_an_annotation_of_another_kind_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not know: 0x55"):
        attributes.addresses(attributes.Attribute(4, attributes.ANNOTATIONS, bytes([1, *bytes(7), 2, *bytes(7)])))


def test_two_kernels_of_a_cubin_are_edited_apart() -> None:
    other = BRANCHING[BRANCHING.index(".visible") : BRANCHING.index(".file")].replace("branching", "second")
    data = assembled(BRANCHING.replace(".file", f"{other}.file"))
    first, second = functions(data)
    out = insert.inserted(data, first, Insertion({0x30: [New(NOP)] * 11}))
    assert stripped(printed(out, second.name), frozenset()) == stripped(printed(data, second.name), frozenset())
    twice = insert.inserted(out, functions(out)[1], Insertion({0x30: [New(NOP)] * 5}))
    assert [len(one.instructions) for one in functions(twice)] > [len(first.instructions)] * 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b".debug_frame\0", b".debug_names\0", "section that kscope does not know: .debug_names"),
        (b"\x04\x1c", b"\x04\x34", "attribute that kscope does not know: 0x34"),
    ],
)
def test_what_is_not_known_is_refused(old: bytes, new: bytes, said: str) -> None:
    data = assembled(BRANCHING)
    (kernel,) = functions(data)
    if said.startswith("attribute"):
        at = elf.read(data).find(".nv.info.branching")
        assert at is not None
        start = data.index(old, at.offset)
        data = data[:start] + new + data[start + 2 :]
    else:
        data = data.replace(old, new)
    with pytest.raises(UnsupportedError, match=said):
        insert.inserted(data, kernel, Insertion({0: [New(NOP)]}))


def test_calls_are_refused() -> None:
    body = (
        "{ .reg .f32 %f<4>; .reg .b64 %d; ld.param.u64 %d, [p]; ld.global.f32 %f1, [%d]; ld.global.f32 %f2, [%d+4];\n"
    )
    text = f".visible .entry k(.param .u64 p) {body} div.rn.f32 %f3, %f1, %f2; st.global.f32 [%d], %f3; ret; }}"
    data = assembled(HEAD + text, options=())
    (kernel,) = functions(data)
    with pytest.raises(UnsupportedError, match=r"CALL\.REL"):
        insert.inserted(data, kernel, Insertion({0: [New(NOP)]}))
