"""A pipeline in PTX, run by the interpreter with auto="pipeline": its trace, and what its barriers knew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Literal

from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Clocks, Grid, Launch, Order, run
from ptxvm.mbarriers import Barriers

import kscope
from kscope.capture.capture import Capture
from kscope.capture.capture_data import DeviceCapture
from kscope.instrument.recording import Recording, Survive
from kscope.instrument.selection.auto import Selection
from kscope.lowering.lowered import Lowered
from kscope.lowering.plan import lower
from kscope.marks.operations import PIPELINE

FULL, EMPTY = 2048, 3072
"""Addresses of the barriers of stage 0; the others follow."""
LANES = 2
"""Threads of a warp that run."""
Loop = Literal["braces", "branches", "number"]
LOOPS: dict[Loop, str] = {
    # Triton's, CUTLASS's, and a loop in C++ around one try
    "braces": "{ .reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%r8], %r9;"
    " @!done bra AGAIN; }",
    "branches": "{ .reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%r8], %r9; @done bra DONE;"
    " bra AGAIN; DONE: }",
    "number": "$TRY#: { .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%r8], %r9;"
    " selp.u32 %r12, 1, 0, done; }\nsetp.eq.u32 %p4, %r12, 0; @%p4 bra $TRY#;",
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A kernel: one warp fetches, the others consume. size: bytes in a register instead of the code."""

    steps: int = 12
    stages: int = 3
    consumers: int = 2
    loop: Loop = "braces"
    dynamic: bool = False
    source: str = ""
    """Other PTX in place of text()."""

    @property
    def threads(self) -> tuple[int, ...]:
        return tuple(32 * warp + lane for warp in range(1 + self.consumers) for lane in range(LANES))


@lru_cache
def text(shape: Shape) -> str:
    """The PTX. The second lane of the producer's warp asks: the one for which %p1 holds."""
    arrivals = shape.consumers * LANES
    wait = LOOPS[shape.loop]
    size, half = ("%r13", "%r14") if shape.dynamic else ("2048", "1024")
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    stage = (
        f"rem.u32 %r5, %r4, {shape.stages}; div.u32 %r6, %r4, {shape.stages}; and.b32 %r6, %r6, 1; shl.b32 %r7, %r5, 3;"
    )
    inits = "".join(
        f"@%p0 mbarrier.init.shared::cta.b64 [%r{1 if full else 2}+{8 * n}], {1 if full else arrivals};\n"
        for n in range(shape.stages)
        for full in (True, False)
    )
    return f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry pipe(.param .u64 out)
{{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, {FULL}; mov.u32 %r2, {EMPTY};
mov.u32 %r14, 512; add.u32 %r14, %r14, %r14; add.u32 %r13, %r14, %r14;
shr.u32 %r3, %r0, 5; and.b32 %r11, %r0, 31;
setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r11, 1;
{inits}
bar.warp.sync 0xffffffff;
mov.u32 %r10, 0;
// the simulated block's barrier: all warps go on when the last initialization was seen
$READY:
ld.global.u32 %r12, [%rd1]; @%p0 st.global.u32 [%rd1], 1;
setp.eq.u32 %p3, %r12, 0; @%p3 bra $READY;
mov.u32 %r4, 0;
setp.ne.u32 %p2, %r3, 0; @%p2 bra $CONSUME;
$PRODUCE:
{stage}
add.u32 %r8, %r2, %r7; xor.b32 %r9, %r6, 1;
{wait.replace("#", "1")}
add.u32 %r8, %r1, %r7;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], {size};
@%p1 {copy} [%r7], [%rd1], {half}, [%r8];
@%p1 {copy} [%r7], [%rd1], {half}, [%r8];
add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, {shape.steps}; @%p3 bra $PRODUCE;
ret;
$CONSUME:
{stage}
add.u32 %r8, %r1, %r7; mov.b32 %r9, %r6;
{wait.replace("#", "2")}
add.u32 %r8, %r2, %r7;
mbarrier.arrive.shared::cta.b64 _, [%r8];
add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, {shape.steps}; @%p3 bra $CONSUME;
ret;
}}
"""


@lru_cache
def lowered(source: str, records: int | Literal["auto"] = 1024, survive: Survive | None = None) -> Lowered:
    """The text with records of auto="pipeline"."""
    return lower(source, Recording(records=records, survive=survive, selection=Selection((PIPELINE,))), frontend="test")


def recorded(
    shape: Shape, seed: int = 0, records: int | Literal["auto"] = 1024, order: Order = "random",
    survive: Survive | None = None,
) -> tuple[kscope.Trace, Barriers]:  # fmt: skip
    """Run a kernel; its trace, and its barriers, which know when phases were over."""
    made = lowered(shape.source or text(shape), records, survive)
    host, barriers = Host(Pool((Ring(14), Ring(14)))), Barriers(seed, (1, Random(seed).choice([60, 2000])))
    grid = Grid((1, 1, 1), (32 * (1 + shape.consumers), 1, 1))
    out = host.memory.allocate("out", 64)
    launch = Launch(host.load(made.text), host.memory, "pipe", grid, [out.base], threads=shape.threads)
    launch.barriers = barriers
    host.launched(grid, [(0, 0, 0)])
    run(launch.start(), order, seed)
    barriers.settled()
    capture = Capture(host.epoch, (DeviceCapture(0, "simulated", host.lines()),), (made.meta,))
    return kscope.decode(capture), barriers


def ns(trace: kscope.Trace, row: int, tick: int) -> float:
    """ns after the trace's origin of a time of the interpreter."""
    first = int(trace.warps.first_tick[row])
    behind = (Clocks.cycles + tick - first + (1 << 31)) % (1 << 32) - (1 << 31)
    return float(trace.warps.start_ns[row] + behind * trace.warps.tick_ns[row])
