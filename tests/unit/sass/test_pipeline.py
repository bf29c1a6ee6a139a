"""auto="pipeline" in machine code: each operation on a barrier is recorded where it is, with its operands."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ptxvm.machine import Grid
from sassvm.launching import Case
from sassvm.pipelines import PARAMETER, Seen, both

from kscope import ptx
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.lowering.lowered import Lowered
from kscope.lowering.plan import lower
from kscope.marks.operations import PIPELINE
from kscope.sass.checks import clobbers, kernel_check, register_limits
from kscope.sass.cubin.instructions import BYTES
from kscope.sass.encoding import writing
from kscope.sass.recording import released_registers
from kscope.sass.recording.kernel import Recorded, record_kernel
from kscope.sass.recording.lane_state import State

from .kernels import ASSEMBLERS, EACH, HEAD, assembled, needs_tools
from .listed import Line, inserted, listed
from .test_recording import only

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = needs_tools
ID = ("0x11112222", "0x33334444")
OPTIONS = Recording(records=256, placement="schedule", selection=Selection((PIPELINE,)))
WAIT = (
    "{{ .reg .pred done; AGAIN{0}: mbarrier.try_wait.parity.shared::cta.b64 done, [{1}], {2};"
    " @!done bra.uni AGAIN{0}; }}"
)
RING = f"""{HEAD}.visible .entry ring(.param .u64 p, .param .u32 n) .reqntid 128
{{
    .reg .pred %p<16>; .reg .b32 %r<32>; .reg .b64 %rd<4>; .shared .align 16 .b8 kept[4096];
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; mov.u32 %r5, kept;
    shfl.sync.idx.b32 %r3, %r3, 0, 31, -1; setp.eq.u32 %p1, %r3, 0; elect.sync %r4|%p2, -1; and.pred %p3, %p1, %p2;
    @%p3 mbarrier.init.shared::cta.b64 [%r5+1024], 1;
    elect.sync %r4|%p5, -1; and.pred %p6, %p1, %p5;
    @%p6 mbarrier.init.shared::cta.b64 [%r5+1056], 1;
    bar.sync 0;
    mov.u32 %r6, 0; and.b32 %r7, %r2, 31; setp.eq.u32 %p4, %r7, 0; setp.lt.u32 %p8, %r2, 32;
    ld.global.u32 %r20, [%rd1];
LOOP:
    and.b32 %r8, %r6, 3; shl.b32 %r9, %r8, 3; add.u32 %r10, %r5, %r9; shr.u32 %r11, %r6, 2; and.b32 %r12, %r11, 1;
    add.u32 %r13, %r10, 1024; add.u32 %r14, %r10, 1056;
    {WAIT.format(1, "%r13", "%r12")}
    add.u32 %r20, %r20, %r12;
    bar.warp.sync -1;
    @%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r14], 512;
    @%p8 cp.async.bulk.commit_group;
    {WAIT.format(2, "%r14", "%r6")}
    @%p4 mbarrier.arrive.shared::cta.b64 _, [%r13];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 1;
    add.u32 %r6, %r6, 1; setp.lt.u32 %p7, %r6, %r1;
    @%p7 bra LOOP;
    st.global.u32 [%rd1+8], %r20;
    ret;
}}
"""
EMPTY = f"{HEAD}{ptx.control_symbol()}.visible .entry ring(.param .u64 p, .param .u32 n) .reqntid 128 {{ ret; }}\n"


def lowered(text: str) -> Lowered:
    return lower(text, OPTIONS, frontend="test")


@cache
def made(text: str, tool: str = "", blocks: int | None = None, moved: bool = True) -> tuple[Recorded, Lowered]:
    """A kernel that records. blocks: that fit on an SM without regard to registers; None if unknown."""
    found = lowered(text)
    (kernel,) = found.kernels.values()
    kernel = replace(kernel, id=ID)
    tool = tool or ASSEMBLERS[0]

    def assemble(code: str, table: bool) -> bytes:
        return assembled(code, tool, ("-lineinfo",) if table else ())

    return record_kernel(found.marked, kernel, assemble, blocks=blocks, moved=moved), found


def refused(text: str) -> str:
    with pytest.raises(UnsupportedError) as error:
        made(text)
    return str(error.value)


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("number", [1, 7])
def test_each_warp_records_what_it_does_with_barriers(tool: str, number: int) -> None:
    found, text = made(RING, tool)
    kernel = replace(next(iter(text.kernels.values())), specs=("elected",), id=ID)
    case = Case(EMPTY, only(found.data), kernel, number)
    results = both(found, only(found.data), case, [region.name for region in text.meta.regions])
    assert len(results) == 8
    for did, recorded_ in results:
        assert did == recorded_
    kinds = {kind for did, _ in results for kind, _ in did}
    assert kinds == {"init", "wait", "expect", "arrive", "commit", "drain"}


@cache
def gluon() -> str:
    """PTX of a warp-specialized matmul, without marks."""
    pytest.importorskip("triton.experimental.gluon")
    sys.path.append(str(EXAMPLES))
    import gluon_warp_specialized as one

    tiles = {"a": (one.BM, one.BK), "b": (one.BK, one.BN), "c": (one.BM, one.BN)}
    layout = one.gl.NVMMASharedLayout.get_default_for
    types = {name: f"tensordesc<fp16[{x}, {y}],{layout([x, y], one.gl.float16)!r}>" for name, (x, y) in tiles.items()}
    types |= {"K": "i32", "BK": "constexpr", "STAGES": "constexpr"}
    return compiled(one.GluonASTSource(one.matmul, types, {"BK": one.BK, "STAGES": one.STAGES}), 4)


@cache
def persistent(apart: bool) -> str:
    """PTX of a persistent matmul, without marks; apart: warp-specialized."""
    pytest.importorskip("triton")
    from gpu.pipeline_kernels import TILES, multiply
    from triton.compiler import ASTSource

    constants = {**TILES, "APART": apart}
    types = {**dict.fromkeys("abc", "*fp16"), **dict.fromkeys("MNK", "i32"), **dict.fromkeys(constants, "constexpr")}
    return compiled(ASTSource(multiply, types, constants), 4 if apart else 8)


def compiled(source: Any, warps: int) -> str:
    import triton
    from triton.backends.compiler import GPUTarget

    options = {"num_warps": warps, "num_stages": 3, "enable_fp_fusion": True}
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])


def run(text: str, threads: int, roles: list[int]) -> list[tuple[list[Seen], list[Seen]]]:
    """The operations of each warp of a Triton kernel, and its records. Every word of its parameters is 256."""
    from triton.backends.nvidia.compiler import get_ptxas

    found, marked = made(text, get_ptxas(90).path, 1)
    kernel = replace(next(iter(marked.kernels.values())), specs=("elected",), id=ID)
    case = Case(EMPTY.replace("128", str(threads)), only(found.data), kernel, 0, shape=Grid((1, 1, 1), (threads, 1, 1)))
    names = [region.name for region in marked.meta.regions]
    return both(found, only(found.data), case, names, PARAMETER.to_bytes(4, "little") * 256, roles)


def test_warps_of_a_specialized_gluon_matmul_record_what_they_do() -> None:
    """Records that are left are stored in the next iteration, and behind the last one."""
    results = run(gluon(), 256, [0, 3])
    steps = PARAMETER // 64
    for did, stored in results:
        assert did == stored
    kinds = [Counter(kind for kind, _ in did) for did, _ in results]
    consumer = {"wait": steps, "drain": steps + 1, "arrive": steps, "commit": 1}
    assert any(one - Counter(init=8) == consumer for one in kinds)
    assert any(one == {"wait": steps, "expect": steps} for one in kinds)


@pytest.mark.parametrize("apart", [False, True], ids=["persistent", "warp-specialized"])
def test_warps_of_a_persistent_matmul_record_what_they_do(apart: bool) -> None:
    """But for waits for groups under a predicate, and for what ptxas makes of other statements. A part of the
    specialized one has so few registers that all of them are in use elsewhere.
    """
    try:
        results = run(persistent(apart), 384 if apart else 256, [0, 2] if apart else [])
    except UnsupportedError as error:
        if "no two uniform registers" not in str(error):  # Triton 3.6's code uses nearly all of them
            raise
        pytest.skip(str(error))
    for did, stored in results:
        rest = iter(did)
        assert all(any(one == other for other in rest) for one in stored)
        assert (Counter(kind for kind, _ in did) - Counter(kind for kind, _ in stored)).keys() <= {"commit", "drain"}
        assert "wait" in {kind for kind, _ in stored}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("@%p4 mbarrier.arrive.shared", "mbarrier.arrive.shared", ""),
        ("@%p4 mbarrier.arrive.shared", "@%p9 mbarrier.arrive.shared", "which lanes have its predicate"),
        ("@!done bra.uni AGAIN2", "bar.warp.sync -1; @!done bra.uni AGAIN2", "repeated in a loop"),
        ("[%r14], 512", "[%r14], %r20", "number of bytes"),
    ],
)
def test_what_is_not_certain_is_refused_by_name(old: str, new: str, why: str) -> None:
    assert RING.count(old) == 1
    text = RING.replace(old, new).replace("LOOP:\n", "LOOP:\n    setp.gt.u32 %p9, %r2, 40;\n")
    if why:
        assert why in refused(text)
    else:
        made(text)


PARTS: tuple[Line, ...] = (
    "USETMAXREG.DEALLOC.CTAPOOL 0x28",
    "IADD3 R30, R30, 0x1, RZ",
    "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0",
    "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0",
    "@!P0 BRA `(again)",
    "IADD3 R30, R30, 0x1, RZ",
    "EXIT",
)
"""Few registers, and many again where they are granted."""


def test_registers_that_a_kernel_gives_back_are_counted_where_it_does() -> None:
    function = listed(*PARTS, again=2)
    limits = register_limits.limits(function)
    assert [limits[at * BYTES] for at in range(7)] == [256, 40, 40, 40, 40, 240, 240]
    assert [register_limits.fewest_registers(function)[at * BYTES] for at in (0, 1, 6)] == [256, 40, 40]


def test_a_value_in_a_register_that_was_given_back_is_lost() -> None:
    function = listed("IADD3 R2, R2, 0x1, RZ", "MOV R60, RZ", *PARTS[:2], "IADD3 R3, R60, 0x1, RZ", "EXIT")
    found = [str(one) for one in clobbers.check(function, [BYTES, 4 * BYTES])]
    assert any("R60 does not exist" in one for one in found)
    behind = listed("MOV R60, RZ", *PARTS[:-1], "IADD3 R3, R60, 0x1, RZ", "EXIT", again=3)
    found = [str(one) for one in clobbers.check(behind, [0, 7 * BYTES])]
    assert any("R60 is read, but no inserted instruction wrote it" in one for one in found)


@pytest.mark.parametrize("on", [6, None])
def test_what_a_lane_knows_moves_to_a_part_with_few_registers_where_it_was_written(on: int | None) -> None:
    """In a kernel with a predicate for the lanes that record, nothing is written in the others."""
    state = State("UR2", 60, 61, 2, "UR62", None, on, 4, mine=None if on else 62)
    low = replace(state, address=20, offset=21, mine=None if on else 22)
    claim: list[Line] = ["ISETP.NE.U32.AND P6, PT, R60, RZ, PT", "@!P6 BRA `(behind)", "MOV R61, RZ"]
    code = claim if on else ["MOV R61, RZ", "MOV R62, RZ"]
    seen = [one.seen for one in released_registers.moves(state, low) if one.seen is not None]
    moved = [f"{one.guard} {one.code} {', '.join(one.operands)}" for one in seen]
    assert len(moved) == (1 if on else 2)
    function = listed("NOP", "MOV R60, RZ", *code, *moved, "EXIT", behind=len(claim) + 2)
    assert not clobbers.check(function, inserted(function, 0, len(function.instructions) - 1))


@pytest.mark.parametrize(
    ("between", "right"), [("IADD3 R9, R9, 0x1, RZ", True), ("IADD3 R5, R5, 0x1, RZ", False), ("@P0 BRA `(out)", False)]
)
def test_operands_are_read_while_they_are_those_of_the_operation(between: Line, right: bool) -> None:
    operation = "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R4+0x10], R5"
    read = replace(writing.new("SHF.R.U32.HI R11, RZ, 0xd, R5"), borrowed=frozenset({"R5"}), operands_of=0)
    function = listed(operation, between, "SHF.R.U32.HI R11, RZ, 0xd, R5", "EXIT", out=3)
    found = list(kernel_check.other_operands(function, [2 * BYTES], {2 * BYTES: (read, 0)}))
    assert not found if right else found


def test_no_record_waits_for_a_group_of_bulk_copies() -> None:
    found, _ = made(RING)
    code = only(found.data).instructions
    groups = {one.control.reads for one in code if one.name == "UTMACMDFLUSH"}
    assert groups and groups.isdisjoint(one.control.reads for one in code if one.code == "STG.E.128")
