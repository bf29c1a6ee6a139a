"""What the threads of this process are running."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Container, Iterator
from types import CodeType, FrameType


def own() -> Iterator[FrameType]:
    """The frames of this thread, the innermost first."""
    return _outward(inspect.currentframe())  # a frame that refers to itself would keep all of them alive


def running(code: Container[CodeType], *, elsewhere: bool = False) -> bool:
    """Whether any thread runs one of these code objects.

    Args:
        code: the code objects.
        elsewhere: leave this thread out.
    """
    frames: dict[int, FrameType] = vars(sys)["_current_frames"]()
    others = (top for thread, top in frames.items() if not (elsewhere and thread == threading.get_ident()))
    return any(frame.f_code in code for top in others for frame in _outward(top))


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
