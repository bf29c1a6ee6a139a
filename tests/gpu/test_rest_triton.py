"""Triton at rest on a GPU: a variable exists once, and attributes that a program sets hold in sessions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import kscope

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = import_module("triton.language")


@triton.jit
def counting(out):
    with kscope.region("count"):
        calls = tl.inline_asm_elementwise(
            "{ .global .align 4 .u32 calls; atom.global.add.u32 $0, [calls], 1; }",
            "=r,r", [tl.program_id(0)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
        tl.store(out, calls)


@triton.jit
def filled(out):
    with kscope.region("fill"):
        tl.store(out + tl.arange(0, 128), 7)


def attribute(function: Any, value: int | None = None) -> int:
    """A function's carve-out, which is set first if there is a value."""
    cuda = import_module("cuda.bindings.driver")
    carveout = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    if value is not None:
        assert int(cuda.cuFuncSetAttribute(function, carveout, value)[0]) == 0
    result, found = cuda.cuFuncGetAttribute(carveout, function)
    assert int(result) == 0
    return int(found)


def test_a_counter_in_device_memory_counts_the_launches_of_both_states() -> None:
    """Which warps execute the atomic is the compiler's choice: each launch adds the same number."""
    kscope.enable()
    out, found = torch.zeros(1, dtype=torch.int32, device="cuda"), []
    for _ in range(2):
        counting[(1,)](out, num_warps=1)
        found.append(int(out))
        with kscope.profile() as prof:
            counting[(1,)](out, num_warps=1)
            found.append(int(out))
        assert len(prof.trace) == 1
    assert found == sorted(set(found)), found


def test_an_attribute_that_the_program_sets_holds_in_the_session() -> None:
    kscope.enable()
    out = torch.zeros(128, dtype=torch.int32, device="cuda")
    plain = filled[(1,)](out)
    attribute(plain.function, 50)
    with kscope.profile() as prof:
        marked = filled[(1,)](out)
        assert marked.function != plain.function and attribute(marked.function) == 50
    assert len(prof.trace) == 4
