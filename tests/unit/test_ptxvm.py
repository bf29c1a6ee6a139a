"""The interpreter itself, with hand-written PTX whose results are known."""

from __future__ import annotations

import pytest
from ptxvm.machine import Clocks, Grid, Launch, load, run
from ptxvm.memory import FaultError, Memory
from ptxvm.syntax import PtxError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
M32 = 0xFFFFFFFF


def execute(body: str, *, shape: Grid | None = None, symbols: str = "", size: int = 64, **launch: object) -> list[int]:
    """Run `.entry k(out)` with this body and return the words of `out`; %out is its address."""
    memory = Memory()
    text = f"""{HEAD}{symbols}
.visible .entry k(
    .param .u64 k_param_0
)
{{
    .reg .b64 %out;
    .reg .b32 %r<64>;
    .reg .b64 %rd<32>;
    .reg .pred %p<8>;
    ld.param.u64 %out, [k_param_0];
{body}
}}
"""
    out = memory.allocate("out", size)
    threads = Launch(load(text, memory), memory, "k", shape or Grid(block=(1, 1, 1)), [out.base], **launch)  # type: ignore[arg-type]  # options of the test
    run(threads.start(), "turns")
    return [int.from_bytes(out.data[i : i + 4], "little") for i in range(0, size, 4)]


@pytest.mark.parametrize(
    ("instruction", "result"),
    [
        ("add.u32 %r0, 0xffffffff, 2;", 1),
        ("sub.s32 %r0, 1, 2;", M32),
        ("mul.lo.u32 %r0, 0x10001, 0x10001;", 0x20001),
        ("mul.hi.u32 %r0, 0x80000000, 6;", 3),
        ("mad.lo.s32 %r0, -3, 5, 1;", -14 & M32),
        ("min.s32 %r0, -1, 1;", M32),
        ("min.u32 %r0, -1, 1;", 1),
        ("not.b32 %r0, 0;", M32),
        ("shl.b32 %r0, 1, 32;", 0),
        ("shr.s32 %r0, -8, 1;", -4 & M32),
        ("shr.u32 %r0, -8, 1;", 0x7FFFFFFC),
        ("shf.l.wrap.b32 %r0, 0x80000000, 1, 1;", 3),
        ("shf.r.clamp.b32 %r0, 5, 7, 32;", 7),
        ("lop3.b32 %r0, 12, 10, 6, 0x96;", 12 ^ 10 ^ 6),
        ("lop3.b32 %r0, 12, 10, 6, 0xea;", (12 & 10) | 6),
        ("bfe.u32 %r0, 0xabcd, 4, 8;", 0xBC),
        ("bfi.b32 %r0, 0x3, 0xf0f0, 8, 4;", 0xF3F0),
        ("popc.b32 %r0, 0xf0f;", 8),
        ("clz.b32 %r0, 1;", 31),
        ("prmt.b32 %r0, 0x33221100, 0x77665544, 0x7510;", 0x77551100),
        ("mov.b32 %r0, 0f3F800000;", 0x3F800000),
        ("setp.lt.s32 %p0, -1, 0; selp.b32 %r0, 7, 9, %p0;", 7),
        ("setp.lt.u32 %p0|%p1, -1, 0; selp.b32 %r0, 7, 9, !%p1;", 9),
        ("setp.eq.u32 %p1, 1, 1; setp.ne.and.u32 %p0, 1, 2, %p1; selp.b32 %r0, 7, 9, %p0;", 7),
        ("setp.eq.u32 %p1, 1, 2; or.pred %p0, %p1, %p1; selp.b32 %r0, 7, 9, %p0;", 9),
        ("mov.b64 %rd0, {3, 4}; shr.u64 %rd0, %rd0, 31; cvt.u32.u64 %r0, %rd0;", 8),
        ("mov.u64 %rd0, 0x500000006; mov.b64 {_, %r0}, %rd0;", 5),
        ("mul.wide.s32 %rd0, -2, 3; mov.b64 {_, %r0}, %rd0;", M32),
        ("mul.wide.u32 %rd0, -2, 3; mov.b64 {_, %r0}, %rd0;", 2),
        ("mov.u32 %r1, -5; cvt.s64.s32 %rd0, %r1; mov.b64 {_, %r0}, %rd0;", M32),
        ("mov.u32 %r1, -5; cvt.u64.u32 %rd0, %r1; mov.b64 {_, %r0}, %rd0;", 0),
        ("rem.u32 %r0, 17, 5;", 2),
    ],
)
def test_an_instruction_computes_what_the_isa_defines(instruction: str, result: int) -> None:
    assert execute(f"{instruction}\nst.global.b32 [%out], %r0;\nret;")[0] == result


def test_registers_declared_in_braces_hide_the_outer_ones() -> None:
    body = "mov.u32 %r0, 1; { .reg .b32 %r0, a; mov.u32 %r0, 2; mov.u32 a, %r0; st.global.u32 [%out+4], a; }\n"
    assert execute(body + "st.global.u32 [%out], %r0; ret;")[:2] == [1, 2]


def test_labels_in_braces_are_local_and_loops_end() -> None:
    loop = "{ LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 5; @%p0 bra LOOP; }\n"
    assert execute(f"mov.u32 %r1, 0;\n{loop}mov.u32 %r1, 2;\n{loop}st.global.u32 [%out], %r1; ret;")[0] == 5


def test_branches_into_braces_are_refused() -> None:
    with pytest.raises(PtxError, match="no such label"):
        execute("bra INSIDE; { INSIDE: } ret;")


def test_a_thread_that_hangs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxvm.compiler.FUEL", 100)
    with pytest.raises(FaultError, match="hangs"):
        execute("LOOP: bra LOOP;")


def test_predicated_exits_end_a_thread() -> None:
    body = """mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 2; mul.wide.u32 %rd0, %r0, 4; add.u64 %rd0, %out, %rd0;
        mov.u32 %r1, 1; st.global.u32 [%rd0], %r1; @%p0 exit; st.global.u32 [%rd0], 2; ret;"""
    assert execute(body, shape=Grid(block=(4, 1, 1)))[:5] == [2, 2, 1, 1, 0]


def test_vectors_are_stored_in_order_and_loaded_back() -> None:
    body = """mov.u32 %r0, 1; mov.u32 %r1, 2; st.global.cg.v4.b32 [%out+16], {%r0, %r1, 3, -1};
        ld.global.v2.b64 {%rd0, %rd1}, [%out+16]; st.global.v2.u64 [%out], {%rd1, %rd0};
        ld.volatile.global.v2.u32 {_, %r5}, [%out+16]; st.global.u32 [%out+32], %r5; ret;"""
    assert execute(body)[:9] == [3, M32, 1, 2, 1, 2, 3, M32, 2]


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("st.global.u32 [%out+64], %r0;", "outside"),
        ("st.global.u32 [%out+-4], %r0;", "outside"),
        ("st.global.v4.u32 [%out+56], {%r0,%r0,%r0,%r0};", "outside"),
        ("st.global.v4.u32 [%out+8], {%r0,%r0,%r0,%r0};", "misaligned"),
        ("ld.const.u64 %rd0, [%out];", "which is global"),
        ("st.global.u32 [ctl], 0;", "which is const"),
        ("trap;", "trap"),
    ],
)
def test_an_illegal_access_is_a_fault_that_names_its_line(body: str, match: str) -> None:
    with pytest.raises(FaultError, match=match) as caught:
        execute(body + " ret;", symbols=".weak .const .align 8 .u64 ctl;")
    assert "line" in str(caught.value)


@pytest.mark.parametrize("text", ["frob.u32 %r0, 1;", "mul.odd.u32 %r0, 1, 1;", "ld.global.L3::soon.u32 %r0, [%out];",
                                  "mov.u32 %r99, 1;", "cvt.rn.f32.u32 %r0, 1;", "add.cc.u32 %r0, 1, 1;"])  # fmt: skip
def test_an_unknown_instruction_or_register_names_the_line(text: str) -> None:
    with pytest.raises(PtxError, match="line "):
        execute(text + " ret;")


def test_symbols_carry_their_initial_bytes() -> None:
    symbols = ".visible .const .align 8 .u64 ctl = 5;\n.global .align 1 .b8 meta[4] = {1, 2, 3};"
    body = (
        "ld.const.u64 %rd0, [ctl]; st.global.u64 [%out], %rd0; ld.global.u32 %r0, [meta]; st.global.u32 [%out+8], %r0;"
    )
    assert execute(body + " ret;", symbols=symbols)[:3] == [5, 0, 0x030201]


def test_atomics_return_what_was_there_and_interleave_without_loss() -> None:
    body = """ld.global.u32 %r9, [%out+8];
        atom.global.add.u32 %r0, [%out], 1;
        red.relaxed.gpu.global.add.u32 [%out+4], %r0;
        add.u32 %r9, %r9, 1; st.global.u32 [%out+8], %r9; ret;"""
    for order in ("turns", "lockstep", "random"):
        memory = Memory()
        text = (
            f".visible .entry k(.param .u64 p) {{ .reg .b64 %out; .reg .b32 %r<10>; ld.param.u64 %out, [p]; {body} }}"
        )
        out = memory.allocate("out", 12)
        launch = Launch(load(text, memory), memory, "k", Grid(block=(10, 1, 1)), [out.base])
        run(launch.start(), order, seed=3)
        words = [int.from_bytes(out.data[i : i + 4], "little") for i in (0, 4, 8)]
        assert words[:2] == [10, 45]
        assert (words[2] == 10) == (order == "turns"), "a race is seen exactly where threads interleave"


def test_special_registers_show_a_thread_where_it_is() -> None:
    names = ["tid.x", "tid.y", "tid.z", "ctaid.y", "nctaid.z", "laneid", "smid", "cluster_ctarank", "ntid.y"]
    body = "".join(f"mov.u32 %r0, %{name}; st.global.u32 [%out+{4 * i}], %r0;\n" for i, name in enumerate(names))
    shape = Grid((9, 8, 4), (3, 5, 7), (1, 2, 2), True)
    words = execute(body + "ret;", shape=shape, blocks=[(4, 7, 3)], threads=[3 * 5 * 6 + 3 * 2 + 1], smid=lambda b: 77)
    assert words[: len(names)] == [1, 2, 6, 7, 4, 97 % 32, 77, 3, 5]


def test_the_clock_advances_on_predicated_reads() -> None:
    body = """setp.eq.u32 %p0, 1, 0; mov.u32 %r0, 7; @%p0 mov.u32 %r0, %clock; @!%p0 mov.u32 %r1, %clock;
        st.global.v2.u32 [%out], {%r0, %r1};"""
    assert execute(body, clocks=Clocks(100, 0, (10,)))[:2] == [7, 120]


def test_clocks_pass_two_to_the_thirty_two() -> None:
    body = """mov.u64 %rd0, %clock64; mov.u64 %rd1, %globaltimer; mov.u32 %r0, %clock;
        st.global.v2.u64 [%out], {%rd0, %rd1};
        st.global.u32 [%out+16], %r0; ret;"""
    words = execute(body, clocks=Clocks((1 << 32) - 3, 100, (2, 3, 4)))
    assert words[:5] == [M32, 0, 105, 0, 6]


def test_registers_start_as_garbage() -> None:
    assert execute("st.global.u32 [%out], %r7; ret;", garbage=0x1_2345_6789)[0] == 0x23456789


VOTE = """mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 33; @%p0 exit; setp.eq.u32 %p0, %r0, 2;
    vote.sync.any.pred %p1, %p0, 0xffffffff; vote.sync.ballot.b32 %r1, %p0, 0xffffffff; selp.b32 %r1, %r1, 99, %p1;
    mul.wide.u32 %rd0, %r0, 4; add.u64 %rd0, %out, %rd0; bar.warp.sync 0xffffffff; st.global.u32 [%rd0], %r1; ret;"""


def test_votes_do_not_wait_for_exited_lanes() -> None:
    assert execute(VOTE, shape=Grid(block=(35, 1, 1)), size=140) == [4] * 32 + [99, 0, 99]


def test_lanes_that_wait_at_different_places_are_a_fault() -> None:
    meet = "bar.warp.sync 0xffffffff;"
    body = f"mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; @%p0 bra A;\n{meet}\nA: {meet}"
    with pytest.raises(FaultError, match="different places"):
        execute(body + " ret;", shape=Grid(block=(2, 1, 1)))


def test_divergence_at_a_uniform_branch_is_a_fault() -> None:
    body = "mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; @%p0 bra.uni A; A: ret;"
    with pytest.raises(FaultError, match=r"part at a bra\.uni"):
        execute(body, shape=Grid(block=(2, 1, 1)))
