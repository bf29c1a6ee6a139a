"""auto="pipeline" in Triton and Gluon: operations on barriers are found in the PTX."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import pytest
import triton
import triton.language as tl
from gpu.pipeline_kernels import TILES, multiply
from triton.backends.compiler import GPUTarget
from unit.sass.kernels import needs_tools

from kscope.capture.metadata import from_json
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.marks.operations import PIPELINE, Named, of_name
from kscope_triton.compile import META

pytestmark = pytest.mark.filterwarnings("ignore:.*more bytes of registers spill")


@triton.jit
def plain(out, n):
    tl.store(out, n)


def recorded(made: Any) -> list[Named]:
    """The operations that a compiled kernel records."""
    found = (of_name(region.name) for region in from_json(made.metadata._asdict()[META].encode()).regions)
    return [one for one in found if one is not None]


@pytest.fixture
def piped(plain_compiler, frontend):
    frontend.enable(Recording(selection=Selection((PIPELINE,))))
    return plain_compiler


@pytest.fixture
def scheduled(plain_compiler, frontend):
    """Compiles with marks in the machine code."""
    frontend.enable(Recording(placement="schedule", selection=Selection((PIPELINE,))))
    return plain_compiler


def in_machine_code(made: Any) -> bool:
    """True if a compiled kernel is recorded in its machine code, without a reason why not."""
    about = from_json(made.metadata._asdict()[META].encode())
    return about.placement == "schedule" and not [one.text for one in about.problems if one.kind == "placement"]


@needs_tools
@pytest.mark.filterwarnings("ignore:.*under a predicate is not recorded")
def test_a_persistent_matmul_is_recorded_in_its_machine_code(scheduled):
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
    made = scheduled(multiply, 90, {"num_warps": 8, "num_stages": 3}, **types, **TILES, APART=False)
    assert in_machine_code(made)
    assert {one.operation for one in recorded(made)} == {"init", "expect", "wait", "commit", "drain"}


@needs_tools
def test_a_warp_specialized_matmul_in_gluon_is_recorded_in_its_machine_code(scheduled, monkeypatch):
    """Together with the regions of its source."""
    made = triton.compile(gluon_matmul(monkeypatch), target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert in_machine_code(made)
    names = {region.name for region in from_json(made.metadata._asdict()[META].encode()).regions}
    assert "wait_ready" in names and len(recorded(made)) == 9


def gluon_matmul(monkeypatch):
    """The source of a warp-specialized matmul with regions."""
    monkeypatch.syspath_prepend("examples")
    example = importlib.import_module("gluon_warp_specialized")
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon._runtime import GluonASTSource

    tiles = {"a": (128, 64), "b": (64, 128), "c": (128, 128)}
    types = {
        name: f"tensordesc<fp16[{x}, {y}],{gl.NVMMASharedLayout.get_default_for([x, y], gl.float16)!r}>"
        for name, (x, y) in tiles.items()
    }
    types |= {"K": "i32", "BK": "constexpr", "STAGES": "constexpr"}
    return GluonASTSource(example.matmul, types, {"BK": 64, "STAGES": 4})


def test_a_persistent_matmul_records_its_copies_its_waits_and_its_groups(piped):
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
    made = piped(multiply, 90, {"num_warps": 8, "num_stages": 3}, **types, **TILES, APART=False)
    found = Counter(one.operation for one in recorded(made))
    assert found.keys() == {"init", "expect", "wait", "commit", "drain"}, "copies are part of what expects their bytes"
    expects = [one for one in recorded(made) if one.operation == "expect"]
    assert {(one.bytes, one.copies) for one in expects} == {((128 + 128) * 64 * 2, 2)}
    lines = {one.where for one in expects}
    (loads,) = {where.rpartition(":")[0] for where in lines}
    assert loads == "pipeline_kernels.py"


def test_a_warp_specialized_matmul_in_gluon_records_both_sides(piped, monkeypatch):
    made = triton.compile(gluon_matmul(monkeypatch), target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    found = recorded(made)
    assert Counter(one.operation for one in found if one.operation not in ("commit", "drain")) == {
        "init": 2, "wait": 2, "expect": 1, "arrive": 1,
    }  # fmt: skip
    (expect,) = (one for one in found if one.operation == "expect")
    assert expect.copies == 3
    assert [(one.of, one.commits) for one in found if one.operation == "drain"] == [
        ("cp.async.bulk.read", 0), ("wgmma", 1),
    ]  # fmt: skip
    assert [one.of for one in found if one.operation == "commit"] == ["cp.async.bulk"]
    roles = from_json(made.metadata._asdict()[META].encode()).kernels[0].roles
    assert [role.name for role in roles] == ["multiply", "fetch"]


def test_a_kernel_without_barriers_stays_plain(piped, frontend):
    text = piped(plain, out="*i32", n="i32").asm["ptx"]
    assert "ks_" not in text
    frontend.disable()
    assert piped(plain, out="*i32", n="i32").asm["ptx"] == text
