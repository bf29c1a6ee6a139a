"""The kernel of black_box_program.py in Triton: one program per block, whose four warps go together."""

from __future__ import annotations

import triton
import triton.language as tl

import kscope


@triton.jit
def pipeline(flags, done, out, mode, blocks):
    program = tl.program_id(0)
    if program == 0:
        for i in range(32):
            if i > 0:
                with kscope.region("wait_empty", value=i):
                    counted = tl.atomic_add(done + i - 1, 0)
                    while counted < blocks - 1:
                        counted = tl.atomic_add(done + i - 1, 0)
            with kscope.region("load", value=i):
                if not ((mode == 2) & (i == 28)):
                    tl.atomic_xchg(flags + i, 1)
    else:
        lanes = tl.arange(0, 128)
        for i in range(32):
            with kscope.region("wait_full", value=i):
                there = tl.atomic_add(flags + i, 0)
                while there == 0:
                    there = tl.atomic_add(flags + i, 0)
            with kscope.region("multiply", value=i):
                tl.store(out + program * 128 + lanes, lanes * i)
            if (program == 22) & (i == 22) & (mode == 3):
                with kscope.region("check", value=i):
                    tl.inline_asm_elementwise("trap; mov.u32 $0, $1;", "=r,r", [lanes], tl.int32, False, 1)
            if (program == 22) & (i == 22) & (mode == 4):
                with kscope.region("poke", value=i, open=True):
                    tl.store(out + program * 128 + lanes, tl.load(out + (lanes.to(tl.int64) + (1 << 40))))
            if not ((program == 22) & (i == 28) & (mode == 1)):
                tl.atomic_add(done + i, 1)
