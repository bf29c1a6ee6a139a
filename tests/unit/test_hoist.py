"""kscope.lowering.hoist: moved arithmetic computes the same, and precedes the wait."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kscope.instrument.recording import Recording
from kscope.lowering import hoist, loop_registers, plan
from kscope.ptx import cfg

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n"
LOOP = """
$L0:
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r90,%r91}, %rd1, %rd2, %p9, 1, 1, 0, 1;
    wgmma.wait_group.sync.aligned 1;
    //kscope exit dot - - with
    add.s32 %r1, %r0, 1;
    mul.wide.s32 %rd3, %r1, 2;
    add.s64 %rd4, %rd5, %rd3;
    bar.sync 0;
    add.s32 %r3, %r1, 4;
    cp.async.cg.shared.global [ %r3 + 0 ], [ %rd4 + 0 ], 0x10, %r4;
    @%p1 bra $L0;
    ret;
}
"""


def moved(body: str) -> str:
    """The text after the moves of its one function."""
    text = HEAD + body
    (function,) = cfg.functions(text)
    out, at = [], 0
    graph = cfg.blocks(function)
    edits = hoist.moves(function, graph, loop_registers.loops(function, graph))
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        out += [text[at:start], new]
        at = end
    return "".join([*out, text[at:]])


def test_addresses_of_the_next_copies_move_above_the_wait() -> None:
    text = moved(LOOP)
    above = text[: text.index("wgmma.wait_group")]
    assert all(line in above for line in ("add.s32 %r1", "mul.wide.s32 %rd3", "add.s64 %rd4"))
    assert "add.s32 %r3" in text[text.index("bar.sync") :]  # after the barrier it delays no other warp


def test_text_without_marks_after_the_wait_is_unchanged() -> None:
    plain = LOOP.replace("//kscope exit dot - - with", "")
    assert moved(plain) == HEAD + plain


@pytest.mark.parametrize("guard", ["", "@%p2 ", "@!%p2 "])
def test_tensor_memory_reads_stay_after_their_wait(guard: str) -> None:
    loop = LOOP.replace(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r90,%r91}, %rd1, %rd2, %p9, 1, 1, 0, 1;",
        guard + "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r0}, [%r9];",
    ).replace("wgmma.wait_group.sync.aligned 1;", "tcgen05.wait::ld.sync.aligned;")
    assert moved(loop) == HEAD + loop


def test_arithmetic_with_a_carry_stays() -> None:
    loop = LOOP.replace("add.s32 %r1, %r0, 1;", "add.cc.u32 %r1, %r0, 1;")
    assert moved(loop) == HEAD + loop


def test_arithmetic_that_no_copy_needs_stays() -> None:
    text = moved(LOOP.replace("[ %rd4 + 0 ]", "[ %rd8 + 0 ]").replace("add.s32 %r3, %r1, 4", "add.s32 %r3, %r7, 4"))
    assert text.index("add.s32 %r1") > text.index("wgmma.wait_group")


@pytest.mark.parametrize(
    "line",
    [
        "add.s32 %r1, %r90, 1;",  # the result of the wait
        "mov.u32 %r1, %clock;",  # not a register
        "@%p3 add.s32 %r1, %r0, 1;",  # depends on the executing thread
        "ld.shared.u32 %r1, [%r0];",  # memory
    ],
)
def test_instructions_with_memory_inputs_do_not_move(line: str) -> None:
    text = moved(LOOP.replace("add.s32 %r1, %r0, 1;", line))
    wait = text.index("wgmma.wait_group")
    assert text.index(line) > wait and text.index("mul.wide.s32 %rd3") > wait


def test_addresses_stay_below_the_wait_if_arithmetic_follows_it() -> None:
    text = moved(LOOP.replace("bar.sync 0;", "ex2.approx.f32 %f1, %f2;\n    bar.sync 0;"))
    assert text.index("add.s32 %r1") > text.index("wgmma.wait_group")


def test_recording_moves_address_arithmetic_before_the_wait() -> None:
    text = HEAD + LOOP.replace("wgmma.mma", "//kscope enter dot - - with\n    wgmma.mma")
    sunk = plan.lower(text, Recording(), frontend="t").text
    assert sunk.index("add.s32 %r1, %r0, 1") < sunk.index("wgmma.wait_group")


REGISTERS = [f"%r{n}" for n in range(8)]
IN_FLIGHT = ["%r6", "%r7"]
register = st.sampled_from(REGISTERS)
operand = st.one_of(register, st.integers(0, 9).map(str))
arithmetic = st.builds(
    "{}.s32 {}, {}, {};".format, st.sampled_from(["add", "sub", "xor", "min", "max"]), register, operand, operand
)
copy = st.builds("cp.async.cg.shared.global [ {} + 0 ], [ {} + 0 ], 0x10, {};".format, register, register, register)
mark = st.one_of(st.just("//kscope exit a - - with"), st.builds("//kscope instant i i32 - with {}".format, register))
bar = st.just("bar.sync 0;")
wait = st.just("wgmma.wait_group.sync.aligned 0;")
MEANING: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "xor": int.__xor__,
    "min": min,
    "max": max,
}


def run(text: str) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """The values that copies, marks and barriers see, in order, and the registers afterwards. A wait changes the
    registers that are in flight.
    """
    registers = {name: 100 * n + 7 for n, name in enumerate([*REGISTERS, *IN_FLIGHT])}
    seen: list[tuple[str, ...]] = []
    waits = 0

    def value(word: str) -> int:
        return registers[word] if word.startswith("%") else int(word)

    for line in map(str.strip, text.splitlines()):
        if found := re.fullmatch(r"(\w+)\.s32 (\S+), (\S+), (\S+);", line):
            registers[found[2]] = MEANING[found[1]](value(found[3]), value(found[4]))
        elif line.startswith("wgmma.wait"):
            waits += 1
            registers |= {name: 1000 * waits + n for n, name in enumerate(IN_FLIGHT)}
            seen.append(("wait",))
        elif line.startswith(("cp.async.cg", "//kscope", "bar")):
            seen.append((line.split()[0], *(str(value(word)) for word in re.findall(r"%r\d+", line))))
    return seen, registers


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(arithmetic, arithmetic, arithmetic, copy, mark, bar), max_size=14), st.data())
def test_every_copy_mark_and_register_has_the_value_it_had(lines: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(lines)))
    body = [*lines[:at], "wgmma.wait_group.sync.aligned 0;", "//kscope exit b - - with", *lines[at:]]
    text = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r6,%r7}, %rd1, %rd2, %p1, 1, 1;\n" + "\n".join(body)
    assert run(moved(text + "\nret;\n}\n")) == run(text)


COUNTED = """
$L0:
    //kscope enter work - - with
    fma.rn.f32 %f1, %f1, %f1, %f2;
    //kscope exit work - - with
    add.s32 %r1, %r1, 1;
    setp.ne.s32 %p1, %r1, %r2;
    @%p1 bra $L0;
    ret;
}
"""


def test_the_loop_counter_moves_beside_arithmetic_inside_the_region() -> None:
    text = moved(COUNTED)
    assert text.index("fma.rn") < text.index("add.s32 %r1") < text.index("setp.ne") < text.index("//kscope exit")
    assert text.count("add.s32") == text.count("setp.ne") == 1


def test_the_loop_counter_moves_above_all_region_exits() -> None:
    two = COUNTED.replace("//kscope enter work", "//kscope enter all - - with\n    //kscope enter work")
    two = two.replace("//kscope exit work - - with", "//kscope exit work - - with\n    //kscope exit all - - with")
    text = moved(two)
    assert text.index("setp.ne") < text.index("//kscope exit work") < text.index("//kscope exit all")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fma.rn.f32 %f1, %f1, %f1, %f2;", ""),  # a region around nothing would be around the counter
        ("fma.rn.f32 %f1, %f1, %f1, %f2;", "bar.sync 0;"),  # its end would be recorded late
        ("fma.rn.f32 %f1, %f1, %f1, %f2;", "wgmma.wait_group.sync.aligned 0;\n    add.s32 %r8, %r9, 1;"),
        ("add.s32 %r1, %r1, 1;", "ld.global.u32 %r1, [%rd1];"),
        ("add.s32 %r1, %r1, 1;", "add.f32 %f3, %f3, %f4;"),
        ("add.s32 %r1, %r1, 1;", "mov.u32 %r1, %clock;"),
        ("add.s32 %r1, %r1, 1;", "mov.u64 %rd1, %clock64;"),
        ("add.s32 %r1, %r1, 1;", "add.s32 %r1, %r1, 1;\n" * hoist.COUNTING),  # work, not a counter
        ("add.s32 %r1, %r1, 1;", "@%p2 add.s32 %r1, %r1, 1;"),
        ("//kscope exit work - - with", "//kscope exit work - - with\n    //kscope counter n u32 %r1 with"),
        ("@%p1 bra $L0;", "@%p1 bra $L1;\n$L1:"),  # no loop
    ],
)
def test_the_loop_counter_stays_where_moving_is_unsafe_or_costly(old: str, new: str) -> None:
    body = COUNTED.replace(old, new)
    assert body != COUNTED
    assert moved(body) == HEAD + body


FMA = "fma.rn.f32 %f1, %f1, %f1, %f2;"


@pytest.mark.parametrize(
    "work",
    [
        "ld.global.u32 %r2, [%rd1];\n    add.s32 %r8, %r9, 1;",
        "ld.global.v2.u32 {%r7, %r9}, [%rd1];\n    add.s32 %r8, %r9, 1;\n    sub.s32 %r2, %r8, 1;",
        "@%p3 ld.global.u32 %r2, [%rd1];\n    add.s32 %r8, %r9, 1;",
        "shfl.sync.bfly.b32 %r2|%p3, %r8, 1, 31, -1;",
        "atom.global.add.u32 %r2, [%rd1], 1;\n    add.s32 %r8, %r9, 1;",
        "cvt.rzi.s32.f32 %r2, %f1;",
    ],
)
def test_loop_counters_compared_with_loaded_values_do_not_move(work: str) -> None:
    body = COUNTED.replace(FMA, work)
    assert moved(body) == HEAD + body


def test_addresses_used_by_stores_may_be_loop_counters() -> None:
    body = COUNTED.replace(FMA, f"st.global.u32 [%rd1], %r8;\n    {FMA}")
    text = moved(body.replace("add.s32 %r1", "add.s64 %rd1, %rd1, 4;\n    add.s32 %r1"))
    assert text.index("fma.rn") < text.index("add.s64 %rd1") < text.index("//kscope exit")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(arithmetic, arithmetic, copy, mark, bar), max_size=8), st.lists(arithmetic, max_size=4))
def test_moving_a_loop_counter_changes_no_result_and_no_record(lines: list[str], tail: list[str]) -> None:
    turn = ["//kscope enter b i32 %r1 with", *lines, "//kscope exit b - - with", *tail]
    text = "\n".join(["$L0:", *turn, "@%p1 bra $L0;"])
    assert run(moved(text + "\nret;\n}\n")) == run(text)
