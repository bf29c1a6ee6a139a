"""The launches of a session, and the places in Python that make them.

Most launches come from a place that launched before. Between two of them the launcher and the driver run through more
code and data than the first caches hold, so such a launch is recorded in C where that is built.
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
"""Code, an instruction in it, and the thread."""


Search = Callable[[FrameType], tuple[FrameType, int]]
"""From the frame that called add() to the frame whose instruction is the place, and how far that is outward: then add()
knows the place, for kernels at that depth and if the same is called there. 0: it does not.
"""


class Places(Protocol):
    """Places by number, from 0, and which of them made each launch."""

    def add(self, kernel: int) -> None:
        """Record a launch by the caller's callers. kernel: its id, 64 bits. Without memory the launch is left out: its
        kernel has no lines then, which is a problem of the trace.
        """
        ...

    def places(self) -> list[Place]:
        """The places by number. Their code is kept alive. Some may be equal."""
        ...

    def launches(self) -> bytes:
        """Pairs of uint64, of each kernel in order of launch: kernel, number of the place."""
        ...


def places(search: Search) -> Places:
    """An empty record, in C if that is built.

    Args:
        search: finds places that are not known. It must not refer to the record.
    """
    compiled = native.module()
    if compiled is None:
        return PlacesInPython(search)
    found: Places = compiled.Places(stacks.outward, vars(sys).get("_getframemodulename"), search)
    return found


class PlacesInPython:
    """Places, without C."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._lock = Lock()
        self._depths = dict[int, int]()
        self._numbers = dict[Any, int]()  # by the id of a place's code, its instruction, thread, and the called module
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
                except ValueError:  # no frame is so far outward
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
