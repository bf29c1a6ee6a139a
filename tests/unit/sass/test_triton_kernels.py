"""Triton kernels of the benchmarks, recorded in machine code; on a device: tests/gpu/test_placement.py."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec

import pytest

from kscope.sass.checks import hazards
from kscope.sass.cubin import insert
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import Function

from .kernels import functions, needs_tools
from .test_insert import check, some_nops

pytestmark = [needs_tools, pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")]
MORE = ("matmul", "attention", "backward", "persistent", "layernorm", "splitk", "grouped", "tasks")
NAMES = ["softmax", *(pytest.param(one, marks=pytest.mark.variation) for one in MORE)]
WITH_VALUES = ("persistent", "tasks")
"""Kernels with one value: a store keeps it until its mark, if need be with a move to a register of the thread."""
FEWER = ("softmax", "layernorm", "persistent", "tasks")
"""Kernels that leave less than a record's registers up to the next step of occupancy."""


@pytest.mark.parametrize("name", NAMES)
def test_they_record_without_a_hazard(name: str) -> None:
    from gpu.sass_kernels import made

    found = made(name)
    (kernel,) = functions(found.recorded.data)
    assert hazards.check(kernel) == ()
    before, now = (warps // found.case.options["num_warps"] for warps in found.recorded.warps)
    assert now == before or name in FEWER
    marks = found.recorded.marks
    assert {marks[spot.mark].name for spot in found.recorded.spots} == set(found.case.records)


@pytest.mark.parametrize("name", NAMES)
def test_their_plain_code_is_that_of_the_source_without_kscope(name: str) -> None:
    from gpu.sass_kernels import made, without_kscope

    (plain,), (expected,) = (functions(data) for data in (made(name).plain, without_kscope(name)))
    if name in WITH_VALUES:
        assert 0 < (codes(plain) - codes(expected)).total() <= 2
    else:
        assert [one.word for one in plain.instructions] == [one.word for one in expected.instructions]


def codes(function: Function) -> Counter[str]:
    """How often it has each instruction; NOPs pad it."""
    return Counter(one.code for one in function.instructions if one.code != "NOP")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", *MORE])
def test_they_take_nops(name: str) -> None:
    from gpu.sass_kernels import made

    data = made(name).plain
    (kernel,) = functions(data)
    assert hazards.check(kernel) == ()
    assert insert.inserted(data, kernel, Insertion()) == data
    check(data, kernel, some_nops(kernel, 5))
