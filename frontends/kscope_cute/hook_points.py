"""The hook points in CuTe DSL: the error that tells which one is missing.

What lives here: that check. What does not: the hooks (kscope/hooks.py), and what they do (pipeline.py, loading.py,
ffi.py, selected.py).
"""

from __future__ import annotations

from typing import Any

import cutlass

from kscope.errors import UnsupportedError
from kscope.util.text import install_command


def check(owner: Any, name: str, where: str) -> None:
    """Raises UnsupportedError where this CuTe DSL's class `owner`, found as `where`, lacks the method."""
    if not callable(getattr(owner, name, None)):
        raise UnsupportedError(
            f"nvidia-cutlass-dsl {cutlass.__version__} has no {where}.{name}, which kscope needs: "
            f"{install_command('cute')} brings a version that works"
        )
