"""Compile-time evaluation of `when=`."""

from __future__ import annotations

from typing import Any

import numpy as np


def constant_predicate(when: Any) -> bool | None:
    """The value of a constant predicate (True for None), or None if it is evaluated at run time."""
    when = getattr(when, "value", when)
    if when is None:
        return True
    return bool(when) if isinstance(when, (bool, int, np.bool_, np.integer)) else None
