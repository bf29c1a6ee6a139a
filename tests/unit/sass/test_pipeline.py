"""auto="pipeline" in machine code: each operation on a barrier is recorded where it is, with its operands."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from ptxvm.machine import Grid
from sassvm.launching import Case
from sassvm.pipelines import both

from kscope import ptx
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.lowering.lowered import Lowered
from kscope.lowering.plan import lower
from kscope.marks.operations import PIPELINE
from kscope.sass.recording.kernel import Recorded, recorded

from .kernels import ASSEMBLERS, EACH, HEAD, assembled, needs_tools
from .test_recording import only

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = needs_tools
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
def made(text: str, tool: str = "") -> tuple[Recorded, Lowered]:
    found = lowered(text)
    (kernel,) = found.kernels.values()
    kernel = replace(kernel, id=("0x11112222", "0x33334444"))
    tool = tool or ASSEMBLERS[0]
    return recorded(
        found.marked, kernel, lambda code, table: assembled(code, tool, ("-lineinfo",) if table else ())
    ), found


def refused(text: str) -> str:
    with pytest.raises(UnsupportedError) as error:
        made(text)
    return str(error.value)


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("number", [1, 7])
def test_each_warp_records_what_it_does_with_barriers(tool: str, number: int) -> None:
    found, text = made(RING, tool)
    kernel = replace(next(iter(text.kernels.values())), specs=("elected",), id=("0x11112222", "0x33334444"))
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
    import sys

    import triton
    from triton.backends.compiler import GPUTarget

    sys.path.append(str(EXAMPLES))
    import gluon_warp_specialized as one

    tiles = {"a": (one.BM, one.BK), "b": (one.BK, one.BN), "c": (one.BM, one.BN)}
    layout = one.gl.NVMMASharedLayout.get_default_for
    types = {name: f"tensordesc<fp16[{x}, {y}],{layout([x, y], one.gl.float16)!r}>" for name, (x, y) in tiles.items()}
    source = one.GluonASTSource(
        one.matmul, types | {"K": "i32", "BK": "constexpr", "STAGES": "constexpr"}, {"BK": one.BK, "STAGES": one.STAGES}
    )
    return str(
        triton.compile(
            source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "enable_fp_fusion": True}
        ).asm["ptx"]
    )


def test_warps_of_a_specialized_matmul_record_what_they_do() -> None:
    ptx_of_kernel, steps = gluon(), 5
    from triton.backends.nvidia.compiler import get_ptxas

    parameters = (64 * steps).to_bytes(4, "little") * 256  # of which one is K
    found, text = made(ptx_of_kernel, get_ptxas(90).path)
    kernel = replace(next(iter(text.kernels.values())), specs=("elected",), id=("0x11112222", "0x33334444"))
    case = Case(EMPTY.replace("128", "256"), only(found.data), kernel, 0, shape=Grid((1, 1, 1), (256, 1, 1)))
    names = [region.name for region in text.meta.regions]
    results = both(found, only(found.data), case, names, parameters, [0, 3])
    for did, recorded_ in results:
        assert did == recorded_
    print(results)
