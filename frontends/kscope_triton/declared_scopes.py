"""Adds scopes declared outside kernels to Triton's cache keys: Triton hashes a kernel's source and constexpr globals,
but not the fields of ``LOAD = kscope.scope("load")``.
"""

from __future__ import annotations

from typing import Any

from triton.runtime.jit import JITCallable


class ScopeKey(JITCallable):
    """Hashed like a jit function whose source is the scope's fields; never called. It is one of the callables in
    ``hash_attrs``, which Triton hashes for a global marked as an aggregate.
    """

    def __init__(self, parts: tuple[object, ...]) -> None:
        self._parts = parts
        self.used_global_vals: dict[Any, Any] = {}

    @property
    def cache_key(self) -> str:
        return repr(self._parts)
