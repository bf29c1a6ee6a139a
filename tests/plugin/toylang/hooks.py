"""Where others may hook in: lists of functions that toylang calls."""

from __future__ import annotations

from collections.abc import Callable

TRACING: list[Callable[[Callable[..., None]], None]] = []
"""Called with a kernel's Python function before it is traced."""
PASSES: list[Callable[[str], str]] = []
"""Functions applied to a kernel's PTX before it is assembled."""
KEYS: list[Callable[[], str]] = []
"""The inputs of a compiled kernel besides its code."""
LOADED: list[Callable[[int], None]] = []
"""Called with the handle of each module, right after the driver has loaded it."""
LAUNCHING: list[Callable[[], None]] = []
"""Called before each launch."""
