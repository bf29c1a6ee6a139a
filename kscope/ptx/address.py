"""Addresses of the control block's fields, by their names in layout.py."""

from __future__ import annotations

from ..capture import layout


def gate(field: str) -> str:
    """The address of a field of the gate."""
    return f"[ks_ctl+{layout.GATE.fields[field][1]}]"  # type: ignore[index]  # a structured dtype has fields


def stripe(field: str) -> str:
    """The address of a field of the stripe that ks_line points to."""
    return f"[ks_line+{layout.GATE_BYTES + layout.STRIPE.fields[field][1]}]"  # type: ignore[index]  # as above
