"""Triton kernels of the benchmarks, recorded behind the assembler; on a device: tests/gpu/test_sass.py."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from kscope.sass import hazards, insert
from kscope.sass.insert import Insertion

from .kernels import functions, needs_tools
from .test_insert import check, some_nops

pytestmark = [needs_tools, pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")]
NAMES = ["softmax", *(pytest.param(one, marks=pytest.mark.variation) for one in ("matmul", "attention", "backward"))]


@pytest.mark.parametrize("name", NAMES)
def test_they_record_without_a_hazard(name: str) -> None:
    from gpu.sass_kernels import made

    found = made(name)
    (kernel,) = functions(found.recorded.data)
    assert hazards.check(kernel) == ()
    before, now = found.recorded.warps
    assert now == before or name == "softmax"  # whose 22 registers are fewer than a claim has


@pytest.mark.parametrize("name", NAMES)
def test_they_take_nops(name: str) -> None:
    from gpu.sass_kernels import made

    data = made(name).plain
    (kernel,) = functions(data)
    assert hazards.check(kernel) == ()
    assert insert.inserted(data, kernel, Insertion()) == data
    check(data, kernel, some_nops(kernel, 5))
