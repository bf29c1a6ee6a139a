"""Regions whose work the compiler moved elsewhere are reported when a kernel is compiled; others are not."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

import pytest

from kscope.capture.model import Problem
from kscope.errors import MissingError
from kscope.instrument.recording import Recording
from kscope.lowering import assembler, empty_regions, plan, register_budget
from kscope.machine_code import tools
from kscope.machine_code.disassembly import is_empty

KERNEL = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 limit)
{{
    .reg .pred %p<3>; .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [limit];
    cvta.to.global.u64 %rd1, %rd1; ld.global.f32 %f1, [%rd1]; mov.u32 %r2, %tid.x;
{body}
    setp.gt.u32 %p1, %r1, %r2;
    @%p1 bra STORE;
    ret;
STORE:
    st.global.f32 [%rd1+4], %f1;
    ret;
}}
"""
FMAS = "    fma.rn.f32 %f1, %f1, %f1, 0f3F800000;\n" * 16
MOVED = FMAS.replace("%f1", "%f3").replace("%f3, %f3, %f3", "%f3, %f1, %f1", 1)
"""Their result is the same in each iteration of a loop: the assembler computes it before."""


def region(body: str, name: str = "work") -> str:
    return f"    //kscope enter {name} - - with\n{body}    //kscope exit {name} - - with\n"


def loop(body: str) -> str:
    count = "    add.u32 %r3, %r3, 1;\n    setp.lt.u32 %p2, %r3, %r1;\n    @%p2 bra LOOP;\n    mov.f32 %f1, %f3;\n"
    return f"    mov.u32 %r3, 0;\nLOOP:\n{body}{count}"


def cubin(text: str) -> bytes:
    program = assembler.ptxas()
    if program is None:
        pytest.skip("no ptxas")
    made = register_budget.assemble(text, program, ("-arch=sm_90a",))
    assert made is not None
    return made.cubin


def unneeded(text: str) -> NoReturn:
    raise AssertionError("assembled")


def problems(body: str, assemble: object = cubin) -> tuple[Problem, ...]:
    text = KERNEL.format(body=body)
    lowered = plan.lower(text, Recording(), frontend="test")
    found = empty_regions.with_problems(lowered, text, assemble)  # type: ignore[arg-type]  # a stub
    assert found.meta.problems == found.problems
    return found.problems


@pytest.fixture
def disassembler() -> None:
    try:
        tools.find("nvdisasm")
    except MissingError:
        pytest.skip("no nvdisasm")


@pytest.mark.usefixtures("disassembler")
def test_a_region_whose_work_moved_is_reported_with_the_remedy() -> None:
    (problem,) = problems(loop(region(MOVED)))
    assert (problem.kind, problem.kernel, problem.region) == ("empty", "k", "work")
    assert "region 'work' has no instruction between its clock readings" in problem.text
    assert "pin() keeps the computation of a value inside" in problem.text


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize(("origin", "reported"), [("lines", ["work"]), ("auto", [])])
def test_selected_lines_are_checked_and_operations_that_a_kind_selected_are_not(
    origin: str, reported: list[str]
) -> None:
    assert [one.region for one in problems(loop(region(MOVED).replace(" with", f" {origin}")))] == reported


@pytest.mark.usefixtures("disassembler")
def test_a_region_that_only_reads_a_special_register_has_no_work() -> None:
    body = region("    mov.u32 %r4, %ctaid.x;\n") + "    st.global.u32 [%rd1+8], %r4;\n"
    assert [one.region for one in problems(body)] == ["work"]
    assert is_empty(["S2R", "CS2R.32", "MOV"]) and not is_empty(["S2R", "FFMA"])


READ_ONLY = "    ld.global.nc.f32 %f3, [%rd1+16];\n"
SHARED = "    ld.shared.f32 %f3, [%r1];\n"
MMA = (
    "    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f4, %f5, %f6, %f7}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, "
    "{%f1, %f1, %f1, %f1};\n"
)


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize("body", [READ_ONLY, SHARED], ids=["read-only memory", "shared memory"])
def test_a_region_whose_loads_moved_out_of_a_loop_is_reported(body: str) -> None:
    assert [one.region for one in problems(loop(region(body)))] == ["work"]


@pytest.mark.usefixtures("disassembler")
def test_a_region_of_a_tensor_core_whose_result_is_not_used_is_reported() -> None:
    assert [one.region for one in problems(region(MMA))] == ["work"]


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize("body", [FMAS, MMA + "    add.f32 %f1, %f4, %f5;\n"], ids=["arithmetic", "tensor core"])
def test_work_that_stays_is_not_reported(body: str) -> None:
    assert problems(region(body)) == ()


def test_a_region_that_is_empty_in_the_ptx_needs_no_machine_code() -> None:
    assert [one.region for one in problems(region(""), unneeded)] == ["work"]


@pytest.mark.parametrize(
    "body",
    [
        region(FMAS + "    //kscope pin work - - with %r1\n"),
        region("    bar.sync 0;\n"),
        region("    cp.async.wait_all;\n"),
        region("    st.global.f32 [%rd1+8], %f1;\n"),
        region(FMAS + "    ld.global.f32 %f2, [%rd1+16];\n"),
        region(region("    bar.sync 0;\n", "inner"), "outer"),
        region("") + region("    bar.sync 0;\n"),
        "    //kscope instant tick - - with\n",
        "    //kscope enter work - - auto\n    //kscope exit work - - auto\n",
    ],
    ids=["pinned", "barrier", "wait", "store", "load", "regions", "elsewhere it has work", "instant", "selected"],
)
def test_regions_with_work_are_neither_reported_nor_disassembled(body: str) -> None:
    assert problems(body, unneeded) == ()


def test_without_a_disassembler_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(tool: str) -> NoReturn:
        raise MissingError(f"{tool} is not installed")

    monkeypatch.setattr(tools, "find", missing)
    assert problems(loop(region(MOVED))) == ()
    assert problems(loop(region(MOVED)), lambda text: None) == ()


def test_large_cubins_are_not_disassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_regions, "MAX_CUBIN", 16)
    monkeypatch.setattr(tools, "disassembly", partial(pytest.fail, "disassembled"))
    assert problems(loop(region(MOVED))) == ()
