"""The module's symbols, and the first text of a kernel: declarations, the start anchor, and the loads for the claim."""

from __future__ import annotations

from collections.abc import Sequence

from ..capture import layout
from .address import gate
from .kernel import Kernel, Slot

_ROOM = 768
"""Bytes."""


def control_symbol() -> str:
    """The constant that holds the control block's address; weak, so that linked units share it."""
    return f".weak .const .align 8 .u64 {layout.CTL_SYMBOL};\n"


def metadata_symbol(data: bytes, size: int = 0) -> str:
    """The module's metadata, as a symbol of `size` bytes; if that is too few, with room for one more problem."""
    body = ", ".join(map(str, [*data, 0]))
    size = size if size > len(data) else len(data) + 1 + _ROOM
    return f".visible .global .align 1 .b8 {layout.META_SYMBOL}[{size}] = {{{body}}};\n"


# start anchor = clock, globaltimer, clock; ctl = load(kscope_ctl); gate = load(ctl.gate)
def entry(kernel: Kernel, slots: Sequence[Slot]) -> str:
    """The first text of a kernel: registers, the start anchor, and the loads that attempt() waits for."""
    owners = "".join(f", {owner}" for owner in kernel.owners)
    starts = "".join(f" .reg .b64 ks_s{s.index}, ks_e{s.index};" for s in slots)
    values = "".join(f" .reg .b32 ks_v{s.index};" for s in slots if s.type is not None)
    values += "".join(f" .reg .pred ks_w{s.index};" for s in slots if s.conditional)
    late = " .reg .pred ks_may, ks_own;" if kernel.late else ""
    never = "\tsetp.eq.u64 ks_never, ks_ctl, 1;\n" if kernel.pins else ""
    return (
        f".reg .pred ks_on, ks_try, ks_room, ks_full{owners}{', ks_never' if kernel.pins else ''};"
        " .reg .b64 ks_base, ks_ctl, ks_ring, ks_c, ks_g;"
        " .reg .b32 ks_n, ks_w, ks_epoch, ks_stripes, ks_warps, ks_sampled, ks_sm, ks_thread, ks_stripe,"
        " ks_p, ks_at, ks_limit, ks_mask;\n"
        f"\t{starts}{values}{late}\n"
        "\tmov.u64 ks_c, %clock64;\n\tmov.u64 ks_g, %globaltimer;\n"
        # 64 bits until the end: for the low word alone, ptxas 13.0 would use the slow S2UR
        "\t{ .reg .b64 ks_d; mov.u64 ks_d, %clock64; sub.u64 ks_d, ks_d, ks_c; min.u64 ks_d, ks_d, 0xFFFFFFFF;"
        " cvt.u32.u64 ks_w, ks_d; }\n"
        f"\tld.const.u64 ks_ctl, [{layout.CTL_SYMBOL}];\n"
        f"{never}"
        "\tmov.u32 ks_epoch, 0; mov.u32 ks_warps, 0; mov.u32 ks_stripes, 0; mov.u32 ks_sampled, 0;"
        " setp.ne.u64 ks_try, ks_ctl, 0;\n"
        # through the L1 cache: all warps of the device read this line, and the L2 would serve them in turn
        f"\t@ks_try ld.global.v4.u32 {{ks_epoch, ks_stripes, ks_warps, ks_sampled}}, {gate('epoch')};\n"
    )
