"""A record in a loop around one region (lowering/loop_registers.py), in registers that the next one need not wait for.

ks_b<l>, ks_x<l>  .b32   clock at the begin, at the end       ks_to<l>    .b64   the record's address
ks_q<l>_0 to 3    .b32   the words to store                   ks_fits<l>  .pred  there is room, fill="stop"
ks_nth<l>         .b32   the record's place in the ring       ks_nil<l>   .b32   0, unknown to the assembler
"""

from __future__ import annotations

from ..capture import layout, wire
from .kernel import Kernel, Slot
from .record import counted


def declared(loop: int) -> str:
    """Declare a loop's registers, at the entry's function scope.

    The assembler gives a record's words, its address and short-lived values the same few registers, and an instruction
    that writes one waits for the store that reads it. These registers are live across iterations, so it cannot reuse
    them; values that are ready early go there, and the operands of the store are copied last.
    """
    words = ", ".join(f"ks_q{loop}_{word}" for word in range(4))
    return (
        f"\t.reg .b64 ks_to{loop}; .reg .pred ks_fits{loop};"
        f" .reg .b32 ks_b{loop}, ks_x{loop}, ks_nth{loop}, ks_nil{loop}, {words};\n"
    )


# nil = base & 15; words = {0, id, 0, 0}; begin = end = 0; nth = n & mask
def hold(kernel: Kernel, slot: Slot, kind: layout.Kind, loop: int) -> str:
    """Before the loop: set the words that stay the same in every iteration."""
    return (
        "\t{ .reg .b32 ks_l, ks_h; mov.b64 {ks_l, ks_h}, ks_base; "
        f"and.b32 ks_nil{loop}, ks_l, 15; or.b32 ks_q{loop}_1, ks_nil{loop}, {layout.record_id(slot.name, kind)};\n"
        f"\tmov.b32 ks_q{loop}_0, 0; mov.b32 ks_q{loop}_2, 0; mov.b32 ks_q{loop}_3, ks_nil{loop};"
        f" mov.b32 ks_b{loop}, 0; mov.b32 ks_x{loop}, 0; }}\n{_turn(kernel, loop)}"
    )


def enter(kernel: Kernel, slot: Slot, value: str | None, owner: str, loop: int, long: bool) -> str:
    """Read the clock and copy the value; first count the record, unless a long region hides the count."""
    copy = f"\tmov.b32 ks_v{slot.index}, {value};\n" if value is not None else ""
    return ("" if long else _count(kernel, owner, loop)) + _clock(kernel, f"ks_b{loop}", owner) + copy


def leave(kernel: Kernel, owner: str, loop: int, long: bool) -> str:
    """Read the clock; first count the record, if a long region hides the count."""
    count = _count(kernel, owner, loop) if long else ""
    return count + _clock(kernel, f"ks_x{loop}", "" if long else owner)


# to = base + 16 * nth; if on: words = {start, id, end, value}; and it fits: store
def put(kernel: Kernel, slot: Slot, owner: str, loop: int, long: bool) -> str:
    """Store the record. long: the previous store has read its registers by the end of the region; otherwise the end is
    copied, too, because it would be read late if it had to wait for that.
    """
    words = [(f"ks_q{loop}_0", f"ks_b{loop}")]
    words += [] if long else [(f"ks_q{loop}_2", f"ks_x{loop}")]
    words += [(f"ks_q{loop}_3", f"ks_v{slot.index}")] if slot.type is not None else []
    # a real copy: without the shift the assembler may use the same register
    copies = "".join(f"\t@{owner} shl.b32 {into}, {of}, ks_nil{loop};\n" for into, of in words)
    guard = f"ks_fits{loop}" if kernel.recording.fill == "stop" else owner
    end = f"ks_x{loop}" if long else f"ks_q{loop}_2"
    return (
        # a 32-bit sum (wire.SEGMENT_BYTES): a wide multiplication is one instruction less, but took 34
        # instead of 31 cycles. The high word is computed in each iteration: ptxas 13.0 would free it
        f"\t{{ .reg .b32 ks_low, ks_high; mov.b64 {{ks_low, ks_high}}, ks_base; mad.lo.u32 ks_low, ks_nth{loop},"
        f" {layout.RECORD_BYTES}, ks_low; mov.b64 ks_to{loop}, {{ks_low, ks_high}}; }}\n{copies}"
        f"\t@{guard} st.global.v4.b32 [ks_to{loop}+{wire.HEAD_BYTES}],"
        f" {{ks_q{loop}_0, ks_q{loop}_1, {end}, ks_q{loop}_3}};\n"
        f"{_turn(kernel, loop)}"
    )


def _clock(kernel: Kernel, into: str, owner: str) -> str:
    """Read the clock. With an owner, other lanes keep the register's value, so it is live across iterations.

    32 bits: of a wide read, the assembler of CUDA 12 would give the other half a register that the store reads.
    """
    guard = f"@{owner} " if owner else ""
    if kernel.recording.clock == "cycles":
        return f"\t{guard}mov.u32 {into}, %clock;\n"
    return f"\t{{ .reg .b64 ks_k; mov.u64 ks_k, %globaltimer; {guard}cvt.u32.u64 {into}, ks_k; }}\n"


# if on: fits = n <= mask, n += 1
def _count(kernel: Kernel, owner: str, loop: int) -> str:
    fits = f"setp.le.and.u32 ks_fits{loop}, ks_n, {kernel.last}, {owner}; " if kernel.recording.fill == "stop" else ""
    return f"\t{fits}{counted(owner)}\n"


def _turn(kernel: Kernel, loop: int) -> str:
    """Compute the next record's place; later, it would share a register with the address."""
    return f"\tand.b32 ks_nth{loop}, ks_n, {kernel.last};\n"
