"""The claim: selects the lanes that record, and gives each a slab and its head."""

from __future__ import annotations

from collections.abc import Sequence

from ..capture import wire
from ..marks.strategies import AllThreads, Elected, Lane0Warp0, TargetWarp, parse_strategy
from .address import gate, stripe
from .kernel import Kernel
from .launch_entry import launch_entry

_LAST_SM = wire.MAX_SMS - 1
_HEAD = "ks_t, ks_x, ks_y, ks_u"
"""The words of the first row of a slab's head."""


# if gate.epoch and strategy(warp, lane) and sampled: p = atom.add(stripe.head, units)    -- asynchronous
def attempt(kernel: Kernel, opened: bool = False) -> str:
    """Select the recording lanes and make their first claim. opened: only where the gate is open.

    Placed before the kernel's first memory access: after a burst of loads, its round trip would take microseconds. It
    waits only for entry()'s loads. Here and in claim() whole warps take the branches: if one lane diverged, it would
    stay apart from its warp in the rest of the kernel, or the assembler would have to assume so.
    """
    off = [*kernel.owners, *(("ks_may", "ks_own") if kernel.late else ())]
    none = "".join(f" setp.ne.u64 {owner}, ks_ctl, ks_ctl;" for owner in off)
    text = _sampled()
    if kernel.late:  # the same for every lane, and kept for later
        text = "\tmov.pred ks_may, ks_q;\n" + text.replace("ks_on", "ks_may")
        text += "\tand.pred ks_on, ks_on, ks_may; mov.pred ks_own, ks_on;\n"
    gate = "\tmov.u32 ks_p, 0;\n"  # which other lanes read, with no effect
    if not opened:
        gate = (
            f"\tmov.u64 ks_base, 0; mov.u32 ks_n, 0; setp.ne.u64 ks_on, ks_ctl, ks_ctl;{none}"
            " setp.eq.u32 ks_q, ks_epoch, 0;\n"
            "\t@ks_q bra.uni KS_OFF;\n"
        )
    return (
        "\t{ .reg .pred ks_q; .reg .b32 ks_t, ks_x, ks_y, ks_z; .reg .b64 ks_line, ks_a, ks_b;\n"
        f"{gate}"
        f"{_select_lanes(kernel, opened)}"
        "\tmov.u32 ks_thread, ks_t; mov.u32 ks_sm, %smid;\n"
        f"{text}"
        f"{_stripe(kernel)} mov.pred ks_try, ks_on;\n{_units(kernel)}"
        f"{_take(kernel.units)}"
        "KS_OFF:\n\t}\n"
    )


# stripe = min(smid, reserve)
def _stripe(kernel: Kernel) -> str:
    """The stripe from which a lane claims.

    If one lane per warp records, it is lane 0, and adding its number changes nothing, but hides from the assembler that
    the address is uniform. For a uniform address it would gather the warp's lanes with votes and a shuffle, and the
    shuffle waits for the atomic.
    """
    if AllThreads().spec in kernel.specs:
        return "\tmin.u32 ks_stripe, ks_sm, ks_stripes;"
    return "\tand.b32 ks_x, ks_thread, 31; add.u32 ks_x, ks_x, ks_sm; min.u32 ks_stripe, ks_x, ks_stripes;"


def _take(units: str) -> str:
    """The ks_try lanes claim from ks_stripe; claim() checks the result."""
    return (
        f"\tmad.wide.u32 ks_line, ks_stripe, {wire.STRIPE_BYTES}, ks_ctl;\n"
        f"\t@ks_try atom.global.add.u32 ks_p, {stripe('head')}, {units};\n"
        f"\t@ks_try ld.volatile.global.u32 ks_limit, {stripe('limit')};\n"
        # two loads: one wide load would be copied at once, and so waited for
        f"\t@ks_try ld.global.u64 ks_ring, {stripe('base')};\n"
        f"\t@ks_try ld.global.u32 ks_mask, {stripe('mask')};\n"
    )


# if granted(p): head; else again(), and then a head or none
# if this is block 0's first warp: launch_entry()
def claim(kernel: Kernel, opened: bool = False) -> str:
    """Check the result of attempt() and write the head; lanes without a slab stop recording.

    Placed at the function's scope, where again() finds its labels. opened: only where the gate is open; ks_base of
    other lanes is undefined.
    """
    units = kernel.units
    off = "".join(f" and.pred {owner}, {owner}, ks_on;" for owner in kernel.owners)
    gate = "\tsetp.eq.u32 ks_full, ks_epoch, 0;\n\t@ks_full bra.uni KS_DONE;\n"
    # a uniform address for other lanes, because stores use it before their predicate
    others = "" if opened else "\tselp.b64 ks_base, ks_base, 0, ks_on;"
    made = f"\t{{ .reg .b32 ks_t, ks_x, ks_y, ks_z, ks_u; .reg .b64 ks_a;\n{_words(kernel, opened)}"
    # of the linear block and the warp; a grid of more blocks than a head can number may write its entry again
    first = (
        "\tshr.u32 ks_y, ks_thread, 5; or.b32 ks_y, ks_y, ks_z; setp.eq.u32 ks_first, ks_y, 0;"
        " vote.sync.any.pred ks_first, ks_first, 0xffffffff;\n"
    )
    words, ahead = _HEAD, ""
    if opened:  # while the claim is under way
        words = ", ".join(f"ks_h{number}" for number in range(4))
        ahead = f"\t.reg .b32 ks_h<4>;\n{made}{_moved(words)}{first}\t}}\n"
        made, first = "\t{\n", ""
    return (
        f"{'' if opened else gate}{ahead}"
        "\t{ .reg .pred ks_q; .reg .b32 ks_x;\n"
        f"{_look(units)}"
        "\tvote.sync.any.pred ks_full, ks_try, 0xffffffff; }\n"
        "\t@ks_full bra.uni KS_AGAIN;\n"
        f"KS_HAVE:\n{made}"
        f"\tmad.wide.u32 ks_base, ks_at, {wire.UNIT}, ks_ring;\n"
        f"\t@ks_on st.global.v4.u32 [ks_base], {{{words}}};\n{first}"
        f"\t{off}\n{others} }}\n"
        "\t@ks_first bra.uni KS_LAUNCH;\n"
        "KS_DONE:\n"
        f"{_given_up(kernel)}"
    )


def _moved(words: str) -> str:
    pairs = zip(words.split(", "), _HEAD.split(", "), strict=True)
    return "\t" + " ".join(f"mov.b32 {to}, {word};" for to, word in pairs) + "\n"


# granted where units <= limit - p <= mask + 1 (ks_room) and the slab does not run over the ring's edge
def _look(units: str) -> str:
    """Leaves in ks_try the lanes whose claim was not granted."""
    return (
        f"\tsub.u32 ks_x, ks_limit, ks_p; setp.ge.u32 ks_room, ks_x, {units}; sub.u32 ks_x, ks_x, 1;"
        " setp.le.and.u32 ks_room, ks_x, ks_mask, ks_room;\n"
        f"\tand.b32 ks_at, ks_p, ks_mask; add.u32 ks_x, ks_at, {units}; sub.u32 ks_x, ks_x, 1;"
        " setp.le.and.u32 ks_q, ks_x, ks_mask, ks_room;\n"
        "\tnot.pred ks_q, ks_q; and.pred ks_try, ks_try, ks_q;\n"
    )


def _given_up(kernel: Kernel) -> str:
    """A lane that found no room at the entry does not try again, and has no slab from the entry."""
    if not kernel.late:
        return ""
    return (
        "\t{ .reg .pred ks_q; not.pred ks_q, ks_on; and.pred ks_q, ks_q, ks_own; not.pred ks_q, ks_q;"
        " and.pred ks_may, ks_may, ks_q; and.pred ks_own, ks_own, ks_on; }\n"
    )


# skipped += units; where only the ring's edge was in the way: attempt once more; else from the reserve; else lost
def again(kernel: Kernel) -> str:
    """Retries of refused lanes, and the launch's entry. Placed after the function's last return, although the assembler
    may move it into line.

    The attempts follow each other: in a loop the assembler would keep the kernel's registers as if it ran often.
    """
    units = kernel.units
    return (
        "\tret;\n"
        f"{launch_entry(kernel)}"
        "KS_AGAIN:\n"
        "\t{ .reg .pred ks_q, ks_r; .reg .b32 ks_x, ks_y, ks_z; .reg .b64 ks_line;\n"
        f"{retry(units) * (wire.MOST_CLAIMS - 1)}"
        f"{_skip(units)}"
        f"{_lose('ks_try')}\tnot.pred ks_r, ks_try; and.pred ks_on, ks_on, ks_r;\n"
        "KS_SETTLED:\n"
        "\t}\n"
        "\tbra.uni KS_HAVE;\n"
    )


def retry(units: str) -> str:
    """One more attempt of the refused lanes. units: a constant or operand, the size of a slab."""
    left = "\tvote.sync.any.pred ks_full, ks_try, 0xffffffff;\n\t@!ks_full bra.uni KS_SETTLED;\n"
    return f"{_refused(units)}{_look(units)}{left}"


def _skip(units: str) -> str:
    """The ks_try lanes count their claimed units as skipped."""
    return (
        f"\tmad.wide.u32 ks_line, ks_stripe, {wire.STRIPE_BYTES}, ks_ctl;\n"
        f"\t@ks_try red.global.add.u32 {stripe('skipped')}, {units};\n"
    )


def _lose(lanes: str) -> str:
    """The lanes of a predicate count themselves as lost."""
    return (
        f"\tmin.u32 ks_x, ks_sm, ks_stripes; mad.wide.u32 ks_line, ks_x, {wire.STRIPE_BYTES}, ks_ctl;\n"
        f"\t@{lanes} red.global.add.u32 {stripe('lost')}, 1;\n"
    )


def _refused(units: str) -> str:
    """The ks_try lanes count their units as skipped; those with a chance claim once more, the others count as lost."""
    return (
        f"{_skip(units)}"
        # no room, not yet at the reserve: look first, or the lanes of a full pool would queue there
        "\tnot.pred ks_r, ks_room; and.pred ks_r, ks_r, ks_try;\n"
        "\tsetp.ne.and.u32 ks_q, ks_stripe, ks_stripes, ks_r; mov.u32 ks_x, 0; mov.u32 ks_y, 0;\n"
        f"\tmad.wide.u32 ks_line, ks_stripes, {wire.STRIPE_BYTES}, ks_ctl;\n"
        f"\t@ks_q ld.volatile.global.v2.u32 {{ks_x, ks_y}}, {stripe('head')};\n"
        f"\t@ks_r mov.u32 ks_stripe, ks_stripes; sub.u32 ks_x, ks_y, ks_x; setp.lt.and.s32 ks_r, ks_x, {units}, ks_r;\n"
        f"{_lose('ks_r')}"
        "\tnot.pred ks_r, ks_r; and.pred ks_on, ks_on, ks_r; and.pred ks_try, ks_try, ks_r;\n"
        f"{_take(units)}"
    )


# if none of mine yet, and recording: p = atom.add(stripe.head, units); granted: header; else again, or lost for good
def late(kernel: Kernel, made: Sequence[str]) -> str:
    """Lanes without a slab for which one of the predicates `made` holds claim one. Placed before a store.

    The active lanes take its branches together, and mostly take none.
    """
    units = kernel.units
    any_of = f"mov.pred ks_l, {made[0]};" + "".join(f" or.pred ks_l, ks_l, {one};" for one in made[1:])
    refused = _refused(units).replace("and.pred ks_on, ks_on, ks_r;", "and.pred ks_l, ks_l, ks_r;")
    return (
        "\t{ .reg .pred ks_q, ks_r, ks_l; .reg .b32 ks_x, ks_y, ks_z, ks_k; .reg .b64 ks_line, ks_h;\n"
        f"\t{any_of} not.pred ks_q, ks_on; and.pred ks_l, ks_l, ks_q; and.pred ks_l, ks_l, ks_may;\n"
        "\tactivemask.b32 ks_k; vote.sync.any.pred ks_q, ks_l, ks_k;\n"
        "\t@!ks_q bra KS_LATE;\n"
        # these lanes try only once
        "\tnot.pred ks_q, ks_l; and.pred ks_may, ks_may, ks_q;\n"
        # computed and loaded again: kept since the entry, they would hold five registers in the whole kernel
        f"\t{thread_id('ks_thread', kernel.flat)} mov.u32 ks_sm, %smid;\n"
        f"\tld.const.u64 ks_ctl, [{wire.CTL_SYMBOL}]; mov.u32 ks_stripes, 0;"
        f" @ks_l ld.global.u32 ks_stripes, {gate('stripes')};\n"
        f"\tmin.u32 ks_stripe, ks_sm, ks_stripes; mov.pred ks_try, ks_l;\n{_units(kernel)}"
        f"{_take(units)}"
        "KS_SEEN:\n"
        f"{_look(units)}"
        "\tvote.sync.any.pred ks_q, ks_try, ks_k;\n"
        "\t@!ks_q bra KS_HAVE;\n"
        f"{refused}"
        "\tbra KS_SEEN;\n"
        "KS_HAVE:\n"
        "\t{ .reg .b32 ks_t, ks_x, ks_y, ks_z, ks_u; .reg .b64 ks_a;\n"
        f"\tmad.wide.u32 ks_h, ks_at, {wire.UNIT}, ks_ring;\n"
        f"{_words(kernel)}\t@ks_l st.global.v4.u32 [ks_h], {{{_HEAD}}};\n"
        # its earlier waits were counted, but not stored
        "\t@ks_l mov.u64 ks_base, ks_h; @ks_l mov.u32 ks_n, 0; or.pred ks_on, ks_on, ks_l; }\n"
        "KS_LATE:\n\t}\n"
    )


def thread_id(into: str, flat: bool = False) -> str:
    """The linear thread id, which numbers warps densely and for good (%warpid may change). flat: a block has one
    dimension.
    """
    if flat:
        return f"mov.u32 {into}, %tid.x;"
    return (
        f"mov.u32 {into}, %tid.z; mov.u32 ks_y, %ntid.y; mov.u32 ks_z, %tid.y; mad.lo.u32 {into}, {into}, ks_y, ks_z;"
        f" mov.u32 ks_y, %ntid.x; mov.u32 ks_z, %tid.x; mad.lo.u32 {into}, {into}, ks_y, ks_z;"
    )


def _select_lanes(kernel: Kernel, opened: bool) -> str:
    """Each strategy's predicate, and ks_on for their union; all false in a module that is not armed."""
    owners = kernel.owners
    if opened and kernel.specs == (Elected().spec,):  # the linear thread is needed anyway
        return f"\t{thread_id('ks_t', kernel.flat)} and.b32 ks_x, ks_t, 31; setp.eq.u32 ks_on, ks_x, 0;\n"
    lines = ["\tsetp.ne.u64 ks_q, ks_ctl, 0;", f"\t{thread_id('ks_t', kernel.flat)}"]
    lines += [f"\t{one_of(*each)}" for each in zip(kernel.specs, owners or ["ks_on"], strict=True)]
    if owners:
        lines.append(f"\tor.pred ks_on, {owners[0]}, {owners[1]};")
        lines += [f"\tor.pred ks_on, ks_on, {more};" for more in owners[2:]]
    return "\n".join(lines) + "\n"


def one_of(spec: str, into: str) -> str:
    """Set `into` if the strategy records this lane. ks_q: the module is armed. ks_t: the linear thread id."""
    strategy = parse_strategy(spec)
    if isinstance(strategy, Elected):
        return f"mov.u32 ks_x, %laneid; setp.eq.and.u32 {into}, ks_x, 0, ks_q;"
    if isinstance(strategy, Lane0Warp0):
        return f"setp.eq.and.u32 {into}, ks_t, 0, ks_q;"
    if isinstance(strategy, TargetWarp):
        # bit (warp) of the mask, at lane 0: thread id = 32 * warp
        return (
            f"shr.u32 ks_x, ks_t, 5; shr.u32 ks_x, {strategy.mask}, ks_x; and.b32 ks_x, ks_x, 1;"
            f" and.b32 ks_y, ks_t, 31; sub.u32 ks_x, ks_x, ks_y; setp.eq.and.u32 {into}, ks_x, 1, ks_q;"
        )
    return f"setp.ne.u64 {into}, ks_ctl, 0;"


def _sampled() -> str:
    """Warps and SMs by mask, blocks by range and stride; skipped if the gate leaves none out."""
    sms = wire.GATE.offset("sm_mask")
    return (
        "\tsetp.eq.u32 ks_q, ks_sampled, 0;\n"
        "\t@ks_q bra.uni KS_CHOSEN;\n"
        "\tshr.u32 ks_x, ks_t, 5; shr.u32 ks_x, ks_warps, ks_x; and.b32 ks_x, ks_x, 1;"
        " setp.ne.and.u32 ks_on, ks_x, 0, ks_on;\n"
        f"\tmin.u32 ks_x, ks_sm, {_LAST_SM}; shr.u32 ks_x, ks_x, 5; mad.wide.u32 ks_a, ks_x, 4, ks_ctl;\n"
        f"\tld.global.u32 ks_y, [ks_a+{sms}];\n"
        "\tand.b32 ks_x, ks_sm, 31; shr.u32 ks_y, ks_y, ks_x; and.b32 ks_y, ks_y, 1;"
        " setp.ne.and.u32 ks_on, ks_y, 0, ks_on;\n"
        # linear block index = x + nx * (y + ny * z), below 2^63
        "\tmov.u32 ks_x, %nctaid.y; mov.u32 ks_y, %ctaid.z; mul.wide.u32 ks_a, ks_x, ks_y;"
        " mov.u32 ks_x, %ctaid.y; cvt.u64.u32 ks_b, ks_x; add.u64 ks_a, ks_a, ks_b;\n"
        "\tmov.u32 ks_x, %nctaid.x; cvt.u64.u32 ks_b, ks_x; mul.lo.u64 ks_a, ks_a, ks_b;"
        " mov.u32 ks_x, %ctaid.x; cvt.u64.u32 ks_b, ks_x; add.u64 ks_a, ks_a, ks_b;\n"
        f"\tld.global.u64 ks_b, {gate('block_first')}; sub.u64 ks_a, ks_a, ks_b;\n"
        f"\tld.global.u64 ks_b, {gate('block_count')}; setp.lt.and.u64 ks_on, ks_a, ks_b, ks_on;\n"
        f"\tcvt.u32.u64 ks_x, ks_a; cvt.u64.u32 ks_a, ks_x; ld.global.u64 ks_b, {gate('block_magic')};\n"
        "\tmul.lo.u64 ks_a, ks_a, ks_b; sub.u64 ks_b, ks_b, 1; setp.le.and.u64 ks_on, ks_a, ks_b, ks_on;\n"
        "KS_CHOSEN:\n"
    )


def _words(kernel: Kernel, opened: bool = False) -> str:
    """The first row of the head, in _HEAD; ks_w gets what the seal needs. Leaves the linear block in ks_z."""
    number = (
        f"\tand.b32 ks_x, ks_thread, 31; shl.b32 ks_x, ks_x, {wire.LANE_SHIFT};"
        f" mad.lo.u32 ks_x, ks_z, {1 << wire.BLOCK_SHIFT}, ks_x;\n"
    )
    if opened and AllThreads().spec not in kernel.specs:  # lane 0
        number = f"\tshl.b32 ks_x, ks_z, {wire.BLOCK_SHIFT};\n"
    return (
        "\tmov.u32 ks_z, %ctaid.z; mov.u32 ks_y, %nctaid.y; mov.u32 ks_x, %ctaid.y; mad.lo.u32 ks_z, ks_z, ks_y, ks_x;"
        " mov.u32 ks_y, %nctaid.x; mov.u32 ks_x, %ctaid.x; mad.lo.u32 ks_z, ks_z, ks_y, ks_x;\n"
        f"{number}"
        "\tmov.u64 ks_a, %gridid; cvt.u32.u64 ks_y, ks_a; prmt.b32 ks_w, ks_w, ks_y, 0x3260;\n"
        f"\tshr.u32 ks_t, ks_thread, 5; mad.lo.u32 ks_t, ks_sm, {1 << wire.SM_SHIFT}, ks_t;"
        f" mad.lo.u32 ks_t, ks_y, {1 << wire.SLOT_SHIFT}, ks_t;"
        f" and.b32 ks_y, ks_epoch, 1; mad.lo.u32 ks_t, ks_y, {1 << wire.EPOCH_SHIFT}, ks_t;\n"
        f"\tcvt.u32.u64 ks_y, ks_c; cvt.u32.u64 ks_u, ks_g; shr.u32 ks_u, ks_u, {wire.TIME_SHIFT};"
        f" {_size(kernel)}\n"
    )


# u |= log2(records) << LOG2_SHIFT
def _size(kernel: Kernel) -> str:
    """Add the slab's size to the start time in ks_u."""
    if not kernel.sized:
        return f"add.u32 ks_u, ks_u, {kernel.log2_records << wire.LOG2_SHIFT};"
    return f"{{ .reg .b32 ks_k; popc.b32 ks_k, ks_last; mad.lo.u32 ks_u, ks_k, {1 << wire.LOG2_SHIFT}, ks_u; }}"


# units = head + (last + 1) / records per unit
def _units(kernel: Kernel) -> str:
    """Set ks_units where each warp reads the size of its slab."""
    if not kernel.sized:
        return ""
    step = wire.RECORDS_PER_UNIT.bit_length() - 1
    return f"\tshr.u32 ks_units, ks_last, {step}; add.u32 ks_units, ks_units, {wire.HEAD_UNITS + 1};\n"
