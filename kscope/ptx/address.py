"""Addresses of the control block's fields, by the names that layout.py gives them.

What lives here: three functions. What does not: what the fields mean (layout.py).
"""

from __future__ import annotations

from .. import layout


def gate(field: str) -> str:
    """Address of a gate's field."""
    return f"[ks_ctl+{layout.GATE.fields[field][1]}]"  # type: ignore[index]  # a structured dtype has fields


def stripe(field: str) -> str:
    """Address of a field of the stripe that ks_line points at."""
    return f"[ks_line+{layout.GATE_BYTES + layout.STRIPE.fields[field][1]}]"  # type: ignore[index]  # as above


def record(index: str, into: str) -> str:
    """Computes the address of the slab's record of that index. 32 bits: no slab lies across a multiple of 4 GiB. One
    64-bit multiplication and sum is an instruction less, and 2 cycles more in a loop that hides nothing."""
    return (
        "{ .reg .b32 ks_low, ks_high; mov.b64 {ks_low, ks_high}, ks_base;"
        f" mad.lo.u32 ks_low, {index}, {layout.RECORD_BYTES}, ks_low; mov.b64 {into}, {{ks_low, ks_high}}; }}"
    )
