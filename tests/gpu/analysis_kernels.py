"""Kernels with predictable time: arithmetic in a loop, with and without a region inside."""

from __future__ import annotations

import triton
import triton.language as tl

import kscope


@triton.jit
def chained(out, n, INNER: tl.constexpr):
    """A chain of 64 multiply-adds, n times in one region; INNER: each time in another region."""
    x = tl.load(out + tl.program_id(0))
    with kscope.region("outer"):
        for _ in range(n):
            if INNER:
                with kscope.region("inner"):
                    for _ in tl.static_range(64):
                        x = x * 1.0001 + 0.5
            else:
                for _ in tl.static_range(64):
                    x = x * 1.0001 + 0.5
    tl.store(out + tl.program_id(0), x)
