"""The launches of a session, and the places in Python that make them. Known places are recorded in C, if it was built:
between two launches the launcher and the driver evict Python's code and data from the first caches.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Callable
from itertools import chain, repeat
from threading import Lock, get_ident
from types import CodeType, FrameType

from .. import native
from ..util import thread_stacks

Place = tuple[CodeType, int, int]
"""A code object, the offset of an instruction in it, and the thread's id."""

OF_LAUNCHER, OF_PACKAGE, PROGRAM = 0, 1, 2
"""Kinds of a frame's code. The place of a launch is the program's innermost frame; if it has none, the innermost one of
a package, else the frame that called add().
"""
Kind = Callable[[FrameType], int]
"""Returns the kind of a frame's code. Called once for each code object."""
_MOST_KINDS = 1 << 13
_Key = tuple[int, int, int]
"""Id of a place's code, instruction, and thread."""


def places(kind: Kind) -> Places:
    """No places yet; in C if that was built.

    Args:
        kind: must not refer to the result: a cycle through C is never freed.
    """
    compiled = native.module()
    if compiled is None:
        return Places(kind)
    found: Places = compiled.Places(thread_stacks.outward, vars(sys).get("_getframemodulename"), kind)
    return found


class Places:
    """Numbered places, from 0, and the place of each launch; native/places.c has the same type."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._lock = Lock()
        self._depths = dict[int, tuple[int, str]]()  # of the innermost frame outside launchers, and the code it calls
        self._kinds = dict[int, tuple[int, CodeType]]()  # by id of the code, which is kept alive
        self._numbers = dict[_Key, int]()
        self._program = dict[_Key, int]()  # those of the program's places
        self._places = list[Place]()
        self._launched = defaultdict[int, list[int]](list)

    def add(self, kernel: int) -> None:
        """Record a launch that the caller's callers made.

        kernel: the kernel's id, 64 bits. C finds known places by the object: pass the same one with each launch.

        Without memory the launch is left out. Its kernel then has no lines, which is a problem of the trace.
        """
        try:
            number = None
            if (known := self._depths.get(kernel)) is not None:
                try:
                    if thread_stacks.module(known[0]) is known[1]:
                        frame = thread_stacks.outward(known[0] + 1)
                        number = self._program.get((id(frame.f_code), frame.f_lasti, get_ident()))
                        if number is None:
                            number, _ = self._found(frame)
                except ValueError:  # the stack is not that deep
                    pass
            if number is None:
                number, depth = self._found(thread_stacks.outward(1))
                if depth:
                    called = thread_stacks.module(depth)
                    own: str | None = thread_stacks.outward(depth).f_globals.get("__name__")
                    if called is not None and called is own:  # functools.wraps() gives a function another name
                        self._depths[kernel] = depth, called
            self._launched[kernel].append(number)
        except MemoryError:
            pass

    def _found(self, frame: FrameType) -> tuple[int, int]:
        """The number of the place, from a frame outward, and the number of launchers' frames inside it."""
        outward: FrameType | None = frame
        best, depth, launchers = -1, 0, 0
        while outward is not None:
            known = self._kinds.get(id(outward.f_code))
            kind = known[0] if known else self._met(outward)
            if kind > best:
                if best <= OF_LAUNCHER < kind:
                    launchers = depth
                frame, best = outward, kind
                if kind == PROGRAM:
                    break
            outward, depth = outward.f_back, depth + 1
        place = frame.f_code, frame.f_lasti, get_ident()
        key = id(place[0]), *place[1:]
        with self._lock:
            number = self._numbers.setdefault(key, len(self._places))
            if number == len(self._places):
                self._places.append(place)
        if best == PROGRAM:  # others may have one of the program further outward, later
            self._program[key] = number
        return number, launchers

    def _met(self, frame: FrameType) -> int:
        """The kind of code in a frame seen for the first time."""
        if len(self._kinds) >= _MOST_KINDS:  # a package creates code for each launch
            self._kinds.clear()
        kind = self._kind(frame)
        self._kinds[id(frame.f_code)] = kind, frame.f_code
        return kind

    def places(self) -> list[Place]:
        """The places by number. Their code is kept alive. Some may be equal."""
        return self._places[:]

    def launches(self) -> bytes:
        """Pairs of uint64, each kernel's in order of launch: the kernel's id, and the number of the place."""
        found = array("Q")
        for kernel, numbers in list(self._launched.items()):
            found.extend(chain.from_iterable(zip(repeat(kernel), numbers[:], strict=False)))
        return found.tobytes()
