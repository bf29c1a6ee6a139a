"""The kernel of faults_program.py in Gluon: one partition of a program's warps fills slots, the other takes them."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import kscope


@gluon.jit
def producer(flags, done, out, mode, block, slot):
    here = gl.program_id(0) == block
    for i in range(32):
        if i > 0:
            with kscope.region("wait_empty", value=i):
                while gl.atomic_add(done + i - 1, 0) < 1:
                    pass
        with kscope.region("load", value=i):
            if not (here & (mode == 2) & (i == slot)):
                gl.atomic_xchg(flags + i, 1)


@gluon.jit
def consumer(flags, done, out, mode, block, slot):
    lanes = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    here = gl.program_id(0) == block
    out += gl.program_id(0) * 128
    for i in range(32):
        with kscope.region("wait_full", value=i):
            while gl.atomic_add(flags + i, 0) == 0:
                pass
        with kscope.region("multiply", value=i):
            gl.store(out + lanes, lanes * i)
        if here & (i == slot) & (mode == 3):
            with kscope.region("check", value=i):
                gl.inline_asm_elementwise("trap; mov.u32 $0, $1;", "=r,r", [lanes], gl.int32, False, 1)
        if here & (i == slot) & (mode == 4):
            with kscope.region("poke", value=i, open=True):
                gl.store(out + lanes, gl.load(out + (lanes.to(gl.int64) + (1 << 40))))
        if not (here & (i == slot) & (mode == 1)):
            gl.atomic_add(done + i, 1)


@gluon.jit(do_not_specialize=["mode"])  # Triton 3.6 does not compile the partitions with a constant mode of 1
def pipeline(flags, done, out, mode, block, slot):
    row = gl.program_id(0) * 32
    parts = (flags + row, done + row, out, mode, block, slot)
    gl.warp_specialize([(consumer, parts), (producer, parts)], [4], [40])
