"""The launches of a session, and the places in Python that make them.

Most launches come from a place that launched before. Between two of them the launcher and the driver run through more
code and data than the first caches hold, so such a launch is recorded in C where that is built.
"""

from __future__ import annotations

import sys
from array import array
from threading import Lock, get_ident
from types import CodeType, FrameType
from typing import Any, Protocol

from .. import native
from ..util import stacks

Place = tuple[CodeType, int, int]
"""Code, an instruction in it, and the thread."""


class Places(Protocol):
    """Places by number, from 0, and which of them made each launch. Depths are how far a frame is outward of the
    caller's frame.
    """

    def add(self, kernel: int) -> bool:
        """Record a launch that comes from a known place: at the kernel's depth, and calling what was called there.

        Args:
            kernel: the kernel's id, 64 bits.

        Returns:
            False if the place is not known: then nothing is recorded.
        """
        ...

    def learn(self, kernel: int, frame: FrameType, depth: int) -> None:
        """Record a launch from any place.

        Args:
            kernel: the kernel's id, 64 bits.
            frame: its current instruction is the place.
            depth: of the frame; add() knows the place from now on. 0: it does not.
        """
        ...

    def places(self) -> list[Place]:
        """The places by number. Their code is kept alive. Some may be equal."""
        ...

    def launches(self) -> bytes:
        """Pairs of uint64 in order of launch: kernel, number of the place."""
        ...


def places() -> Places:
    """An empty record, in C if that is built."""
    made = native.module()
    if made is None:
        return PlacesInPython()
    found: Places = made.Places(stacks.outward, vars(sys).get("_getframemodulename"))
    return found


class PlacesInPython:
    """Places, without C."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._depths = dict[int, int]()
        self._numbers = dict[Any, int]()  # by the id of a place's code, its instruction, thread, and the called module
        self._places = list[Place]()
        self._launches = array("Q")

    def add(self, kernel: int) -> bool:
        """As Places.add()."""
        depth = self._depths.get(kernel)
        try:
            frame = None if depth is None else stacks.outward(depth + 1)
        except ValueError:  # no frame is so far outward
            frame = None
        if depth is None or frame is None:
            return False
        number = self._numbers.get((id(frame.f_code), frame.f_lasti, get_ident(), stacks.module(depth)))
        if number is None:
            return False
        self._launches.extend((kernel, number))
        return True

    def learn(self, kernel: int, frame: FrameType, depth: int) -> None:
        """As Places.learn()."""
        place = frame.f_code, frame.f_lasti, get_ident()
        key = id(frame.f_code), *place[1:], stacks.module(depth) if depth else None
        with self._lock:
            number = self._numbers.setdefault(key, len(self._places))
            if number == len(self._places):
                self._places.append(place)
        if depth:
            self._depths[kernel] = depth
        self._launches.extend((kernel, number))

    def places(self) -> list[Place]:
        """As Places.places()."""
        return self._places[:]

    def launches(self) -> bytes:
        """As Places.launches()."""
        return self._launches.tobytes()
