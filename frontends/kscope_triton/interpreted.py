"""Triton's interpreter (TRITON_INTERPRET=1): kernels that run as plain Python.

What lives here: whether the interpreter runs now, and in which block.
"""

from __future__ import annotations

from typing import Any

from kscope.marks import Mark
from kscope.recording import Recording


class Interpreted:
    """Marks of interpreted kernels."""

    recording: Recording | None = None

    def emit(self, mark: Mark, value: Any) -> bool:
        return False
