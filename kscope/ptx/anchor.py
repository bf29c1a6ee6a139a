"""Anchors among the records of long warps, so that a reader knows the time where the SM's clock changes in between.

    ks_edge  .b32   the clock at the last edge, a multiple of 2^17, and in the low bits how many edges there were

A record's end shows whether it is the first one behind an edge: two instructions, once per iteration of a loop
(lowering/anchor_sites.py). The rest is jumped over. Where a loop is one basic block with one region
(lowering/loop_registers.py), two instructions would be felt: there an anchor is only before the loop, if it is in
another one.
"""

from __future__ import annotations

from ..capture import layout, wire
from .kernel import Kernel

_CLOCK = ~wire.ANCHORS_MASK & 0xFFFFFFFF
_SELECTS = 0xCA
"""lop3 of a, b, c: a ? b : c, bit by bit."""


# edge = clock, without its low bits
def first_edge(kernel: Kernel) -> str:
    """At the kernel's entry."""
    return f"\tcvt.u32.u64 ks_edge, ks_c; and.b32 ks_edge, ks_edge, {_CLOCK};\n" if kernel.anchored else ""


# if end is behind an edge, and it is not the first edge, and on: ring[n & mask] = {clock, id, clock, time}; n += 1
def anchor(kernel: Kernel, end: str) -> str:
    """Behind the stores of a basic block.

    Args:
        kernel: the kernel.
        end: 64-bit register with the clock that was read last.
    """
    counted = "ks_o" if kernel.late else "ks_p"  # all lanes alike, unless each has its own records
    fits = f" setp.le.and.u32 ks_p, ks_n, {kernel.last}, ks_p;" if kernel.recording.fill == "stop" else ""
    return (
        f"\t{{ .reg .pred ks_q; .reg .b32 ks_x; cvt.u32.u64 ks_x, {end}; xor.b32 ks_x, ks_x, ks_edge;"
        # two instructions, which the assembler joins: ptxas 13 crashes on a lop3 before setp.eq
        f" and.b32 ks_x, ks_x, {_CLOCK}; setp.ne.u32 ks_q, ks_x, 0;\n"
        "\t@!ks_q bra KS_SOON;\n"
        "\t{ .reg .pred ks_p, ks_o; .reg .b64 ks_a, ks_b, ks_d, ks_to; .reg .b32 ks_i, ks_x, ks_y, ks_z;\n"
        "\tmov.u64 ks_a, %clock64; mov.u64 ks_b, %globaltimer; mov.u64 ks_d, %clock64;\n"
        f"\tand.b32 ks_i, ks_edge, {wire.ANCHORS_MASK}; setp.ne.u32 ks_p, ks_i, 0;{fits} and.pred ks_o, ks_p, ks_on;\n"
        f"\tand.b32 ks_i, ks_n, {kernel.last}; mad.wide.u32 ks_to, ks_i, {layout.RECORD_BYTES}, ks_base;\n"
        "\tcvt.u32.u64 ks_x, ks_a; cvt.u32.u64 ks_y, ks_b; cvt.u32.u64 ks_z, ks_d;\n"
        f"\t@ks_o st.global.v4.b32 [ks_to+{wire.HEAD_BYTES}], {{ks_x, {layout.ANCHOR_ID}, ks_z, ks_y}};\n"
        f"\t@{counted} add.u32 ks_n, ks_n, 1;\n"
        f"\tmov.u32 ks_y, ks_edge; {'@ks_on ' * kernel.late}add.u32 ks_y, ks_y, 1;"
        f" mov.u32 ks_z, {_CLOCK}; lop3.b32 ks_edge, ks_z, ks_x, ks_y, {_SELECTS}; }}\n"
        "KS_SOON:\n\t}\n"
    )


def anchor_now(kernel: Kernel) -> str:
    """The same where no clock was read."""
    return f"\t{{ .reg .b64 ks_k; mov.u64 ks_k, %clock64;\n{anchor(kernel, 'ks_k')}\t}}\n"


# if on, and the ring overflowed, and there were anchors: ring[n & mask] = {clock, id, clock, anchors}; n += 1
def last_anchor(kernel: Kernel, clock: str) -> str:
    """Before the kernel returns, where ks_x is free: how many anchors there were, which a full ring does not show.

    Args:
        kernel: the kernel.
        clock: 32-bit register with the low word of the end's clock.
    """
    if not kernel.anchored or kernel.recording.fill == "stop":  # these keep all anchors that were counted
        return ""
    return (
        "\t{ .reg .pred ks_q; .reg .b32 ks_i, ks_m; .reg .b64 ks_to;\n"
        f"\tsetp.gt.u32 ks_q, ks_n, {kernel.last}; and.b32 ks_m, ks_edge, {wire.ANCHORS_MASK - 1};"
        " setp.ne.and.u32 ks_q, ks_m, 0, ks_q;\n"
        "\t@!ks_q bra KS_FEW;\n"
        f"\tand.b32 ks_m, ks_edge, {wire.ANCHORS_MASK}; sub.u32 ks_m, ks_m, 1;"
        f" and.b32 ks_i, ks_n, {kernel.last}; mad.wide.u32 ks_to, ks_i, {layout.RECORD_BYTES}, ks_base;\n"
        f"\t@ks_on st.global.v4.b32 [ks_to+{wire.HEAD_BYTES}],"
        f" {{{clock}, {layout.LAST_ANCHOR_ID}, {clock}, ks_m}};\n"
        "\tadd.u32 ks_n, ks_n, 1;\n"
        "KS_FEW:\n\t}\n"
    )
