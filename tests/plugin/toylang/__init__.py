"""A kernel language in a hundred lines: a Python function is run once, and what it does becomes PTX.

    @toylang.kernel
    def fill(k, out, n):
        with k.loop(n) as i:
            k.store(out, i, i * 2)

    fill[grid, block](out, 7)

It does not depend on kscope.
"""

from __future__ import annotations

from . import hooks as hooks
from .launching import Kernel, kernel
from .tracing import Tracer, Value, tracing

__all__ = ["Kernel", "Tracer", "Value", "hooks", "kernel", "tracing"]
