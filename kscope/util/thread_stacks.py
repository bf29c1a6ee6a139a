"""The code that the threads of this process run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Iterator
from types import CodeType, FrameType

outward: Callable[[int], FrameType] = vars(sys)["_getframe"]
"""The frame at this distance outward from the caller's, which is 0. Raises ValueError if there is none."""


def _module(depth: int) -> str | None:
    name: str | None = outward(depth + 1).f_globals.get("__name__")
    return name


module: Callable[[int], str | None] = vars(sys).get("_getframemodulename", _module)
"""The module of the function at this distance outward from the caller's. Python 3.12 has a faster way than reading its
frame.
"""


def own() -> Iterator[FrameType]:
    """The frames of this thread, the innermost first."""
    return _outward(inspect.currentframe())  # a frame that refers to itself would keep all of them alive


def threads(code: Container[CodeType]) -> set[int]:
    """The threads, by ident, that run one of these code objects."""
    frames: dict[int, FrameType] = vars(sys)["_current_frames"]()
    return {thread for thread, top in frames.items() if any(frame.f_code in code for frame in _outward(top))}


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
