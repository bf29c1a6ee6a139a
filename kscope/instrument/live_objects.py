"""Live objects of other libraries: kernels created before recording was enabled."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

from ..capture.model import Problem

FROZEN_BY_PYTHON = 5000
"""More objects than Python itself freezes: about 375 in 3.12, none in other versions; fewer than a program that has
imported a DSL.
"""


def live_objects(*kinds: type) -> list[Any]:
    """Every live object of these types and their subclasses.

    The type is read without calling the object, because a proxy's __class__ may run code; a set of subclasses is three
    times faster than issubclass() over a million objects.
    """
    derived = _derived(kinds)
    return [found for found in gc.get_objects() if type(found) in derived]


def _derived(kinds: Iterable[type]) -> frozenset[type]:
    """The types and all their subclasses."""
    found = set(kinds)
    for kind in kinds:
        found |= _derived(type.__subclasses__(kind))
    return frozenset(found)


def frozen_objects(kernels: str) -> tuple[Problem, ...]:
    """A problem if gc.freeze() was called, because live_objects() cannot see what was alive then.

    Args:
        kernels: the objects to name in the problem, such as "CuPy kernels".
    """
    if gc.get_freeze_count() < FROZEN_BY_PYTHON:
        return ()
    text = (
        f"gc.freeze() was called: {kernels} created before it may not be recorded; call "
        "gc.unfreeze() before recording, or kscope.enable() before gc.freeze()"
    )
    return (Problem("plain", text),)
