"""Captures the machine code that CuPy's compiler gives to the driver, compiled now or from the cache on disk, and loads
it with the address of the device's control block.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from kscope.instrument import registry

from .hook_points import compiler, fetch, runtime

FUNCTION = "function"


class _Functions:
    """CuPy's module with the class Module, which passes the code on to a list."""

    def __init__(self, original: Any, seen: list[bytes]) -> None:
        class Module(original.Module):
            def load(self, code: bytes) -> None:
                seen.append(code)
                super().load(registry.backend("cuda").patched(code, runtime.getDevice()))

        self._original, self.Module = original, Module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


@contextmanager
def seen() -> Generator[list[bytes]]:
    """A context manager; the list receives the code that CuPy's compiler loads. Only one thread may compile
    meanwhile.
    """
    found = list[bytes]()
    original = fetch(compiler, FUNCTION)
    setattr(compiler, FUNCTION, _Functions(original, found))
    try:
        yield found
    finally:
        setattr(compiler, FUNCTION, original)
