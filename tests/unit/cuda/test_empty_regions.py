"""Regions without an instruction in code that nvcc built: a problem of the sessions that record it."""

from __future__ import annotations

import pytest
from nvcc import IN_PLACE, compiled, kernel, needs_nvcc

from kscope.errors import MissingError
from kscope.lowering import empty_regions
from kscope.machine_code import fatbin, tools
from kscope_cuda.load import Library

BODY = """
{ KSCOPE_REGION("empty"); }
{ KSCOPE_REGION("store"); out[1] = n; }
float f = out[2];
for (int i = 0; i < n; i++) {
  float g;
  { KSCOPE_REGION("moved"); g = f * f + 1; }
  out[i] = g;
}
{ KSCOPE_REGION("barrier"); __syncthreads(); }
"""
TWO = "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]"


@pytest.fixture(autouse=True)
def _disassembler() -> None:
    try:
        tools.find("nvdisasm")
    except MissingError:
        pytest.skip("no nvdisasm")


@needs_nvcc
@pytest.mark.parametrize("options", [(), TWO], ids=["one architecture", "two"])
def test_regions_without_an_instruction_are_named_with_their_line(options: tuple[str, ...]) -> None:
    library = Library.image(compiled(kernel(BODY), IN_PLACE, *options, to="fatbin"))
    assert [(one.kind, one.kernel, one.region) for one in library.problems] == [
        ("empty", "k", "empty"),
        ("empty", "k", "moved"),
    ]
    assert "kernel k: region 'empty' (unit.cu:6) has no instruction" in library.problems[0].text
    assert "KSCOPE_PIN() keeps the computation of a value inside" in library.problems[0].text


@needs_nvcc
def test_a_region_that_has_work_on_one_architecture_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_regions = empty_regions._sorted
    results = iter([({"moved"}, {"empty"}), ({"moved", "empty"}, set())])
    monkeypatch.setattr(empty_regions, "_sorted", lambda *arguments: (sorted_regions(*arguments), next(results))[1])
    library = Library.image(compiled(kernel(BODY), IN_PLACE, *TWO, to="fatbin"))
    assert [one.region for one in library.problems] == ["moved"]


@needs_nvcc
def test_kernels_are_known_by_their_symbols() -> None:
    body = 'KSCOPE_KERNEL(); KSCOPE_REGION("of each");'
    templates = (
        f"namespace n {{ template <class T> __global__ void each(T* out) {{ {body} }} }}\n"
        "template __global__ void n::each<float>(float*); template __global__ void n::each<int>(int*);"
    )
    library = Library.image(compiled(kernel(BODY, before=templates), IN_PLACE, to="cubin"))
    found = {(one.kernel, one.region) for one in library.problems}
    assert found == {
        ("k", "empty"), ("k", "moved"), ("n::each<T = float>", "of each"), ("n::each<T = int>", "of each")
    }  # fmt: skip


@needs_nvcc
def test_binding_disassembles_nothing_and_large_code_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = compiled(kernel(BODY), IN_PLACE, to="cubin")
    assert list(fatbin.cubins(cubin)) == [cubin]
    monkeypatch.setattr(empty_regions, "MAX_CUBIN", 16)
    monkeypatch.setattr(tools, "disassembly", pytest.fail)
    assert Library.image(cubin).problems == ()
