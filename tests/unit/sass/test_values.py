"""Values, predicates, instants and counters: held for their marks, and moved into the record."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from kscope import ptx
from kscope.capture import layout
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.sass.checks import clobbers
from kscope.sass.cubin.instructions import BYTES, Function, Instruction
from kscope.sass.placing import labels
from kscope.sass.recording import borrowed_registers, regions, register_choice, registers
from kscope.sass.recording.kernel import Recorded, record_kernel

from .kernels import ASSEMBLERS, EACH, HEAD, assembled, functions, needs_tools
from .stripping import printed, stripped

pytestmark = needs_tools
KERNEL = ptx.Kernel(Recording(records=16), ("elected",), 4, ("0x11112222", "0x33334444"), 90)
BODY = """
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<6>; .reg .f32 %f<4>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; cvta.to.global.u64 %d1, %d1; mov.u32 %r2, %tid.x;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2; mov.u32 %r3, 0;
LOOP:
    .pragma "nounroll";
    ld.global.u32 %r4, [%d3]; and.b32 %r5, %r4, 1;
    //kscope enter turn i32 - with %r4 if %r5
    bar.sync 0; ld.global.f32 %f1, [%d3+64];
    //kscope counter depth u32 - call %r3
    st.global.f32 [%d3+128], %f1;
    //kscope exit turn - - with
    bar.sync 0;
    //kscope instant here i32 - call 7
    add.u64 %d3, %d3, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r1;
    @%p3 bra LOOP;
    //kscope enter end i32 - with -2
    st.global.u32 [%d3], %r2;
    //kscope exit end - - with
    ret;
"""
MARKED = f"{HEAD}{ptx.control_symbol()}.visible .entry valued(.param .u64 p, .param .u32 n) .reqntid 128\n{{{BODY}}}\n"


@cache
def made(tool: str, text: str = MARKED) -> Recorded:
    return record_kernel(text, KERNEL, lambda text, table: assembled(text, tool, ("-lineinfo",) if table else ()))


def code(tool: str) -> tuple[Instruction, ...]:
    (kernel,) = functions(made(tool).data)
    return kernel.instructions


def quad(some: tuple[Instruction, ...], name: str, kind: layout.Kind) -> int:
    """The first register of a record."""
    wanted = layout.record_id(name, kind)
    (register,) = {where for where, number in constants(some) if number == wanted}
    return int(register[1:]) - 1


def constants(some: tuple[Instruction, ...]) -> list[tuple[str, int]]:
    """Registers, and the constants that are moved there."""
    moves = [one for one in some if one.code == "IMAD.MOV.U32" and "0x" in one.operands[-1]]
    return [(one.operands[0], int(one.operands[-1], 16) % 2**32) for one in moves]


@pytest.mark.parametrize("tool", EACH)
def test_held_values_are_moved_into_their_records(tool: str) -> None:
    some = code(tool)
    assert not [one for one in some if one.name in ("STL", "LDL")]
    moves = {one.operands[0]: one.operands[1] for one in some if one.code == "MOV"}
    turn, depth = quad(some, "turn", layout.Kind.SPAN_VALUE), quad(some, "depth", layout.Kind.COUNTER)
    (before,) = functions(assembled(labels.labeled(MARKED).plain, tool, ()))
    load = next(one for one in before.instructions if one.code == "LDG.E")
    assert moves[f"R{turn + 3}"] == load.operands[0]
    assert f"R{turn + 2}" in moves and f"R{depth + 3}" in moves


@pytest.mark.parametrize("tool", EACH)
def test_constants_are_moved_at_their_marks(tool: str) -> None:
    some = code(tool)
    for name, kind, value in (("here", layout.Kind.INSTANT_VALUE, 7), ("end", layout.Kind.SPAN_VALUE, 0xFFFFFFFE)):
        assert (f"R{quad(some, name, kind) + 3}", value) in constants(some)


@pytest.mark.parametrize("tool", EACH)
def test_a_mark_under_a_predicate_is_stored_under_it(tool: str) -> None:
    """The register of the record's end holds it until the end is read."""
    some = code(tool)
    held = f"R{quad(some, 'turn', layout.Kind.SPAN_VALUE) + 2}"
    number = max(n for n, one in enumerate(some) if one.name == "ISETP" and one.operands[2:4] == (held, "RZ"))
    test, rest = some[number], some[number + 1 :]
    assert next(one for one in rest if held in one.writes).code == "CS2R.32"
    store = next(one for one in rest if one.code == "STG.E.128")
    assert store.guard == f"@{test.operands[0]}"
    count = rest[rest.index(store) + 1]
    assert (count.name, count.guard) == ("IADD3", store.guard)


@pytest.mark.parametrize("tool", EACH)
def test_the_rest_is_the_code_with_values_held(tool: str) -> None:
    """Only the instructions that held a value are replaced."""
    held = stripped(printed(assembled(labels.labeled(MARKED).plain, tool), "valued"), frozenset())
    rest = iter(stripped(printed(made(tool).data, "valued"), frozenset()))
    for one in (one for one in held if one[1] not in ("NOP", "STL")):
        assert any((*one[:4], *one[5:8], one[9]) == (*other[:4], *other[5:8], other[9]) for other in rest), one
    assert Counter(one[1] for one in held)["STL"] == 3


def test_an_instant_begins_and_ends_at_one_clock() -> None:
    some = code(ASSEMBLERS[0])
    first = quad(some, "here", layout.Kind.INSTANT_VALUE)
    clocks = [one.operands[0] for one in some if one.code == "CS2R.32"]
    assert f"R{first}" in clocks and f"R{first + 2}" not in clocks
    assert any(one.code == "MOV" and one.operands == (f"R{first + 2}", f"R{first}") for one in some)


def test_what_reads_the_kernels_registers_must_be_named() -> None:
    (kernel,) = functions(made(ASSEMBLERS[0]).data)
    own = {one.word for one in functions(assembled(labels.labeled(MARKED).plain, ASSEMBLERS[0]))[0].instructions}
    new = frozenset(one.at for one in kernel.instructions if one.word not in own and one.target is None)
    said = "\n".join(map(str, clobbers.check(kernel, new)))
    assert "is read, but no inserted instruction wrote it on every path" in said


MANY = 96
LOADS = "".join(f"ld.global.f32 %f{n}, [%d3+{512 * n}];\n" for n in range(MANY))
SUMS = "".join(f"fma.rn.f32 %f{n}, %f{n}, %f{(n + 1) % MANY}, %f{(n + 7) % MANY};\n" for n in range(MANY))
STORES = "".join(f"st.global.f32 [%d3+{512 * n}], %f{n};\n" for n in range(MANY))
FULL = f"""{HEAD}{ptx.control_symbol()}.visible .entry full(.param .u64 p, .param .u32 n) .reqntid 512 .minnctapersm 1
{{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<6>; .reg .f32 %f<{MANY}>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; cvta.to.global.u64 %d1, %d1; mov.u32 %r2, %tid.x;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2; mov.u32 %r3, 0;
    {LOADS}{SUMS}bar.sync 0;\n{STORES}
LOOP:
    .pragma "nounroll";
    //kscope enter turn - - with
    bar.sync 0; ld.global.f32 %f1, [%d3]; st.global.f32 [%d3+128], %f1;
    //kscope exit turn - - with
    add.u64 %d3, %d3, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r1;
    @%p3 bra LOOP;
    ret;
}}
"""
"""A kernel that needs many registers, but few where its region is."""


def lent(function: Function, spans: dict[regions.Key, borrowed_registers.Span]) -> registers.Allocation:
    return registers.Pool(function, False).lent(spans, frozenset())


def test_records_use_registers_that_are_free_there() -> None:
    (kernel,) = functions(assembled(FULL, ASSEMBLERS[0], ()))
    loop = next(one for one in kernel.instructions if one.target is not None and one.target < one.at)
    assert loop.target is not None
    span = borrowed_registers.Span(frozenset({loop.target}), frozenset({loop.at}))
    found = lent(kernel, {("turn", ""): span})
    used = {int(name[1:]) for one in kernel.instructions for name in one.reads | one.writes if name[0] == "R"}
    first = found.quads["turn", ""]
    assert {*range(first, first + 4)} <= used and first % 4 == 0
    inside = [one for one in kernel.instructions if loop.target <= one.at <= loop.at]
    assert not {f"R{first + n}" for n in range(4)} & {name for one in inside for name in one.reads | one.writes}
    whole = borrowed_registers.Span(frozenset({0}), frozenset({kernel.instructions[-1].at}))
    assert not {*range(lent(kernel, {("all", ""): whole}).quads["all", ""], 255)} & used


def test_the_kernel_waits_for_the_store_of_a_lent_record_where_it_uses_its_registers_next() -> None:
    """For any marks in between: those that begin a region wait for nothing."""
    (kernel,) = functions(assembled(FULL, ASSEMBLERS[0], ()))
    loads = [one for one in kernel.instructions if one.name == "LDG"]
    (name,) = loads[40].writes
    touching = [one.at for one in kernel.instructions if name in one.reads | one.writes]
    before = borrowed_registers.Span(frozenset({loads[0].at}), frozenset({touching[0] - BYTES}))
    assert borrowed_registers.Lender(kernel).waits(before, frozenset({name})) == {touching[0]}


def test_the_checkers_reject_registers_that_are_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(pool: registers.Pool, *_: object) -> registers.Allocation:
        loop = next(one for one in pool.function.instructions if one.target is not None and one.target < one.at)
        load = next(one for one in pool.function.instructions if one.at > (loop.target or 0) and one.name == "LDG")
        (address,) = (int(name[1:]) for name in sorted(load.reads)[:1] if name[0] == "R")
        span = borrowed_registers.Span(frozenset({loop.at}), frozenset({loop.at}))
        found = pool.lent({("turn", ""): span}, frozenset())
        return replace(found, quads={("turn", ""): address // 4 * 4})

    monkeypatch.setattr(register_choice, "choose_registers", chosen)
    with pytest.raises(UnsupportedError, match=r"overwritten, but the code still needs it|may still be read"):
        made(ASSEMBLERS[0], FULL)
