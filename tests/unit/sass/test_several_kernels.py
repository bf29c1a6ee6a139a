"""Modules of several kernels: those with marks record, and the others stay as they are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from sassvm.launching import Case, judged

from kscope import ptx
from kscope.errors import UnsupportedError
from kscope.machine_code import instruction_regions
from kscope.sass.cubin.instructions import Function
from kscope.sass.placing import labels
from kscope.sass.recording.kernel import Recorded, record_kernel

from .kernels import EACH, HEAD, assembled, functions, needs_tools
from .test_recording import KERNEL
from .test_runs import LEAVING, TURNS

pytestmark = needs_tools
HELPER = """.func (.param .b32 out) helper(.param .b32 in)
{
    .reg .b32 %r<4>; ld.param.b32 %r1, [in]; mul.lo.s32 %r2, %r1, %r1; st.param.b32 [out], %r2; ret;
}
"""
UNMARKED = """.visible .entry unmarked(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<4>; .reg .b64 %d<4>; ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n];
    { .param .b32 in; .param .b32 out; st.param.b32 [in], %r1; call (out), helper, (in); ld.param.b32 %r2, [out]; }
    st.global.u32 [%d1], %r2; ret;
}
"""
START = f"{HEAD}{ptx.control_symbol()}"
MODULE = START + HELPER + TURNS.removeprefix(START) + UNMARKED + LEAVING.removeprefix(START)
KERNELS = {"turns": (TURNS, KERNEL, 3), "leaving": (LEAVING, replace(KERNEL, id=("5", "6"), log2_records=5), 5)}


@cache
def made(tool: str, moved: bool = False) -> dict[str, Recorded]:
    """The module with one kernel that records, and with both."""
    found, cubin = dict[str, Recorded](), None

    def assemble(text: str, table: bool) -> bytes:
        return assembled(text, tool, ("-lineinfo",) if table else ())

    for name, (_, kernel, _) in KERNELS.items():
        found[name] = record_kernel(MODULE, kernel, assemble, name, cubin, moved=moved)
        cubin = found[name].data
    return found


def by_name(data: bytes) -> dict[str, Function]:
    return {one.name: one for one in functions(data)}


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("name", KERNELS)
def test_each_kernel_with_marks_records(tool: str, name: str) -> None:
    text, kernel, number = KERNELS[name]
    found = made(tool)[name]
    last = by_name(made(tool)["leaving"].data)[name]
    assert judged(Case(text, last, kernel, number, layouts=found.layouts, shared=frozenset(found.shared))).slabs


@pytest.mark.parametrize("tool", EACH)
def test_functions_without_marks_stay_as_they_are(tool: str) -> None:
    before, after = by_name(assembled(MODULE, tool, ())), by_name(made(tool)["leaving"].data)
    assert before.keys() == after.keys() and {"unmarked", "turns", "leaving"} <= before.keys()
    for name, one in before.items():
        assert ([i.word for i in one.instructions] == [i.word for i in after[name].instructions]) == (
            name not in KERNELS
        )


@pytest.mark.parametrize("tool", EACH)
def test_the_regions_of_each_kernel_are_kept_in_the_cubin(tool: str) -> None:
    data = made(tool)["leaving"].data
    for name, region in (("turns", "last"), ("leaving", "all")):
        stacks = {stack for _, stack in instruction_regions.segments(data, name)}
        assert (region,) in stacks
    assert instruction_regions.segments(data, "unmarked") == []


def test_a_kernel_that_the_module_has_not_is_named() -> None:
    with pytest.raises(UnsupportedError, match="kernels turns, unmarked, leaving; expected a kernel other"):
        labels.labeled(MODULE, "other")
    with pytest.raises(UnsupportedError, match="expected one kernel with marks"):
        labels.labeled(MODULE)
