"""PTX: the only place that spells an instruction.

What lives here: the text of each device step (declare, claim, enter, exit, store, leave), from values.
What does not: where the text goes (plan.py), and the meaning of the words stored (layout.py).

State of a recording lane, in registers declared once at the entry's function scope and shared by name
with every later block of text:

    ks_on    .pred  this lane owns a slab           ks_s<i>  .b64  clock at the enter of slot i
    ks_base  .b64   address of the slab's records   ks_e<i>  .b64  clock at its exit, until stored
    ks_n     .b32   records so far                  ks_v<i>  .b32  its value

Everything else is declared inside braces. Every name begins with `ks_`: user code has none such, and a
register that is called like a kernel crashes ptxas 13.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import layout
from .marks import ValueType
from .recording import Recording
from .strategies import AllThreads, Elected, Lane0Warp0, TargetWarp, parse_strategy

_LAST_SM = layout.MAX_SMS - 1


def _gate(field: str) -> str:
    """Address of a gate's field."""
    return f"[ks_ctl+{layout.GATE.fields[field][1]}]"  # type: ignore[index]  # a structured dtype has fields


def _stripe(field: str) -> str:
    """Address of a field of the stripe that ks_line points at."""
    return f"[ks_line+{layout.GATE_BYTES + layout.STRIPE.fields[field][1]}]"  # type: ignore[index]  # as above


@dataclass(frozen=True)
class Slot:
    """One start register: a region's name at one depth of its own recursion."""

    index: int
    name: str
    type: ValueType | None

    @property
    def kind(self) -> layout.Kind:
        return layout.Kind.SPAN if self.type is None else layout.Kind.SPAN_VALUE


@dataclass(frozen=True)
class Kernel:
    """What the text of one entry function depends on.

    specs: the strategies that its marks use, sorted; the claim is for their union.
    id: (low, high) words of HEADER["kernel"], as PTX operands.
    """

    recording: Recording
    specs: tuple[str, ...]
    log2_records: int
    id: tuple[str, str]
    arch: int
    pins: bool = False

    @property
    def mask(self) -> int:
        return (1 << self.log2_records) - 1

    def owner(self, spec: str | None) -> str:
        """The predicate of the lanes that record under this strategy."""
        return "ks_on" if len(self.specs) == 1 else f"ks_on{self.specs.index(spec or self.recording.strategy.spec)}"


def control_symbol() -> str:
    """The constant that the host points at the control block; weak, so that linked units share it."""
    return f".weak .const .align 8 .u64 {layout.CTL_SYMBOL};\n"


def metadata_symbol(data: bytes) -> str:
    """The module's own description, in the module."""
    body = ", ".join(map(str, [*data, 0]))
    return f".visible .global .align 1 .b8 {layout.META_SYMBOL}[{len(data) + 1}] = {{{body}}};\n"


# start anchor = clock, globaltimer, clock; ctl = load(kscope_ctl)      -- waits for nothing
def entry(kernel: Kernel, slots: Sequence[Slot]) -> str:
    """First text of the entry function: registers, the start anchor, and a load that claim() waits for."""
    owners = "".join(f", {owner}" for owner in _owners(kernel))
    starts = "".join(f" .reg .b64 ks_s{s.index}, ks_e{s.index};" for s in slots)
    values = "".join(f" .reg .b32 ks_v{s.index};" for s in slots if s.type is not None)
    never = "\tsetp.eq.u64 ks_never, ks_ctl, 1;\n" if kernel.pins else ""
    return (
        f".reg .pred ks_on{owners}{', ks_never' if kernel.pins else ''};"
        " .reg .b64 ks_base, ks_ctl, ks_c, ks_g; .reg .b32 ks_n, ks_w;\n"
        f"\t{starts}{values}\n"
        "\tmov.u64 ks_c, %clock64;\n\tmov.u64 ks_g, %globaltimer;\n"
        "\t{ .reg .b64 ks_d; .reg .b32 ks_a, ks_b; mov.u64 ks_d, %clock64; cvt.u32.u64 ks_a, ks_d; cvt.u32.u64 ks_b, ks_c;"
        " sub.u32 ks_w, ks_a, ks_b; }\n"
        f"\tld.const.u64 ks_ctl, [{layout.CTL_SYMBOL}];\n"
        f"{never}"
    )


def _owners(kernel: Kernel) -> list[str]:
    """Predicates of the strategies, where the kernel has more than one."""
    return [kernel.owner(spec) for spec in kernel.specs] if len(kernel.specs) > 1 else []


def _thread_id(into: str) -> str:
    """Linear thread id: the only warp number that is fixed and dense (%warpid may change)."""
    return (
        f"mov.u32 {into}, %tid.z; mov.u32 ks_y, %ntid.y; mov.u32 ks_z, %tid.y; mad.lo.u32 {into}, {into}, ks_y, ks_z;"
        f" mov.u32 ks_y, %ntid.x; mov.u32 ks_z, %tid.x; mad.lo.u32 {into}, {into}, ks_y, ks_z;"
    )


def _who(kernel: Kernel) -> str:
    """Each strategy's predicate, and ks_on for their union; false everywhere in a module that is not armed."""
    owners = _owners(kernel)
    lines = ["\tsetp.ne.u64 ks_q, ks_ctl, 0;", f"\t{_thread_id('ks_t')}"]
    for strategy, into in zip(map(parse_strategy, kernel.specs), owners or ["ks_on"], strict=True):
        if isinstance(strategy, AllThreads):
            lines.append(f"\tsetp.ne.u64 {into}, ks_ctl, 0;")
        elif isinstance(strategy, Elected):
            lines.append(f"\tmov.u32 ks_x, %laneid; setp.eq.and.u32 {into}, ks_x, 0, ks_q;")
        elif isinstance(strategy, Lane0Warp0):
            lines.append(f"\tsetp.eq.and.u32 {into}, ks_t, 0, ks_q;")
        elif isinstance(strategy, TargetWarp):
            # bit (warp) of the mask, at lane 0: thread id = 32 * warp
            lines.append(
                f"\tshr.u32 ks_x, ks_t, 5; shr.u32 ks_x, {strategy.mask}, ks_x; and.b32 ks_x, ks_x, 1;"
                f" and.b32 ks_y, ks_t, 31; sub.u32 ks_x, ks_x, ks_y; setp.eq.and.u32 {into}, ks_x, 1, ks_q;"
            )
    if owners:
        lines.append(f"\tor.pred ks_on, {owners[0]}, {owners[1]};")
        lines += [f"\tor.pred ks_on, ks_on, {more};" for more in owners[2:]]
    return "\n".join(lines) + "\n"


# if ctl and strategy(warp, lane) and gate.epoch and sampled: p = atom.add(stripe.head, units); granted -> header; else reserve; else lost, off
def claim(kernel: Kernel) -> str:
    """Claims the slab and writes its header; lanes without one are off from here on. The only branches
    that kscope adds to a kernel."""
    units = layout.slab_units(kernel.log2_records)
    off = "".join(f" and.pred {owner}, {owner}, ks_on;" for owner in _owners(kernel))
    return (
        "\t{ .reg .pred ks_q, ks_r; .reg .b32 ks_sm, ks_home, ks_stripe, ks_warp, ks_lane, ks_t, ks_x, ks_y, ks_z;\n"
        "\t.reg .b32 ks_epoch, ks_stripes, ks_warps, ks_sampled, ks_p, ks_limit, ks_mask, ks_check, ks_u;"
        " .reg .b64 ks_line, ks_ring, ks_a, ks_b;\n"
        "\tmov.u64 ks_base, 0; mov.u32 ks_n, 0;\n"
        f"{_who(kernel)}"
        "\t@!ks_on bra KS_DONE;\n"
        # through the L1 cache: every warp of the device asks for this one line, and the L2 would serve them in turn
        f"\tld.global.v4.u32 {{ks_epoch, ks_stripes, ks_warps, ks_sampled}}, {_gate('epoch')};\n"
        "\tshr.u32 ks_warp, ks_t, 5; and.b32 ks_lane, ks_t, 31; mov.u32 ks_sm, %smid;\n"
        "\tsetp.ne.u32 ks_on, ks_epoch, 0; shr.u32 ks_x, ks_warps, ks_warp; and.b32 ks_x, ks_x, 1;"
        " setp.ne.and.u32 ks_on, ks_x, 0, ks_on;\n"
        "\t@!ks_on bra KS_DONE;\n"
        f"{_sampled()}"
        "\tmin.u32 ks_home, ks_sm, ks_stripes; mov.u32 ks_stripe, ks_home;\n"
        "KS_CLAIM:\n"
        f"\tmad.wide.u32 ks_line, ks_stripe, {layout.STRIPE_BYTES}, ks_ctl;\n"
        f"\tld.global.v4.u32 {{ks_x, ks_y, ks_mask, ks_z}}, {_stripe('base')};\n"
        f"\tld.volatile.global.u32 ks_limit, {_stripe('limit')};\n"
        f"\tatom.global.add.u32 ks_p, {_stripe('head')}, {units};\n"
        "\tmov.b64 ks_ring, {ks_x, ks_y};\n"
        # granted where units <= limit - p <= mask + 1 and the slab does not run over the ring's edge
        f"\tsub.u32 ks_x, ks_limit, ks_p; setp.ge.u32 ks_on, ks_x, {units}; sub.u32 ks_x, ks_x, 1;"
        " setp.le.and.u32 ks_r, ks_x, ks_mask, ks_on;\n"
        f"\tand.b32 ks_x, ks_p, ks_mask; add.u32 ks_y, ks_x, {units - 1}; setp.le.and.u32 ks_on, ks_y, ks_mask, ks_r;\n"
        "\t@ks_on bra KS_GRANTED;\n"
        f"\tred.global.add.u32 {_stripe('skipped')}, {units};\n"
        "\t@ks_r bra KS_CLAIM;\n"  # there is room, and only the edge is in the way: claim beyond it
        "\tsetp.eq.u32 ks_q, ks_stripe, ks_stripes; mov.u32 ks_stripe, ks_stripes;\n"
        "\t@ks_q bra KS_LOST;\n"
        # the reserve is everyone's: look before claiming, or the lanes of a full pool would queue up at one word
        f"\tmad.wide.u32 ks_line, ks_stripes, {layout.STRIPE_BYTES}, ks_ctl;\n"
        f"\tld.volatile.global.v2.u32 {{ks_p, ks_limit}}, {_stripe('head')};\n"
        f"\tsub.u32 ks_x, ks_limit, ks_p; setp.ge.s32 ks_q, ks_x, {units};\n"
        "\t@ks_q bra KS_CLAIM;\n"
        "KS_LOST:\n"
        f"\tmad.wide.u32 ks_line, ks_home, {layout.STRIPE_BYTES}, ks_ctl;\n"
        f"\tred.global.add.u32 {_stripe('lost')}, 1;\n"
        "\tbra KS_DONE;\n"
        "KS_GRANTED:\n"
        f"\tmad.wide.u32 ks_base, ks_x, {layout.UNIT}, ks_ring;\n"
        f"{_header(kernel)}"
        f"\tadd.u64 ks_base, ks_base, {layout.HEADER_BYTES};\n"
        "KS_DONE:\n\tbar.warp.sync 0xffffffff;\n"  # lanes that claimed and lanes that did not go on together
        f"\t{off} }}\n"
    )


def _sampled() -> str:
    """Blocks by range and stride, SMs by mask: skipped where the gate says that none are left out."""
    return (
        "\tsetp.eq.u32 ks_q, ks_sampled, 0;\n"
        "\t@ks_q bra KS_CHOSEN;\n"
        f"\tmin.u32 ks_x, ks_sm, {_LAST_SM}; shr.u32 ks_x, ks_x, 5; mad.wide.u32 ks_a, ks_x, 4, ks_ctl;\n"
        f"\tld.global.u32 ks_y, [ks_a+{layout.GATE.fields['sm_mask'][1]}];\n"  # type: ignore[index]  # as above
        "\tand.b32 ks_x, ks_sm, 31; shr.u32 ks_y, ks_y, ks_x; and.b32 ks_y, ks_y, 1; setp.ne.u32 ks_on, ks_y, 0;\n"
        # linear block index = x + nx * (y + ny * z), below 2^63
        "\tmov.u32 ks_x, %nctaid.y; mov.u32 ks_y, %ctaid.z; mul.wide.u32 ks_a, ks_x, ks_y;"
        " mov.u32 ks_x, %ctaid.y; cvt.u64.u32 ks_b, ks_x; add.u64 ks_a, ks_a, ks_b;\n"
        "\tmov.u32 ks_x, %nctaid.x; cvt.u64.u32 ks_b, ks_x; mul.lo.u64 ks_a, ks_a, ks_b;"
        " mov.u32 ks_x, %ctaid.x; cvt.u64.u32 ks_b, ks_x; add.u64 ks_a, ks_a, ks_b;\n"
        f"\tld.global.u64 ks_b, {_gate('block_first')}; sub.u64 ks_a, ks_a, ks_b;\n"
        f"\tld.global.u64 ks_b, {_gate('block_count')}; setp.lt.and.u64 ks_on, ks_a, ks_b, ks_on;\n"
        f"\tcvt.u32.u64 ks_x, ks_a; cvt.u64.u32 ks_a, ks_x; ld.global.u64 ks_b, {_gate('block_magic')};\n"
        "\tmul.lo.u64 ks_a, ks_a, ks_b; sub.u64 ks_b, ks_b, 1; setp.le.and.u64 ks_on, ks_a, ks_b, ks_on;\n"
        "\t@!ks_on bra KS_DONE;\n"
        "KS_CHOSEN:\n"
    )


def _header(kernel: Kernel) -> str:
    """Words 0..23 of the header, four at a time, the line with the check last."""
    flags = (
        (layout.FLAG_GLOBALTIMER if kernel.recording.clock == "globaltimer" else 0)
        | (layout.FLAG_STOP if kernel.recording.fill == "stop" else 0)
        | (layout.FLAG_LANES if any(spec == AllThreads().spec for spec in kernel.specs) else 0)
    )
    place = kernel.log2_records << layout.LOG2_SHIFT | flags << layout.FLAG_SHIFT
    low, high = kernel.id
    # clusters exist from sm_90 on; a launch without them has clusters of one block
    cluster = (
        " mov.u32 ks_x, %cluster_nctaid.z; mov.u32 ks_y, %cluster_nctaid.y; shl.b32 ks_x, ks_x, 8; or.b32 ks_x, ks_x, ks_y;"
        " mov.u32 ks_y, %cluster_nctaid.x; shl.b32 ks_x, ks_x, 8; or.b32 ks_x, ks_x, ks_y; shl.b32 ks_x, ks_x, 8;"
        " mov.u32 ks_y, %cluster_ctarank; or.b32 ks_x, ks_x, ks_y;"
        " mov.u32 ks_y, %cluster_nctarank; setp.gt.u32 ks_q, ks_y, 1; selp.b32 ks_x, ks_x, 0, ks_q;"
        if kernel.arch >= 90
        else " mov.u32 ks_x, 0;"
    )

    def line(word: int, operands: Sequence[str], fold: bool = True) -> str:
        check = "".join(f" xor.b32 ks_check, ks_check, {o};" for o in operands if fold)
        return f"\tst.global.v4.u32 [ks_base+{word * 4}], {{{', '.join(operands)}}};{check}\n"

    return (
        f"\tmov.u32 ks_check, {layout.HEADER_WORD}; mov.u32 ks_x, {low}; mov.u32 ks_y, {high};"
        " xor.b32 ks_check, ks_check, ks_epoch; xor.b32 ks_check, ks_check, ks_x; xor.b32 ks_check, ks_check, ks_y;\n"
        f"\tmov.u32 ks_z, {layout.HEADER_WORD};\n"
        + line(0, ["ks_z", "ks_epoch", "ks_x", "ks_y"], fold=False)
        + "\tmov.u64 ks_a, %gridid; mov.b64 {ks_x, ks_y}, ks_a; mov.u32 ks_z, %ctaid.x;\n"
        "\tmov.u32 ks_t, %ctaid.z; shl.b32 ks_t, ks_t, 16; mov.u32 ks_u, %ctaid.y; or.b32 ks_t, ks_t, ks_u;\n"
        + line(4, ["ks_x", "ks_y", "ks_z", "ks_t"])
        + "\tmov.u32 ks_x, %nctaid.x; mov.u32 ks_y, %nctaid.z; shl.b32 ks_y, ks_y, 16; mov.u32 ks_u, %nctaid.y;"
        " or.b32 ks_y, ks_y, ks_u;\n"
        "\tmov.u32 ks_z, %ntid.z; sub.u32 ks_z, ks_z, 1; shl.b32 ks_z, ks_z, 10; mov.u32 ks_u, %ntid.y;"
        " sub.u32 ks_u, ks_u, 1; or.b32 ks_z, ks_z, ks_u;\n"
        "\tshl.b32 ks_z, ks_z, 10; mov.u32 ks_u, %ntid.x; sub.u32 ks_u, ks_u, 1; or.b32 ks_z, ks_z, ks_u;\n"
        f"\tshl.b32 ks_t, ks_sm, {layout.SMID_SHIFT}; shl.b32 ks_u, ks_warp, {layout.WARP_SHIFT};"
        f" or.b32 ks_t, ks_t, ks_u; or.b32 ks_t, ks_t, ks_lane; or.b32 ks_t, ks_t, {place};\n"
        + line(8, ["ks_x", "ks_y", "ks_z", "ks_t"])
        + "\tmov.b64 {ks_x, ks_y}, ks_c; mov.b64 {ks_z, ks_t}, ks_g;\n"
        + line(16, ["ks_x", "ks_y", "ks_z", "ks_t"])
        + "\tmov.u32 ks_x, 0; xor.b32 ks_check, ks_check, ks_w;\n"
        + line(20, ["ks_w", "ks_x", "ks_x", "ks_x"], fold=False)
        + f"\t{cluster} xor.b32 ks_check, ks_check, ks_x; xor.b32 ks_check, ks_check, ks_p;"
        " xor.b32 ks_check, ks_check, ks_stripe;\n"
        + line(12, ["ks_x", "ks_p", "ks_stripe", "ks_check"], fold=False)
    )


def clock(kernel: Kernel, into: str) -> str:
    """Reads the records' clock. The 64-bit registers: their low word beat every 32-bit read on an H200."""
    return f"mov.u64 {into}, %{'clock64' if kernel.recording.clock == 'cycles' else 'globaltimer'};"


def enter(kernel: Kernel, slot: Slot, value: str | None) -> str:
    """One clock read into the slot's register; touches no memory. The value is copied: the user's register
    may hold something else by the time of the store."""
    copy = f" mov.b32 ks_v{slot.index}, {value};" if value is not None else ""
    return f"\t{clock(kernel, f'ks_s{slot.index}')}{copy}\n"


def leave(kernel: Kernel, slot: Slot) -> str:
    """One clock read at the region's end; store() may come later."""
    return f"\t{clock(kernel, f'ks_e{slot.index}')}\n"


def point(kernel: Kernel, slot: Slot, value: str | None) -> str:
    """An instant or counter: one clock read is both start and end."""
    copy = f" mov.b32 ks_v{slot.index}, {value};" if value is not None else ""
    return f"\t{clock(kernel, f'ks_s{slot.index}')} mov.b64 ks_e{slot.index}, ks_s{slot.index};{copy}\n"


# if on: ring[n & mask] = {start, id, end, value}; n += 1
def store(kernel: Kernel, slot: Slot, kind: layout.Kind, owner: str) -> str:
    """The record: no branch, no atomic, one 16-byte store that cannot leave the slab."""
    last = "0" if kind in (layout.Kind.SPAN, layout.Kind.INSTANT) else f"ks_v{slot.index}"
    guard, test = owner, ""
    if kernel.recording.fill == "stop":
        guard, test = "ks_q", f" .reg .pred ks_q; setp.lt.and.u32 ks_q, ks_n, {kernel.mask + 1}, {owner};"
    count = "add.u32 ks_n, ks_n, 1;" if owner == "ks_on" else f"@{owner} add.u32 ks_n, ks_n, 1;"
    return (
        f"\t{{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el;{test}\n"
        f"\tand.b32 ks_i, ks_n, {kernel.mask}; mad.wide.u32 ks_a, ks_i, {layout.RECORD_BYTES}, ks_base;\n"
        f"\tcvt.u32.u64 ks_sl, ks_s{slot.index}; cvt.u32.u64 ks_el, ks_e{slot.index};\n"
        f"\t@{guard} st.global.v4.b32 [ks_a], {{ks_sl, {layout.record_id(slot.name, kind)}, ks_el, {last}}};\n"
        f"\t{count} }}\n"
    )


# if on: header.end = clock, globaltimer, clock, n, done
def finish() -> str:
    """Last text before the kernel is left: the end anchor, the count, the done word."""
    end, tail = layout.HEADER_BYTES - 96, layout.HEADER_BYTES - 112
    return (
        "\t{ .reg .b64 ks_a, ks_b, ks_d; .reg .b32 ks_x, ks_y, ks_z, ks_t, ks_u;\n"
        "\tmov.u64 ks_a, %clock64; mov.u64 ks_b, %globaltimer; mov.u64 ks_d, %clock64;\n"
        "\tmov.b64 {ks_x, ks_y}, ks_a; mov.b64 {ks_z, ks_t}, ks_b;\n"
        f"\t@ks_on st.global.v4.u32 [ks_base+-{end}], {{ks_x, ks_y, ks_z, ks_t}};\n"
        "\tcvt.u32.u64 ks_u, ks_d; sub.u32 ks_u, ks_u, ks_x; mov.u32 ks_y, 0;\n"
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
