"""What the threads of this process are running."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Iterator
from types import CodeType, FrameType

outward: Callable[[int], FrameType] = vars(sys)["_getframe"]
"""The frame so far outward of the caller's, which is 0. Raises ValueError if there is none."""


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
