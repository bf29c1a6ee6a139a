"""Adds scopes declared outside of kernels to Triton's cache keys.

``LOAD = kscope.scope("load")`` is a global of the module; Triton hashes a kernel's source and its
constexpr globals, and would not notice that the scope was renamed. For a global marked as an aggregate,
Triton hashes the callables in ``hash_attrs``; a Spelling is such a callable, with the scope's fields as its key.
"""

from __future__ import annotations

from typing import Any

from triton.runtime.jit import JITCallable


class Spelling(JITCallable):
    """Hashed like a jit function whose source is the scope's spelling; never called."""

    def __init__(self, parts: tuple[object, ...]) -> None:
        self._parts = parts
        self.used_global_vals: dict[Any, Any] = {}

    @property
    def cache_key(self) -> str:
        return repr(self._parts)
