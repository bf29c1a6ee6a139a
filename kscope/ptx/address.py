"""Addresses of the control block's fields, by their names in wire.py."""

from __future__ import annotations

from ..capture import wire


def gate(field: str) -> str:
    """The address of a field of the gate."""
    return f"[ks_ctl+{wire.GATE.offset(field)}]"


def stripe(field: str) -> str:
    """The address of a field of the stripe that ks_line points to."""
    return f"[ks_line+{wire.STRIPES_AT + wire.STRIPE.offset(field)}]"
