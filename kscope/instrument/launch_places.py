"""The launches of a session, and the places in Python that make them.

Most launches come from a place that has launched before. C records these, if it was built: between two launches the
launcher and the driver evict Python's code and data from the first caches.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Callable
from itertools import chain, repeat
from threading import Lock, get_ident
from types import CodeType, FrameType
from typing import Any, Protocol

from .. import native
from ..util import stacks

Place = tuple[CodeType, int, int]
"""A code object, the offset of an instruction in it, and the thread's id."""


Search = Callable[[FrameType], tuple[FrameType, int]]
"""Finds the place of a launch. Takes the frame that called add(); returns the frame of the place, and its distance
outward. add() then recognizes the place if the same module is called there, at this distance. 0: it must search again.
"""


class Places(Protocol):
    """Places by number, from 0, and which of them made each launch."""

    def add(self, kernel: int) -> None:
        """Record a launch that the caller's callers made.

        kernel: the kernel's id, 64 bits. C finds known places by the object: pass the same one with each launch.

        Without memory the launch is left out. Its kernel then has no lines, which is a problem of the trace.
        """
        ...

    def places(self) -> list[Place]:
        """The places by number. Their code is kept alive. Some may be equal."""
        ...

    def launches(self) -> bytes:
        """Pairs of uint64, each kernel's in order of launch: the kernel's id, and the number of the place."""
        ...


def places(search: Search) -> Places:
    """No places yet; in C if that was built.

    Args:
        search: finds places that are not known. It must not refer to the result: a cycle through C is never freed.
    """
    compiled = native.module()
    if compiled is None:
        return PlacesInPython(search)
    found: Places = compiled.Places(stacks.outward, vars(sys).get("_getframemodulename"), search)
    return found


class PlacesInPython:
    """Places in Python."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._lock = Lock()
        self._depths = dict[int, int]()
        self._numbers = dict[Any, int]()  # by id of the code, instruction, thread, and called module
        self._places = list[Place]()
        self._launched = defaultdict[int, list[int]](list)

    def add(self, kernel: int) -> None:
        """As Places.add()."""
        try:
            number = None
            if (depth := self._depths.get(kernel)) is not None:
                try:
                    frame = stacks.outward(depth + 1)
                    number = self._numbers.get((id(frame.f_code), frame.f_lasti, get_ident(), stacks.module(depth)))
                except ValueError:  # the stack is not that deep
                    pass
            if number is None:
                frame, depth = self._search(stacks.outward(1))
                number = self._learned(frame, stacks.module(depth) if depth else None)
                if depth:
                    self._depths[kernel] = depth
            self._launched[kernel].append(number)
        except MemoryError:
            pass

    def _learned(self, frame: FrameType, called: str | None) -> int:
        place = frame.f_code, frame.f_lasti, get_ident()
        with self._lock:
            number = self._numbers.setdefault((id(frame.f_code), *place[1:], called), len(self._places))
            if number == len(self._places):
                self._places.append(place)
        return number

    def places(self) -> list[Place]:
        """As Places.places()."""
        return self._places[:]

    def launches(self) -> bytes:
        """As Places.launches()."""
        found = array("Q")
        for kernel, numbers in list(self._launched.items()):
            found.extend(chain.from_iterable(zip(repeat(kernel), numbers[:], strict=False)))
        return found.tobytes()
