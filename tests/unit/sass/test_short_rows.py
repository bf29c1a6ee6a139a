"""Rows with short clocks: two records of a pipeline in one store, where their clocks are close."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from ptxvm.machine import Clocks, Grid
from sassvm.launching import Case
from sassvm.pipelines import PARAMETER, ran

from kscope.sass.recording import short_rows
from kscope.sass.recording.kernel import Recorded, recorded

from .kernels import assembled, needs_tools
from .test_pipeline import EMPTY, ID, lowered, persistent
from .test_recording import only

pytestmark = needs_tools
FAR = 70_000
"""Cycles for which a row has no room."""
CLOCKS = {
    "close": (3, 1, 70),
    "one far": (3, 1, 5, FAR, 2, 9, 30),
    "far": (FAR, 90_000),
    "at the limit": (0xFFFF, 0x10000, 1, 0),
}


@cache
def made(rows: bool, records: int = 256) -> Recorded:
    """The persistent matmul; an SM has room for one block of it, so it has registers for rows."""
    from triton.backends.nvidia.compiler import get_ptxas

    found, tool = lowered(persistent(False)), get_ptxas(90).path
    kernel = replace(next(iter(found.kernels.values())), id=ID, log2_records=records.bit_length() - 1)
    with pytest.MonkeyPatch.context() as patch:
        if not rows:
            patch.setattr(short_rows, "planned", lambda *_: {})
        return recorded(
            found.marked, kernel, lambda code, table: assembled(code, tool, ("-lineinfo",) if table else ()), blocks=1
        )


def records(found: Recorded, steps: tuple[int, ...], size: int) -> dict[tuple[int, ...], tuple[int, Any, int]]:
    """Of each warp: the number of records, those that are left, and the number of rows."""
    kernel = replace(next(iter(lowered(persistent(False)).kernels.values())), specs=("elected",), id=ID)
    kernel = replace(kernel, log2_records=size.bit_length() - 1)
    empty, shape = EMPTY.replace("128", "256"), Grid((1, 1, 1), (256, 1, 1))
    case = Case(empty, only(found.data), kernel, 0, shape=shape, clocks=Clocks(steps=steps))
    ended = ran(found, only(found.data), case, PARAMETER.to_bytes(4, "little") * 256)
    result = dict[tuple[int, ...], tuple[int, Any, int]]()
    for key, (_, slab, rows) in ended.items():
        assert slab is not None
        many = int(slab.head["count"])
        kept = slab.ring[:many] if many <= len(slab.ring) else np.roll(slab.ring, -(many % len(slab.ring)))
        result[key] = many, kept, rows
    return result


@pytest.mark.parametrize("clocks", CLOCKS)
def test_the_records_are_those_without_rows(clocks: str) -> None:
    """Bit for bit: clocks, values, and order."""
    found, plain = (records(made(rows), CLOCKS[clocks], 256) for rows in (True, False))
    assert found.keys() == plain.keys() and len(found) == 8
    for key, (many, kept, rows) in plain.items():
        assert found[key][0] == many == rows
        np.testing.assert_array_equal(found[key][1], kept)
    less = [plain[key][2] - rows for key, (_, _, rows) in found.items()]
    steps = (PARAMETER // 128) ** 2 * (PARAMETER // 64)  # of all tiles
    print(less)
    assert clocks != "close" or less == [steps] * 8
    assert clocks != "far" or less == [0] * 8
    assert clocks in ("close", "far") or 0 < less[0] < steps


@pytest.mark.parametrize("clocks", CLOCKS)
def test_records_that_a_ring_lost_are_counted(clocks: str) -> None:
    found, plain = (records(made(rows, 8), CLOCKS[clocks], 8) for rows in (True, False))
    for key, (many, kept, _) in plain.items():
        count, left, _ = found[key]
        assert count == many > 8
        same = min(len(left), len(kept)) - 1
        np.testing.assert_array_equal(left[-same:], kept[-same:])


def test_a_row_has_the_wait_for_a_barrier_and_that_for_products() -> None:
    (about,) = made(True).layouts
    assert not made(False).layouts
    assert [(start, end) for _, start, end in about.records] == [(0, 1), (2, 3)]
    assert about.values == ((0, True), (1, False))
