"""A kernel by its hash: ``0x7fa21c3``, as launches and other tools' logs have it.

What lives here: telling a hash from a name, and kernels of one name apart. What does not: how a hash is computed
(layout.py).
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from .data import TraceData

_HASH = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")


def hashed(text: str) -> int | None:
    """The number of a hash; None for anything else, which is a pattern of names: no kernel's name begins with 0x."""
    found = _HASH.fullmatch(text)
    return int(found[1], 16) if found else None


def of_kernels(trace: TraceData) -> list[int]:
    """The hash of each of trace.kernels."""
    found = np.zeros(len(trace.kernels), np.uint64)
    launches = np.array([launch.kernel_id for launch in trace.launches], np.uint64)
    found[trace.warps.kernel] = launches[trace.warps.launch]
    return [int(one) for one in found]


def kernel_names(trace: TraceData) -> tuple[str, ...]:
    """The names of trace.kernels for tables; where several share one, as variants of autotuning do, each with its hash:
    ``matmul 0x7fa21c3``."""
    shared = {name for name, count in Counter(trace.kernels).items() if count > 1}
    if not shared:
        return trace.kernels
    pairs = zip(trace.kernels, of_kernels(trace), strict=True)
    return tuple(f"{name} 0x{number:x}" if name in shared else name for name, number in pairs)
