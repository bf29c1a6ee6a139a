"""What only the inline assembly of a header needs: there the C++ compiler decides who records, and which
function a text ends up in.

What lives here: those texts. What does not: the texts that the pass over a module's PTX shares with a header
(entry.py, claim.py, record.py), the header (frontends/kscope_cuda/header.py).
"""

from __future__ import annotations

import re

from ..capture import layout
from .claim import again, attempt, claim, one_of
from .entry import entry
from .kernel import Kernel
from .record import clock


def begin(kernel: Kernel, control: str, records: str, declared: str) -> str:
    """The whole prologue in one piece, for lanes where the 32-bit `records` is not 0: the kernel's one strategy says
    no more than whether that may be any lane (AllThreads), or lane 0 alone (Elected). control: a register or
    operand that holds the constant's value."""
    own = one_of(kernel.specs[0], "ks_on")
    return (
        f"{declared}\n"
        + _once(entry(kernel, ()), f"ld.const.u64 ks_ctl, [{layout.CTL_SYMBOL}];", f"mov.u64 ks_ctl, {control};")
        + _once(attempt(kernel), own, f"setp.ne.u32 ks_on, {records}, 0;")
        + claim(kernel)
        + _once(again(kernel), "\tret;\n", "\tbra.uni KS_BODY;\n")
        + "KS_BODY:\n"
    )


def owner(predicate: str, records: str) -> str:
    """Declares the predicate of one strategy's lanes, those where the 32-bit `records` is not 0."""
    return f"\t.reg .pred {predicate}; setp.ne.and.u32 {predicate}, {records}, 0, ks_on;\n"


def guard(register: str) -> str:
    """Reads a register that the prologue declares and nothing sets: no instruction, but a name in the assembler's
    error where this text is in a function without prologue."""
    return f"\t{{ .reg .b32 ks_x; mov.b32 ks_x, {register}; }}\n"


def guard_by_name(register: str, name: str) -> str:
    """A call that nothing reaches, of no function, with the register of guard(): where that is missing, the assembler's
    error says which formal parameter has no argument, and its name is `name`."""
    return (
        f"\t{{ KS_APART: .callprototype _ (.param .b32 {name});\n"
        f"\t.reg .b64 ks_x; mov.b64 ks_x, 0; call ks_x, ({register}), KS_APART; }}\n"
    )


def remember(kernel: Kernel, slot: str, record: str, value: str) -> str:
    """An explicit enter, in registers with the suffix `slot`: clock, record id and value."""
    return f"\t{clock(kernel, f'ks_t{slot}')} mov.b32 ks_i{slot}, {record}; mov.b32 ks_v{slot}, {value};\n"


ENTERED = re.compile(r"mov\.u64 ks_t(\d+),[^;]*;")
LEFT = re.compile(r"cvt\.u32\.u64 \w+, ks_t(\d+);")
"""How a text says that remember() of a slot was here, and that the slot's record is stored."""


def remembered(slots: int) -> str:
    """Declares the registers of remember() for so many slots; those that nothing uses are free."""
    return f".reg .b64 ks_t<{slots}>; .reg .b32 ks_i<{slots}>, ks_v<{slots}>;"


def _once(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} should stand once in {text!r}"
    return text.replace(old, new)
