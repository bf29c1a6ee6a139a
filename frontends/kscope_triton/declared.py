"""Scopes declared outside of a kernel, in the keys of Triton's caches.

``LOAD = kscope.scope("load")`` is a global of the module; Triton hashes a kernel's source and its
constexpr globals, and would miss that the scope was renamed. For a global that calls itself an
aggregate Triton hashes the callables in ``hash_attrs``: a Spelling is one that says what the scope is.
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
