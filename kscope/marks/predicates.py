"""Predicates: what is known about a `when=` at compile time."""

from __future__ import annotations

from typing import Any

import numpy as np


def constant_predicate(when: Any) -> bool | None:
    """A predicate's value if it is a constant, None if only the running kernel knows it. No predicate is True."""
    when = getattr(when, "value", when)
    if when is None:
        return True
    return bool(when) if isinstance(when, (bool, int, np.bool_, np.integer)) else None
