"""The check that CuTe DSL has the methods that kscope hooks."""

from __future__ import annotations

from typing import Any

import cutlass

from kscope.errors import UnsupportedError
from kscope.util.text import install_command


def check(owner: Any, name: str, path: str) -> None:
    """Raises UnsupportedError if the class `owner`, at `path` in CuTe DSL, lacks the method."""
    if not callable(getattr(owner, name, None)):
        raise UnsupportedError(
            f"nvidia-cutlass-dsl {cutlass.__version__} has no {path}.{name}, which kscope needs: "
            f"{install_command('cute')} brings a version that works"
        )
