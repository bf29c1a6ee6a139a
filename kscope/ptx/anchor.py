"""Anchors among the records of long warps, so that a reader knows the time even if the SM's clock changes in between.

ks_edge  .b32   minus the clock at the last anchor, in steps of 2^16, in 16 bits; bit 17 and above: the anchors
ks_due   .pred  a record ended at least four steps later
"""

from __future__ import annotations

from ..capture import layout, wire
from .kernel import Kernel

_STEPS, _ONE = 0xFFFF, 1 << wire.ANCHORS_SHIFT
"""The bits of the steps in ks_edge, and one anchor."""


def _since(into: str, clock: str) -> str:
    """The clock's steps plus ks_edge.

    A dot product of the clock's halves with 0 and 1, because that has no uniform form: with other instructions the
    assembler would read the clock into a uniform register, slowly, and once more for the record.
    """
    return f"{{ .reg .b32 ks_l; cvt.u32.u64 ks_l, {clock}; dp2a.lo.u32.u32 {into}, ks_l, 256, ks_edge; }}"


# edge = -(clock / 2^16)
def first_edge(kernel: Kernel) -> str:
    """At the kernel's entry."""
    if not kernel.anchored:
        return ""
    return (
        f"\tmov.u32 ks_edge, 0; {_since('ks_edge', 'ks_c')}"
        f" neg.s32 ks_edge, ks_edge; and.b32 ks_edge, ks_edge, {_STEPS};\n"
    )


# due = end / 2^16 is four steps past edge
def due(end: str) -> str:
    """Before the stores of a basic block, so that the branch of anchor() need not wait for the predicate.

    Three instructions, once per iteration of a loop (lowering/anchor_sites.py); a branch skips the rest. A loop of one
    basic block with one region (lowering/loop_registers.py) has none: there an anchor only precedes the loop, if
    another loop contains it.

    Args:
        end: 64-bit register with the clock that was read last.
    """
    return (
        f"\t{{ .reg .b32 ks_x; {_since('ks_x', end)}"
        f" and.b32 ks_x, ks_x, {_STEPS & -wire.ANCHOR_STEPS}; setp.ne.u32 ks_due, ks_x, 0; }}\n"
    )


# if due, and on: ring[n & mask] = {clock, id, clock, time}; n += 1
def anchor(kernel: Kernel, left: str = "") -> str:
    """After the stores of a basic block. left: stores of records that are still in registers."""
    conditions = ["ks_on"] if kernel.late else []  # all lanes count alike, unless each has its own records
    fits = ""
    if kernel.recording.fill == "stop":
        fits = f"\tsetp.gt.u32 ks_q, ks_n, {kernel.last};\n\t@ks_q bra KS_SOON;\n"
    counts = f"@{conditions[0]} " if conditions else ""
    return (
        "\t{ .reg .pred ks_q;\n"
        "\t@!ks_due bra KS_SOON;\n"
        f"{left}{fits}"
        "\t{ .reg .b64 ks_a, ks_b, ks_d, ks_to; .reg .b32 ks_i, ks_x, ks_y, ks_z;\n"
        "\tmov.u64 ks_a, %clock64; mov.u64 ks_b, %globaltimer; mov.u64 ks_d, %clock64;\n"
        f"\tand.b32 ks_i, ks_n, {kernel.last}; mad.wide.u32 ks_to, ks_i, {layout.RECORD_BYTES}, ks_base;\n"
        f"\t{_since('ks_i', 'ks_a')} and.b32 ks_i, ks_i, {_STEPS};\n"
        "\tcvt.u32.u64 ks_x, ks_a; cvt.u32.u64 ks_y, ks_b; cvt.u32.u64 ks_z, ks_d;\n"
        f"\t@ks_on st.global.v4.b32 [ks_to+{wire.HEAD_BYTES}], {{ks_x, {layout.ANCHOR_ID}, ks_z, ks_y}};\n"
        f"\t{counts}add.u32 ks_n, ks_n, 1;\n"
        # the steps since are taken from its low half, without a borrow from the number of anchors
        f"\tsub.u32 ks_i, ks_edge, ks_i; and.b32 ks_i, ks_i, {_STEPS};"
        f" and.b32 ks_edge, ks_edge, {-_ONE & 0xFFFFFFFF};\n"
        f"\tor.b32 ks_edge, ks_edge, ks_i; {counts}add.u32 ks_edge, ks_edge, {_ONE}; }}\n"
        "KS_SOON:\n\t}\n"
    )


def anchor_now(kernel: Kernel) -> str:
    """The same where no clock was read."""
    return f"\t{{ .reg .b64 ks_k; mov.u64 ks_k, %clock64;\n{due('ks_k')}{anchor(kernel)}\t}}\n"


# if on, and the ring overflowed, and there were anchors: ring[n & mask] = {clock, id, clock, anchors}; n += 1
def last_anchor(kernel: Kernel, clock: str) -> str:
    """Before the kernel returns, where ks_x is free: the number of anchors, which a full ring does not show.

    Args:
        kernel: the kernel.
        clock: 32-bit register with the low word of the end's clock.
    """
    if not kernel.anchored or kernel.recording.fill == "stop":  # these keep all anchors that were counted
        return ""
    return (
        "\t{ .reg .pred ks_q; .reg .b32 ks_i, ks_m; .reg .b64 ks_to;\n"
        f"\tsetp.gt.u32 ks_q, ks_n, {kernel.last}; setp.ge.and.u32 ks_q, ks_edge, {_ONE}, ks_q;\n"
        "\t@!ks_q bra KS_FEW;\n"
        f"\tshr.u32 ks_m, ks_edge, {wire.ANCHORS_SHIFT};"
        f" and.b32 ks_i, ks_n, {kernel.last}; mad.wide.u32 ks_to, ks_i, {layout.RECORD_BYTES}, ks_base;\n"
        f"\t@ks_on st.global.v4.b32 [ks_to+{wire.HEAD_BYTES}],"
        f" {{{clock}, {layout.LAST_ANCHOR_ID}, {clock}, ks_m}};\n"
        "\tadd.u32 ks_n, ks_n, 1;\n"
        "KS_FEW:\n\t}\n"
    )
