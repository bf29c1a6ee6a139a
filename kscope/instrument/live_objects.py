"""Objects of other libraries that are alive in this process: kernels that were made before recording was enabled.

What lives here: asking the garbage collector, and what is said where it cannot tell. What does not: what becomes of the
objects (frontends).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

from ..capture.model import Problem

OWN = 5000
"""More objects than Python freezes of its own: 3.12 some 375 at its start, the others none. A program that has imported
a kernel language has ten times as many."""


def living(*kinds: type) -> list[Any]:
    """Every object of these types that the collector knows. A proxy's __class__ may act: it is not asked. Of a million
    objects, each is looked up among the types that are derived from `kinds`: issubclass() would take thrice as long."""
    wanted = _derived(kinds)
    return [found for found in gc.get_objects() if type(found) in wanted]


def _derived(kinds: Iterable[type]) -> frozenset[type]:
    """These types and all that inherit from them."""
    found = set(kinds)
    for kind in kinds:
        found |= _derived(type.__subclasses__(kind))
    return frozenset(found)


def hidden(kernels: str) -> tuple[Problem, ...]:
    """A problem where gc.freeze() was called: living() does not see what was alive then. kernels: what it looks for."""
    if gc.get_freeze_count() < OWN:
        return ()
    text = (
        f"gc.freeze() was called: {kernels} that were made before stay as they were, and may not be recorded; call "
        "gc.unfreeze() before recording, or kscope.enable() before gc.freeze()"
    )
    return (Problem("plain", text),)
