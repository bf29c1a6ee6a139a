"""The kernel of faults_program.py in Triton: each even program fills slots for the next one."""

from __future__ import annotations

import triton
import triton.language as tl

import kscope


@triton.jit
def pipeline(flags, done, out, mode, block, slot):
    program = tl.program_id(0)
    pair = program // 2 * 32
    flags += pair
    done += pair
    if program % 2 == 0:
        for i in range(32):
            if i > 0:
                with kscope.region("wait_empty", value=i):
                    while tl.atomic_add(done + i - 1, 0) < 1:
                        pass
            with kscope.region("load", value=i):
                if not ((program + 1 == block) & (mode == 2) & (i == slot)):
                    tl.atomic_xchg(flags + i, 1)
    else:
        lanes = tl.arange(0, 128)
        here = program == block
        for i in range(32):
            with kscope.region("wait_full", value=i):
                while tl.atomic_add(flags + i, 0) == 0:
                    pass
            with kscope.region("multiply", value=i):
                tl.store(out + program * 128 + lanes, lanes * i)
            if here & (i == slot) & (mode == 3):
                with kscope.region("check", value=i):
                    tl.inline_asm_elementwise("trap; mov.u32 $0, $1;", "=r,r", [lanes], tl.int32, False, 1)
            if here & (i == slot) & (mode == 4):
                with kscope.region("poke", value=i, open=True):
                    tl.store(out + program * 128 + lanes, tl.load(out + (lanes.to(tl.int64) + (1 << 40))))
            if not (here & (i == slot) & (mode == 1)):
                tl.atomic_add(done + i, 1)
