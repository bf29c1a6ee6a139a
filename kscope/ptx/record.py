"""A record: its clock reads, its store; and the last words of the slab's header.

What lives here: the text that stands in the user's loops, and at the kernel's end. What does not: the
slab (claim.py), and where in the kernel each text goes (lowering/).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..capture import layout
from .kernel import Kernel, Slot


def clock(kernel: Kernel, into: str) -> str:
    """Reads the records' clock. The 64-bit registers: their low word beat every 32-bit read on an H200."""
    return f"mov.u64 {into}, %{'clock64' if kernel.recording.clock == 'cycles' else 'globaltimer'};"


def settle(kernel: Kernel) -> str:
    """Before a clock read behind a barrier, so that the barrier has been passed. A fence that is a NOP in machine code
    and asks nothing of other lanes; the assembler keeps it behind barriers and before clock reads. Before sm_90
    barriers hold a warp at once."""
    return "\tfence.mbarrier_init.release.cluster;\n" if kernel.arch >= 90 else ""


def enter(
    kernel: Kernel,
    slot: Slot,
    value: str | None,
    when: str | None = None,
    elect: bool = False,
    ended: Slot | None = None,
) -> str:
    """One clock read into the slot's register; touches no memory. The value is copied: the user's register
    may hold something else by the time of the store. So is the predicate, which the exit follows. elect: it holds
    in the first of the lanes that are here together, and in no other. ended: whose end stands right before, and is
    read already."""
    begin = f"ks_s{slot.index}"
    read = clock(kernel, begin) if ended is None else f"mov.b64 {begin}, ks_e{ended.index};"
    return f"\t{read}{_copies(slot, value, when, elect)}\n"


def _copies(slot: Slot, value: str | None, when: str | None, elect: bool) -> str:
    copy = f" mov.b32 ks_v{slot.index}, {value};" if value is not None else ""
    if not slot.asked:
        return copy
    held = f"ks_w{slot.index}"
    copy += f" setp.eq.u64 {held}, ks_ctl, ks_ctl;" if when is None else f" setp.ne.u32 {held}, {when}, 0;"
    if not elect:
        return copy
    return copy + (
        " { .reg .b32 ks_k, ks_x; activemask.b32 ks_k; mov.u32 ks_x, %lanemask_lt; and.b32 ks_k, ks_k, ks_x;"
        f" setp.eq.and.u32 {held}, ks_k, 0, {held}; }}"
    )


def leave(kernel: Kernel, slot: Slot) -> str:
    """One clock read at the region's end; store() may come later."""
    return f"\t{clock(kernel, f'ks_e{slot.index}')}\n"


def point(kernel: Kernel, slot: Slot, value: str | None, when: str | None = None, elect: bool = False) -> str:
    """An instant or counter: one clock read is both start and end."""
    copies = _copies(slot, value, when, elect)
    return f"\t{clock(kernel, f'ks_s{slot.index}')} mov.b64 ks_e{slot.index}, ks_s{slot.index};{copies}\n"


# if on, and the enter's predicate held: ring[n & mask] = {start, id, end, value}; n += 1
def store(kernel: Kernel, slot: Slot, kind: layout.Kind, owner: str) -> str:
    """The record: no branch, no atomic, one 16-byte store that cannot leave the slab."""
    last = "0" if kind in (layout.Kind.SPAN, layout.Kind.INSTANT) else f"ks_v{slot.index}"
    asked = ""
    if slot.asked:
        asked = f" .reg .pred ks_h; and.pred ks_h, ks_w{slot.index}, {owner};"
        owner = "ks_h"
    guard, test = owner, ""
    if kernel.recording.fill == "stop":
        guard, test = "ks_q", f" .reg .pred ks_q; setp.lt.and.u32 ks_q, ks_n, {kernel.mask + 1}, {owner};"
    words = f"ks_sl, {layout.record_id(slot.name, kind)}, ks_el, {last}"
    return (
        f"\t{{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el;{asked}{test}\n"
        # two instructions; mul.wide and add are one, a wide multiplication, and cost a 28 us matmul 5 % more
        f"\tand.b32 ks_i, ks_n, {kernel.mask}; mad.wide.u32 ks_a, ks_i, {layout.RECORD_BYTES}, ks_base;\n"
        f"\tcvt.u32.u64 ks_sl, ks_s{slot.index}; cvt.u32.u64 ks_el, ks_e{slot.index};\n"
        f"\t@{guard} st.global.v4.b32 [ks_a], {{{words}}};\n"
        f"\t{counted(owner)} }}\n"
    )


def counted(owner: str) -> str:
    """One record more; whoever has no slab may count what it likes."""
    return "add.u32 ks_n, ks_n, 1;" if owner == "ks_on" else f"@{owner} add.u32 ks_n, ks_n, 1;"


# if on: header.end = clock, globaltimer, clock, n, done
def finish() -> str:
    """Last text before the kernel is left: the end anchor, the count, the done word."""
    end, tail = layout.HEADER_BYTES - 96, layout.HEADER_BYTES - 112
    return (
        "\t{ .reg .b64 ks_a, ks_b, ks_d; .reg .b32 ks_x, ks_y, ks_z, ks_t, ks_u;\n"
        "\tmov.u64 ks_a, %clock64; mov.u64 ks_b, %globaltimer; mov.u64 ks_d, %clock64;\n"
        "\tmov.b64 {ks_x, ks_y}, ks_a; mov.b64 {ks_z, ks_t}, ks_b;\n"
        f"\t@ks_on st.global.v4.u32 [ks_base+-{end}], {{ks_x, ks_y, ks_z, ks_t}};\n"
        "\tsub.u64 ks_d, ks_d, ks_a; min.u64 ks_d, ks_d, 0xFFFFFFFF; cvt.u32.u64 ks_u, ks_d; mov.u32 ks_y, 0;\n"
        f"\txor.b32 ks_x, ks_x, ks_n; xor.b32 ks_x, ks_x, {layout.DONE_WORD};\n"
        f"\t@ks_on st.global.v4.u32 [ks_base+-{tail}], {{ks_u, ks_n, ks_y, ks_x}};\n"
        "\t}\n"
    )


def pin(operand: str) -> str:
    """A store that never fires and whose value must be there: the computation stays before this line."""
    return f"\t@ks_never st.global.b32 [ks_base], {operand};\n"


def guarded(predicate: str, negated: bool, label: str, body: Iterable[str]) -> str:
    """`body` for the threads whose predicate holds; the rest go on at `label`."""
    return f"\t@{'' if negated else '!'}{predicate} bra {label};\n{''.join(body)}{label}:\n"
