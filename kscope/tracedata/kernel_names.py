"""Kernels by name and by hash: ``0x7fa21c3``, as in launches and in other tools' logs."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from .data import TraceData

_HASH = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")


def hashed(text: str) -> int | None:
    """The number of a hash; None for a name or pattern (no kernel's name begins with 0x)."""
    found = _HASH.fullmatch(text)
    return int(found[1], 16) if found else None


def of_kernels(trace: TraceData) -> list[int]:
    """The hash of each kernel of a trace."""
    found = np.zeros(len(trace.kernels), np.uint64)
    launches = np.array([launch.kernel_id for launch in trace.launches], np.uint64)
    found[trace.warps.kernel] = launches[trace.warps.launch]
    return [int(one) for one in found]


def kernel_names(trace: TraceData) -> tuple[str, ...]:
    """The kernels' names for tables; names that several variants share get their hash: ``matmul 0x7fa21c3``."""
    shared = {name for name, count in Counter(trace.kernels).items() if count > 1}
    if not shared:
        return trace.kernels
    pairs = zip(trace.kernels, of_kernels(trace), strict=True)
    return tuple(f"{name} 0x{number:x}" if name in shared else name for name, number in pairs)
