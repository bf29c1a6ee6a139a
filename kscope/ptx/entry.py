"""The module's symbols, and the first text of a kernel: declarations, the start anchor, and the loads for the claim."""

from __future__ import annotations

from collections.abc import Sequence

from ..capture import layout, wire
from .address import gate
from .anchor import first_edge
from .kernel import Kernel, Slot

_ROOM = 768
"""In bytes."""
_NO_ENTER = "\tmov.u32 ks_seq, 0;\n"
"""Before the first stored enter."""


def control_symbol() -> str:
    """The constant that holds the control block's address; weak, so that linked units share it."""
    return f".weak .const .align 8 .u64 {wire.CTL_SYMBOL};\n"


def metadata_symbol(data: bytes, size: int = 0) -> str:
    """The module's metadata, as a symbol of `size` bytes; if that is too few, with room for one more problem."""
    body = ", ".join(map(str, [*data, 0]))
    size = size if size > len(data) else len(data) + 1 + _ROOM
    return f".visible .global .align 1 .b8 {layout.META_SYMBOL}[{size}] = {{{body}}};\n"


def declarations(kernel: Kernel, slots: Sequence[Slot]) -> str:
    """The registers of a kernel."""
    owners = "".join(f", {owner}" for owner in kernel.owners)
    starts = "".join(f" .reg .b64 ks_s{s.index}, ks_e{s.index};" for s in slots)
    values = "".join(f" .reg .b32 ks_v{s.index};" for s in slots if s.type is not None)
    values += "".join(f" .reg .b32 ks_u{s.index};" for s in slots if s.wide)
    values += "".join(f" .reg .pred ks_w{s.index};" for s in slots if s.conditional)
    values += " .reg .b32 ks_last, ks_units;" if kernel.sized else ""
    values += " .reg .b32 ks_seq;" if kernel.recording.survive else ""
    values += " .reg .b32 ks_edge; .reg .pred ks_due;" if kernel.anchored else ""
    late = " .reg .pred ks_may, ks_own;" if kernel.late else ""
    return (
        f".reg .pred ks_on, ks_try, ks_room, ks_full, ks_first{owners}{', ks_never' if kernel.pins else ''};"
        " .reg .b64 ks_base, ks_ctl, ks_ring, ks_c, ks_g;"
        " .reg .b32 ks_n, ks_w, ks_epoch, ks_stripes, ks_warps, ks_sampled, ks_sm, ks_thread, ks_stripe,"
        " ks_p, ks_at, ks_limit, ks_mask;\n"
        f"\t{starts}{values}{late}\n"
    )


# start anchor = clock, globaltimer, clock; ctl = load(kscope_ctl); gate = load(ctl.gate)
def entry(kernel: Kernel, slots: Sequence[Slot]) -> str:
    """The first text of a kernel: registers, the start anchor, and the loads that attempt() waits for."""
    size = ""
    if kernel.sized:
        size = f"\tmov.u32 ks_last, 0; @ks_try ld.global.u32 ks_last, [ks_ctl+{kernel.size_offset}];\n"
    never = "\tsetp.eq.u64 ks_never, ks_ctl, 1;\n" if kernel.pins else ""
    return (
        f"{declarations(kernel, slots)}"
        "\tmov.u64 ks_c, %clock64;\n\tmov.u64 ks_g, %globaltimer;\n"
        f"\t{{ .reg .b64 ks_d; .reg .b32 ks_x, ks_y, ks_z; mov.u64 ks_d, %clock64; {width('ks_w', 'ks_c')}\n"
        # the low bytes of the high words, which the exit compares with its own
        "\tmov.b64 {ks_x, ks_y}, ks_g; mov.b64 {ks_x, ks_z}, ks_c; prmt.b32 ks_y, ks_y, ks_z, 0x4040;"
        " prmt.b32 ks_w, ks_w, ks_y, 0x7610; }\n"
        f"{first_edge(kernel)}"
        f"\tld.const.u64 ks_ctl, [{wire.CTL_SYMBOL}];\n"
        f"{never}"
        "\tmov.u32 ks_epoch, 0; mov.u32 ks_warps, 0; mov.u32 ks_stripes, 0; mov.u32 ks_sampled, 0;"
        " setp.ne.u64 ks_try, ks_ctl, 0;\n"
        # through the L1 cache: all warps of the device read this line, and the L2 would serve them in turn
        f"\t@ks_try ld.global.v4.u32 {{ks_epoch, ks_stripes, ks_warps, ks_sampled}}, {gate('epoch')};\n"
        f"{size}"
        f"{_NO_ENTER if kernel.recording.survive else ''}"
    )


def width(into: str, first: str) -> str:
    """The width of an anchor in steps, from the clock read `first` to the one in ks_d.

    Both words are used: for the low word alone, ptxas 13.0 would read the clock with the slow S2UR.
    """
    step, most = wire.WIDTH_CYCLES.bit_length() - 1, (1 << wire.WIDTH_BITS) - 2
    return (
        f"sub.u64 ks_d, ks_d, {first}; shr.u64 ks_d, ks_d, {step}; min.u64 ks_d, ks_d, {most};"
        f" cvt.u32.u64 {into}, ks_d; add.u32 {into}, {into}, 1;"
    )
