"""Addresses of the control block's fields, by the names that layout.py gives them.

What lives here: two functions. What does not: what the fields mean (layout.py).
"""

from __future__ import annotations

from ..capture import layout


def gate(field: str) -> str:
    """Address of a gate's field."""
    return f"[ks_ctl+{layout.GATE.fields[field][1]}]"  # type: ignore[index]  # a structured dtype has fields


def stripe(field: str) -> str:
    """Address of a field of the stripe that ks_line points at."""
    return f"[ks_line+{layout.GATE_BYTES + layout.STRIPE.fields[field][1]}]"  # type: ignore[index]  # as above
