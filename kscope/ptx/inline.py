"""Texts for inline assembly in a C++ header, where the C++ compiler decides where they end up."""

from __future__ import annotations

import re

from ..capture import wire
from .claim import again, attempt, claim, one_of
from .entry import entry
from .kernel import Kernel
from .record import clock


def begin(kernel: Kernel, control: str, records: str, declared: str) -> str:
    """The whole prologue.

    Args:
        kernel: the kernel; its only strategy lets any lane record (AllThreads) or lane 0 alone (Elected).
        control: a register or operand with the address of the control block.
        records: a 32-bit register or operand that is nonzero in lanes that record.
        declared: declarations that come first.
    """
    own = one_of(kernel.specs[0], "ks_on")
    return (
        f"{declared}\n"
        + _once(entry(kernel, ()), f"ld.const.u64 ks_ctl, [{wire.CTL_SYMBOL}];", f"mov.u64 ks_ctl, {control};")
        + _once(attempt(kernel), own, f"setp.ne.u32 ks_on, {records}, 0;")
        + claim(kernel)
        + _once(again(kernel), "\tret;\n", "\tbra.uni KS_BODY;\n")
        + "KS_BODY:\n"
    )


def owner(predicate: str, records: str) -> str:
    """Declare the predicate of one strategy's lanes, those where the 32-bit `records` is nonzero."""
    return f"\t.reg .pred {predicate}; setp.ne.and.u32 {predicate}, {records}, 0, ks_on;\n"


def guard(register: str) -> str:
    """Read a register that the prologue declares and nothing sets: no instruction, but a name in the assembler's error
    if the text is in a function without the prologue.
    """
    return f"\t{{ .reg .b32 ks_x; mov.b32 ks_x, {register}; }}\n"


def guard_by_name(register: str, name: str) -> str:
    """An unreachable call of no function, with the register of guard(). If that is missing, the assembler's error names
    the parameter without an argument: `name`.
    """
    return (
        f"\t{{ KS_APART: .callprototype _ (.param .b32 {name});\n"
        f"\t.reg .b64 ks_x; mov.b64 ks_x, 0; call ks_x, ({register}), KS_APART; }}\n"
    )


def remember(kernel: Kernel, slot: str, record: str, value: str) -> str:
    """An explicit enter: clock, record id and value in registers with the suffix `slot`."""
    return f"\t{clock(kernel, f'ks_t{slot}')} mov.b32 ks_i{slot}, {record}; mov.b32 ks_v{slot}, {value};\n"


ENTERED = re.compile(r"mov\.u64 ks_t(\d+),[^;]*;")
LEFT = re.compile(r"cvt\.u32\.u64 ks_sl, ks_t(\d+);")
"""Traces of remember() of a slot in a text, and of the store of the slot's record."""


def remembered(slots: int) -> str:
    """Declare the registers of remember() for `slots` slots; unused ones cost nothing."""
    return f".reg .b64 ks_t<{slots}>; .reg .b32 ks_i<{slots}>, ks_v<{slots}>;"


def _once(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} should occur once in {text!r}"
    return text.replace(old, new)
