"""The entry of a launch in the launch table."""

from __future__ import annotations

from collections.abc import Sequence

from ..capture import layout, wire
from ..marks.strategies import AllThreads
from .address import gate
from .kernel import Kernel


# if thread 0: table[gridid % slots] = {gridid, kernel, grid, block, cluster, time, layout, check}
def launch_entry(kernel: Kernel) -> str:
    """The launch's entry, which the first thread of block 0 writes. Placed after the function's last return."""
    flags = (
        (layout.FLAG_GLOBALTIMER if kernel.recording.clock == "globaltimer" else 0)
        | (layout.FLAG_STOP if kernel.recording.fill == "stop" else 0)
        | (layout.FLAG_LANES if any(spec == AllThreads().spec for spec in kernel.specs) else 0)
        | (layout.FLAG_ANY if kernel.late else 0)
        | (layout.FLAG_ANCHORS if kernel.anchored else 0)
    )
    size = wire.VARYING if kernel.sized else kernel.log2_records
    place = size << layout.LOG2_SHIFT | flags << layout.FLAG_SHIFT
    low, high = kernel.id
    # clusters exist from sm_90 on; a launch without them has clusters of one block
    cluster = (
        " mov.u32 ks_t, %cluster_nctaid.z; mov.u32 ks_u, %cluster_nctaid.y; shl.b32 ks_t, ks_t, 8;"
        " or.b32 ks_t, ks_t, ks_u; mov.u32 ks_u, %cluster_nctaid.x; shl.b32 ks_t, ks_t, 8; or.b32 ks_t, ks_t, ks_u;"
        " shl.b32 ks_t, ks_t, 8; mov.u32 ks_u, %cluster_nctarank; setp.gt.u32 ks_r, ks_u, 1;"
        " selp.b32 ks_t, ks_t, 0, ks_r;"
        if kernel.arch >= 90
        else " mov.u32 ks_t, 0;"
    )

    def row(number: int, operands: Sequence[str]) -> str:
        check = "".join(f" xor.b32 ks_check, ks_check, {one};" for one in operands if one != "ks_check")
        return f"\t{check} @ks_q st.global.v4.u32 [ks_line+{16 * number}], {{{', '.join(operands)}}};\n"

    return (
        "KS_LAUNCH:\n"
        f"\t{{ .reg .pred ks_q, ks_r; .reg .b32 ks_x, ks_y, ks_z, ks_t, ks_u, ks_check;"
        " .reg .b64 ks_line, ks_a;\n"
        f"\tsetp.eq.u32 ks_q, ks_thread, 0; {_table(kernel)}"
        f" mov.u64 ks_a, %gridid; mov.b64 {{ks_x, ks_y}}, ks_a; and.b32 ks_z, ks_x, {wire.SLOTS - 1};"
        f" mad.wide.u32 ks_line, ks_z, {wire.LAUNCH_BYTES}, ks_line;\n"
        # the thread, 0 here, keeps the sums out of the uniform registers, into which ptxas would move the clocks
        "\tshr.u32 ks_check, ks_thread, 5; add.u32 ks_check, ks_check, ks_epoch;"
        f" mov.u32 ks_z, {low}; mov.u32 ks_t, {high};\n"
        + row(0, ["ks_x", "ks_y", "ks_z", "ks_t"])
        + "\tmov.u32 ks_x, %nctaid.x; mov.u32 ks_y, %nctaid.z; shl.b32 ks_y, ks_y, 16; mov.u32 ks_u, %nctaid.y;"
        " or.b32 ks_y, ks_y, ks_u;\n"
        "\tmov.u32 ks_z, %ntid.z; sub.u32 ks_z, ks_z, 1; shl.b32 ks_z, ks_z, 10; mov.u32 ks_u, %ntid.y;"
        " sub.u32 ks_u, ks_u, 1; or.b32 ks_z, ks_z, ks_u;\n"
        "\tshl.b32 ks_z, ks_z, 10; mov.u32 ks_u, %ntid.x; sub.u32 ks_u, ks_u, 1; or.b32 ks_z, ks_z, ks_u;\n"
        f"\t{cluster}\n" + row(1, ["ks_x", "ks_y", "ks_z", "ks_t"]) + "\tmov.b64 {ks_x, ks_y}, ks_g;"
        f" mov.u32 ks_z, {place};\n" + row(2, ["ks_x", "ks_y", "ks_z", "ks_check"]) + "\t}\n"
        "\tbra.uni KS_DONE;\n"
    )


def _table(kernel: Kernel) -> str:
    """The launch table's address in ks_line. With survive= it may be in the pool's file: the gate has its address."""
    if kernel.recording.survive:
        return f"ld.global.u64 ks_line, {gate('launches')};"
    after = wire.STRIPES_AT + wire.STRIPE_BYTES  # after the stripe of the reserve
    return f"mad.wide.u32 ks_line, ks_stripes, {wire.STRIPE_BYTES}, ks_ctl; add.u64 ks_line, ks_line, {after};"
