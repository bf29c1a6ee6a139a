"""The Python functions in Triton's objects."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def python_function(thing: Any) -> Any:
    """The Python function in a user's jit function; None for other objects and for Triton's library."""
    compiled, interpreted = hasattr(thing, "cache_key"), hasattr(thing, "rewriter")
    function = getattr(thing, "fn", None) if compiled or interpreted else None
    return None if str(getattr(function, "__module__", "")).startswith("triton.") else function


def plain_or_jit(thing: Any) -> Any:
    """The same, and a Python function as it is: the interpreter runs a kernel as one."""
    return thing if isinstance(thing, FunctionType) else python_function(thing)
