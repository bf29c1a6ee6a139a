"""Host calls that launched kernels, as another profiler recorded them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Call:
    """A launch's call on the host. Text is empty and numbers are -1 where the other profiler has none.

    Attributes:
        launch: index into Trace.launches.
        op: the innermost operator that made the call, such as "aten::add".
        module: the innermost module, such as "Linear_0".
        stack: Python's frames, outermost first, such as "train.py(12): step".
        stream: the CUDA stream's number.
        correlation: CUPTI's number of the call; all kernels of one graph launch share it.
        enqueue_ns: when the call began, ns after Trace.origin.
        cpu_ns: how long the call took.
        begin_ns, end_ns: the kernel's slice in the other profiler's trace, ns after Trace.origin.
    """

    launch: int
    op: str = ""
    module: str = ""
    stack: tuple[str, ...] = ()
    stream: int = -1
    correlation: int = -1
    enqueue_ns: int = -1
    cpu_ns: int = -1
    begin_ns: int = -1
    end_ns: int = -1

    @property
    def line(self) -> str:
        """The innermost Python frame outside installed packages, else the innermost one."""
        last = self.stack[-1] if self.stack else ""
        return next((frame for frame in reversed(self.stack) if not _of_library(frame)), last)


_LIBRARY = re.compile(r"^(<|(torch|triton|kscope)/)|(site|dist)-packages/|/lib/python|(^|/)(kscope_\w+|triton_kscope)/")
"""Frames of packages. torch.profiler omits the folder of a package."""


@lru_cache(1 << 12)
def _of_library(frame: str) -> bool:
    return _LIBRARY.search(frame) is not None
