"""Emits a record's clock reads and store, and the end of the slab's head."""

from __future__ import annotations

from collections.abc import Iterable

from ..capture import layout, wire
from ..marks.names import ValueType
from ..marks.wide_values import halves
from .anchor import last_anchor
from .entry import width
from .kernel import Kernel, Slot


def clock(kernel: Kernel, into: str) -> str:
    """Read the records' clock. The low word of the 64-bit register beats every 32-bit read on an H200."""
    return f"mov.u64 {into}, %{'clock64' if kernel.recording.clock == 'cycles' else 'globaltimer'};"


def barrier_fence(kernel: Kernel) -> str:
    """Keep a clock read from being issued before a preceding barrier completes.

    The fence is a NOP in machine code that the assembler keeps between barrier and clock read. Not needed before
    sm_90, where a barrier stops the warp at once.
    """
    return "\tfence.mbarrier_init.release.cluster;\n" if kernel.arch >= 90 else ""


def enter(
    kernel: Kernel,
    slot: Slot,
    value: str | None,
    when: str | None = None,
    elect: bool = False,
    ended: Slot | None = None,
    kind: ValueType | None = None,
) -> str:
    """Read the clock into the slot's register; no memory access.

    Value and predicate are copied, because the user's registers may change before the store.

    Args:
        kernel: the kernel.
        slot: the region's registers.
        value: operand of its value, None for none.
        when: operand of its predicate, None for always.
        elect: only the first of the lanes that are here together records.
        ended: the slot of a region that ends right before, whose clock read is used.
        kind: type of the operand, if the slot's has 64 bits.
    """
    begin = f"ks_s{slot.index}"
    read = clock(kernel, begin) if ended is None else f"mov.b64 {begin}, ks_e{ended.index};"
    return f"\t{read}{_copies(slot, value, when, elect, kind)}\n"


def _copies(slot: Slot, value: str | None, when: str | None, elect: bool, kind: ValueType | None = None) -> str:
    copy = ""
    if value is not None:
        copy = _wide(slot, value, kind) if slot.wide else f" mov.b32 ks_v{slot.index}, {value};"
    if not slot.conditional:
        return copy
    held = f"ks_w{slot.index}"
    copy += f" setp.eq.u64 {held}, ks_ctl, ks_ctl;" if when is None else f" setp.ne.u32 {held}, {when}, 0;"
    if not elect:
        return copy
    return copy + (
        " { .reg .b32 ks_k, ks_x; activemask.b32 ks_k; mov.u32 ks_x, %lanemask_lt; and.b32 ks_k, ks_k, ks_x;"
        f" setp.eq.and.u32 {held}, ks_k, 0, {held}; }}"
    )


def _wide(slot: Slot, value: str, kind: ValueType | None) -> str:
    """Set ks_v and ks_u to the halves of a value that marks/wide_values.py describes."""
    word, rest = f"ks_v{slot.index}", f"ks_u{slot.index}"
    if kind == "f32":
        double = f"cvt.f64.f32 ks_q, {value}; mov.b64 {{{rest}, {word}}}, ks_q;"
        return f" {{ .reg .f64 ks_q; {double} }}"
    if kind in ("i32", "u32"):
        return f" mov.b32 {word}, {value}; mov.b32 {rest}, 0;"
    if value.startswith("0x"):
        one, other = halves(slot.type or "", int(value, 16))
        return f" mov.b32 {word}, {one}; mov.b32 {rest}, {other};"
    if slot.type == "f64":
        return f" mov.b64 {{{rest}, {word}}}, {value};"
    sign = f" {{ .reg .b32 ks_x; shr.s32 ks_x, {word}, 31; xor.b32 {rest}, {rest}, ks_x; }}"
    return f" mov.b64 {{{word}, {rest}}}, {value};{sign if slot.type == 'i64' else ''}"


def leave(kernel: Kernel, slot: Slot) -> str:
    """Read the clock at a region's end; store() may come later."""
    return f"\t{clock(kernel, f'ks_e{slot.index}')}\n"


def point(
    kernel: Kernel,
    slot: Slot,
    value: str | None,
    when: str | None = None,
    elect: bool = False,
    kind: ValueType | None = None,
) -> str:
    """An instant or counter: one clock read is its start and its end."""
    copies = _copies(slot, value, when, elect, kind)
    return f"\t{clock(kernel, f'ks_s{slot.index}')} mov.b64 ks_e{slot.index}, ks_s{slot.index};{copies}\n"


# if on, and the predicate held: head.second_row = {start, hash | sequence & 15, value, sequence << 8}; sequence += 1
def open_word(kernel: Kernel, slot: Slot, value: str | None, owner: str) -> str:
    """Store that the warp has entered a region, after enter(), where the head's end will be: one store, whose words
    are in registers.
    """
    guard, test = owner, ""
    if slot.conditional:
        guard, test = "ks_h", f" .reg .pred ks_h; and.pred ks_h, ks_w{slot.index}, {owner};"
    last, fits = "0" if value is None else f"ks_v{slot.index}", ""
    if value is not None and slot.type in wire.OPEN_UNKNOWN:
        last, unknown = "ks_z", wire.OPEN_UNKNOWN[slot.type]
        test += " .reg .b32 ks_z; .reg .pred ks_q;"
        fits = f"\tsetp.ne.u32 ks_q, ks_u{slot.index}, 0; selp.b32 ks_z, {unknown}, ks_v{slot.index}, ks_q;\n"
    number = layout.name_hash(slot.name) << wire.SEQUENCE_LOW.bit_length()
    return (
        f"\t{{ .reg .b32 ks_x, ks_y;{test}\n{fits}"
        f"\tadd.u32 ks_seq, ks_seq, {1 << wire.SEQUENCE_SHIFT}; shr.u32 ks_y, ks_seq, {wire.SEQUENCE_SHIFT};"
        f" and.b32 ks_y, ks_y, {wire.SEQUENCE_LOW}; or.b32 ks_y, ks_y, {number}; cvt.u32.u64 ks_x, ks_s{slot.index};\n"
        f"\t@{guard} st.global.v4.b32 [ks_base+{wire.OPEN_AT}], {{ks_x, ks_y, {last}, ks_seq}}; }}\n"
    )


# if on, and the enter's predicate held: ring[n & mask] = {start, id, end, value}; n += 1
def store(kernel: Kernel, slot: Slot, kind: layout.Kind, owner: str, kept: str = "", shadow: bool = False) -> str:
    """Store the record: no branch, no atomic, one 16-byte store that cannot leave the slab; of a value of 64 bits also
    its other half, where it is not 0, in a row before.

    Args:
        kernel: the kernel.
        slot: the registers.
        kind: of the record.
        owner: predicate of the lanes that record it.
        kept: another one, if the record stayed in registers.
        shadow: it is between a wait's begin and what is issued to the tensor cores: a store that the assembler may move
            would go after the wait.
    """
    if slot.wide and kind not in (layout.Kind.SPAN, layout.Kind.INSTANT):
        return _store_wide(kernel, slot, kind, owner)
    last = "0" if kind in (layout.Kind.SPAN, layout.Kind.INSTANT) else f"ks_v{slot.index}"
    conditional = ""
    for held in filter(None, [slot.conditional and f"ks_w{slot.index}", kept]):
        conditional += f" and.pred ks_h, {held}, {owner};"
        owner = "ks_h"
    conditional = conditional and f" .reg .pred ks_h;{conditional}"
    code = "st.relaxed.gpu.global" if shadow else "st.global"
    guard, test = owner, ""
    if kernel.recording.fill == "stop":
        guard, test = "ks_q", f" .reg .pred ks_q; setp.le.and.u32 ks_q, ks_n, {kernel.last}, {owner};"
    words = f"ks_sl, {layout.record_id(slot.name, kind)}, ks_el, {last}"
    return (
        f"\t{{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el;{conditional}{test}\n"
        # two instructions: as one wide multiplication they cost a 28 us matmul 5 % more
        f"\tand.b32 ks_i, ks_n, {kernel.last}; mad.wide.u32 ks_a, ks_i, {layout.RECORD_BYTES}, ks_base;\n"
        f"\tcvt.u32.u64 ks_sl, ks_s{slot.index}; cvt.u32.u64 ks_el, ks_e{slot.index};\n"
        f"\t@{guard} {code}.v4.b32 [ks_a+{wire.HEAD_BYTES}], {{{words}}};\n"
        f"\t{counted(owner)} }}\n"
    )


# if on, and the enter's predicate held: if rest: ring[n & mask] = {start, id of MORE, end, rest}; n += 1;
#                                        ring[n & mask] = {start, id, end, value}; n += 1
def _store_wide(kernel: Kernel, slot: Slot, kind: layout.Kind, owner: str) -> str:
    value, rest, stops = f"ks_v{slot.index}", f"ks_u{slot.index}", kernel.recording.fill == "stop"
    held = f" and.pred ks_h, ks_w{slot.index}, {owner};" if slot.conditional else ""
    owner = "ks_h" if slot.conditional else owner
    number, plain = layout.name_hash(slot.name) << 4, layout.record_id(slot.name, kind)
    address = f"and.b32 ks_i, ks_n, {kernel.last}; mad.wide.u32 ks_a, ks_i, {layout.RECORD_BYTES}, ks_base;"

    def row(words: str, guard: str) -> str:
        room = f" setp.le.and.u32 ks_q, ks_n, {kernel.last}, {guard};" if stops else ""
        stored = f"@{'ks_q' if stops else guard} st.global.v4.b32 [ks_a+{wire.HEAD_BYTES}], {{{words}}};"
        return f"\t{address}{room}\n\t{stored}\n\t@{guard} add.u32 ks_n, ks_n, 1;\n"

    return (
        "\t{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el, ks_k; .reg .pred ks_h, ks_m, ks_q;"
        f"{held} setp.ne.and.u32 ks_m, {rest}, 0, {owner};\n"
        f"\tcvt.u32.u64 ks_sl, ks_s{slot.index}; cvt.u32.u64 ks_el, ks_e{slot.index};"
        f" selp.b32 ks_k, {plain | layout.HAS_MORE}, {plain}, ks_m;\n"
        f"{row(f'ks_sl, {number | layout.MORE}, ks_el, {rest}', 'ks_m')}"
        f"{row(f'ks_sl, ks_k, ks_el, {value}', owner)}\t}}\n"
    )


def counted(owner: str) -> str:
    """Count the record. Lanes without a slab may count as well."""
    return "add.u32 ks_n, ks_n, 1;" if owner == "ks_on" else f"@{owner} add.u32 ks_n, ks_n, 1;"


# if on: head.end = clock, globaltimer, n, seal
def finish(kernel: Kernel) -> str:
    """Before the kernel returns: the end anchor, the count and the seal, in one store."""
    return (
        "\t{ .reg .b64 ks_a, ks_b, ks_d; .reg .b32 ks_x, ks_y, ks_z, ks_t, ks_u, ks_v;\n"
        "\tmov.u64 ks_a, %clock64; mov.u64 ks_b, %globaltimer; mov.u64 ks_d, %clock64;\n"
        f"\t{width('ks_u', 'ks_a')} and.b32 ks_v, ks_w, 255; max.u32 ks_u, ks_u, ks_v;"
        " prmt.b32 ks_u, ks_u, ks_w, 0x7650;\n"
        "\tmov.b64 {ks_x, ks_y}, ks_a; mov.b64 {ks_z, ks_t}, ks_b;"
        f" shf.r.wrap.b32 ks_z, ks_z, ks_t, {wire.TIME_SHIFT};\n"
        f"{last_anchor(kernel, 'ks_x')}"
        "\tprmt.b32 ks_t, ks_t, ks_y, 0x4040; shr.u32 ks_v, ks_w, 16; sub.u32 ks_t, ks_t, ks_v;"
        " prmt.b32 ks_u, ks_u, ks_t, 0x5410;\n"
        f"\t@ks_on st.global.v4.u32 [ks_base+{wire.HEAD_BYTES // 2}], {{ks_x, ks_z, ks_n, ks_u}};\n"
        "\t}\n"
    )


def pin(operand: str, wide: bool = False) -> str:
    """A store that never executes but needs its value, so the computation stays before this line. wide: 64 bits."""
    return f"\t@ks_never st.global.b{64 if wide else 32} [ks_base], {operand};\n"


def guarded(predicate: str, negated: bool, label: str, body: Iterable[str]) -> str:
    """`body` for the threads whose predicate holds; the others continue at `label`."""
    return f"\t@{'' if negated else '!'}{predicate} bra {label};\n{''.join(body)}{label}:\n"
