"""Kernels whose launches are distinguished by a tag that their records carry."""

from __future__ import annotations

import triton
import triton.language as tl

from triton_kscope import region


@triton.jit(do_not_specialize=["tag"])
def scale(x, out, n, tag, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    for _ in range(TURNS):
        a = a * 1.0001 + 0.5
    with region("store", value=tag):
        tl.store(out + at, a, mask=at < n)


@triton.jit(do_not_specialize=["tag"])
def shift(x, out, n, tag, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    with region("store", value=tag):
        tl.store(out + at, a + 1, mask=at < n)


@triton.jit
def counted(x, out, n, turn, NODE: tl.constexpr, BLOCK: tl.constexpr):
    """The tag is ten times a counter in device memory, plus the node."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tag = tl.load(turn) * 10 + NODE
    a = tl.load(x + at, mask=at < n)
    with region("store", value=tag):
        tl.store(out + at, a * 0.5, mask=at < n)


@triton.jit(do_not_specialize=["tag"])
def chained(x, out, n, tag, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """Lets the next launch begin at once, and waits for the previous one at its end."""
    tl.extra.cuda.gdc_launch_dependents()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    for _ in range(TURNS):
        a = a * 1.0001 + 0.5
    tl.extra.cuda.gdc_wait()
    with region("store", value=tag):
        tl.store(out + at, a, mask=at < n)
