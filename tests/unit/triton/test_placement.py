"""placement="schedule": the cubin that Triton loads is the plain kernel's, and records."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import triton
import triton.language as tl
from unit.sass.kernels import functions, needs_tools

import kscope
from kscope.capture import metadata
from kscope.capture.model import ModuleMeta
from kscope.instrument.recording import Recording
from kscope.sass.checks import hazards

pytestmark = needs_tools
TYPES: dict[str, Any] = {"a": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": 1024}


@triton.jit
def copies(a, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with kscope.region("load"):
        x = tl.load(a + at)
    with kscope.region("store"):
        tl.store(out + at, x * 2, mask=at < n)


@pytest.fixture
def compiled(frontend: Any, compiler: Any) -> Iterator[Any]:
    """Compiles a kernel with the options of a recording; returns it, its metadata and warnings."""

    def compile_it(arch: int = 90, **options: Any) -> tuple[Any, ModuleMeta, list[str]]:
        frontend.enable(Recording(placement="schedule", **options))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            kernel = compiler(copies, arch, **TYPES)
        return kernel, metadata.from_json(kernel.metadata.kscope.encode()), [str(one.message) for one in found]

    return compile_it


def test_the_cubin_records_in_its_machine_code(compiled: Any) -> None:
    kernel, about, _ = compiled()
    (function,) = functions(kernel.asm["cubin"])
    assert hazards.check(function) == ()
    assert about.placement == "schedule"
    assert [region.name for region in about.regions] == ["load", "store"]
    stores = [one for one in function.instructions if one.code == "STG.E.128" and "+0x20]" in one.operands[0]]
    (row,) = about.layouts  # both regions are stored at once
    assert len(row.records) == 2 and len(stores) == 1
    assert "//kscope enter load" in kernel.asm["ptx"]  # the text with marks is what was assembled


def test_its_metadata_is_in_the_cubin(compiled: Any) -> None:
    kernel, about, _ = compiled()
    assert kernel.asm["cubin"].count(metadata.to_json(about)) == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fill": "stop"}, "fill='stop' is not supported"),
        ({"arch": 100}, "sm_100 is not supported"),
    ],
)
def test_what_cannot_be_recorded_there_is_recorded_in_its_text_and_reported(
    compiled: Any, options: dict[str, Any], why: str
) -> None:
    kernel, about, said = compiled(**options)
    assert about.placement == "fence"
    (problem,) = [one for one in about.problems if one.kind == "placement"]
    assert problem.text == (
        f"kernel copies is recorded with placement='fence', because with placement='schedule' {why}"
    )
    assert any(problem.text in one for one in said)
    assert "//kscope" not in kernel.asm["ptx"]


def test_both_placements_have_kernels_of_their_own(compiled: Any, frontend: Any, compiler: Any) -> None:
    _, schedule, _ = compiled()
    frontend.enable(Recording())
    fence = metadata.from_json(compiler(copies, **TYPES).metadata.kscope.encode())
    assert schedule.kernels[0].name == fence.kernels[0].name
    assert schedule.kernels[0].id != fence.kernels[0].id
