"""Automatically placed marks do not change results: the PTX is executed with numbers (tests/simt)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import unannotated
from simt.block import run
from simt.machine import Machine
from simt.memory import Memory
from simt.text import parse

from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection

NUMBERS = np.random.default_rng(0)
EVERY = Selection.of("wait,load,store,barriers,loops,iterations")


def launched(case, memory, arguments, blocks, monkeypatch):
    """Runs a kernel's blocks one after the other; returns how often its code reads the clock."""
    name = case.kernel.__name__
    monkeypatch.setitem(unannotated.CASES, name, case)
    text = unannotated.compiled(name, 90).asm["ptx"]
    machine = Machine(parse(text), name, memory, arguments)
    for block in range(blocks):
        run(machine, (block, 0, 0), (128, 1, 1), (blocks, 1, 1))
    return text.count("%clock64")


@pytest.fixture(params=["plain", "marked"])
def marked(request, frontend):
    if request.param == "marked":
        frontend.enable(Recording(selection=EVERY))
    return request.param == "marked"


def test_the_softmax_equals_numpys(marked, monkeypatch):
    case = unannotated.CASES["softmax"]
    memory, x = Memory(), NUMBERS.standard_normal((5, 992), dtype=np.float32)
    at, to = memory.put(x), memory.put(np.zeros_like(x))
    case = replace(case, types=case.types | {"STAGES": 1, "rows": "i64"})
    clocks = launched(case, memory, [to, at, x.shape[1], *x.shape], 2, monkeypatch)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(memory.get(to, x), powers / powers.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-7)
    assert (clocks > 8) == marked


def test_the_marked_layer_norm_equals_numpys(marked, monkeypatch):
    memory, x = Memory(), NUMBERS.standard_normal((3, 1504), dtype=np.float32)
    weight, bias = NUMBERS.standard_normal((2, 1504), dtype=np.float32)
    places = [memory.put(matrix) for matrix in (x, np.zeros_like(x), weight, bias)]
    eps = int(np.float32(1e-5).view(np.uint32))
    clocks = launched(unannotated.CASES["layer_norm"], memory, [*places, x.shape[1], eps], 3, monkeypatch)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(memory.get(places[1], x), expected, rtol=1e-3, atol=1e-4)
    assert (clocks > 8) == marked
