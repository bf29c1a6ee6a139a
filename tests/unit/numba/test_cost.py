"""A region costs the same in Numba as in CUDA C++: the same loop in both, as the assembler schedules it. The added
instructions and cycles are read from machine code (bench/scheduled.py)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from contract import numba_offline
from numba import float32, int32, void
from numba.cuda import jit
from nvcc import MARKS, PLAIN, compiled, needs_nvcc

import kscope
from kscope.errors import MissingError
from kscope.instrument.recording import Recording
from kscope.lowering import plan
from kscope.machine_code import tools

BENCH = Path(__file__).resolve().parents[3] / "bench"
FMAS, ALIKE = 32, 1.2
"""FMAS: multiply-adds of the loop. ALIKE: allowed ratio of a region's cost to its cost in CUDA C++."""
RECORDING = Recording(records=256)
FORMS = {
    "a with": ('with kscope.region("work"):', "", 'KSCOPE_REGION("work");'),
    "a value": ('with kscope.region("work", value=i):', "", 'KSCOPE_REGION_V("work", i);'),
    "a predicate": ('with kscope.region("work", when=i & int32(7)):', "", 'KSCOPE_REGION_IF("work", i & 7);'),
    "enter and exit": ("WORK.enter()", "WORK.exit()", 'KSCOPE_REGION("work");'),
    "enter with a value": ("WORK.enter(i)", "WORK.exit()", 'KSCOPE_REGION_V("work", i);'),
}  # fmt: skip
"""Code before and after the work in Numba, and before it in CUDA C++."""
COUNTERS = {32: "int", 64: "long long"}


def _missing() -> bool:
    try:
        return not tools.find("cuobjdump")
    except MissingError:
        return True


pytestmark = [needs_nvcc, pytest.mark.skipif(_missing(), reason="needs cuobjdump")]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark module with these loops."""
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("on_numba")


def in_numba(bench: Any, folder: Path, form: str, lto: bool, bits: int = 32, sourced: bool = True) -> Any:
    """The loop as Numba compiles it; form "": without a region."""
    before, behind, _ = FORMS.get(form, ("pass", "", ""))
    pad = " " * (12 if before.endswith(":") else 8)
    lines = [f"        {before}", *[f"{pad}x = fma(x)"] * FMAS, f"        {behind}", "        i = after(i)"]
    path = folder / "loop.py"
    path.write_text("\n".join([
        "def loop(out, n):", "    x = float32(0)", f"    i = int{bits}(0)", "    while i < n:", *lines,
        "    out[0] = x", "",
    ]))  # fmt: skip
    space = {name: getattr(bench, name) for name in ("fma", "after", "float32", "int32", "int64", "kscope")}
    space["WORK"] = kscope.scope("work")
    exec(compile(path.read_text(), str(path) if sourced else "<string>", "exec", dont_inherit=True), space)
    cubin = folder / "loop.cubin"
    with numba_offline.device():
        library = numba_offline.built(jit(space["loop"], lto=lto), void(float32[::1], int32), lto=lto)
        cubin.write_bytes(library.get_cubin(cc=numba_offline.CC).code)
    return loop_of(cubin)


@cache
def plain_in_numba(bench: Any, lto: bool) -> Any:
    """The loop without a region."""
    with tempfile.TemporaryDirectory() as folder:
        return in_numba(bench, Path(folder), "", lto)


@cache
def in_cuda(form: str, bits: int = 32) -> Any:
    """The loop as nvcc compiles it, with kscope's header."""
    text = compiled(f"""#include <kscope.cuh>
extern "C" __global__ void loop(float* out, int n) {{
  KSCOPE_KERNEL();
  float x = 0;
  _Pragma("unroll 1") for ({COUNTERS[bits]} i = 0; i < n; i++) {{
    {FORMS[form][2] if form else ""}
#pragma unroll
    for (int k = 0; k < {FMAS}; k++) asm volatile("fma.rn.f32 %0, %0, 0fBA83126F, %0;" : "+f"(x));
  }}
  out[0] = x;
}}
""", MARKS if form else PLAIN).decode()  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "loop.ptx"), Path(folder, "loop.cubin")
        source.write_text(plan.lower(text, RECORDING, frontend="cuda").text)
        subprocess.run(["ptxas", "-arch=sm_90", str(source), "-o", str(cubin)], check=True)
        return loop_of(cubin)


def loop_of(cubin: Path) -> Any:
    (found,) = import_module("scheduled").loops(cubin, {"FFMA": FMAS}).values()
    return found


def added(marked: Any, plain: Any) -> tuple[int, int]:
    """Instructions and cycles."""
    return len(marked.instructions) - len(plain.instructions), marked.cycles - plain.cycles


def check(here: tuple[int, int], there: tuple[int, int]) -> None:
    """A region's cost in Numba, compared with CUDA C++."""
    assert 5 < here[0] <= ALIKE * there[0]
    assert 5 < here[1] <= ALIKE * there[1]


def _forms() -> Iterator[Any]:
    """Each with and without link-time optimization; the first two always, of the others one except in thorough runs."""
    for number, form in enumerate(FORMS):
        for lto in (True, False):
            often = number < 2 or lto == (number % 2 == 0)
            made = f"{form}-{'lto' if lto else 'apart'}"
            yield pytest.param(form, lto, id=made, marks=() if often else (pytest.mark.slow,))


@pytest.fixture
def recording(frontend: Any) -> None:
    frontend.enable(RECORDING)


@pytest.mark.usefixtures("recording")
@pytest.mark.parametrize(("form", "lto"), list(_forms()))
def test_regions_cost_the_same_as_in_cuda(bench: Any, tmp_path: Path, form: str, lto: bool) -> None:
    plain = plain_in_numba(bench, lto)
    assert plain.cycles == in_cuda("").cycles, "the loops without a region are to be alike"
    check(added(in_numba(bench, tmp_path, form, lto), plain), added(in_cuda(form), in_cuda("")))


@pytest.mark.usefixtures("recording")
def test_marks_without_source_cost_the_same(bench: Any, tmp_path: Path) -> None:
    for form in ("enter and exit", "enter with a value"):
        found = [in_numba(bench, tmp_path, form, lto=True, sourced=sourced) for sourced in (True, False)]
        assert found[0].cycles == found[1].cycles


@pytest.mark.usefixtures("recording")
def test_64_bit_counters_cost_the_same_as_in_cuda(bench: Any, tmp_path: Path) -> None:
    """Comparing a 64-bit counter takes longer, and code after a clock read cannot be hidden before it."""
    found = [in_numba(bench, tmp_path, form, lto=True, bits=64) for form in ("a with", "")]
    check(added(*found), added(in_cuda("a with", 64), in_cuda("", 64)))


@pytest.mark.slow
def test_measured_loops_have_the_same_plan(bench: Any, frontend: Any, tmp_path: Path) -> None:
    """The loops of bench/on_numba.py, so that it measures the same work in both languages."""
    frontend.enable(RECORDING)
    found = {way.name: bench.planned(tmp_path, way) for way in bench.WAYS if way.bits == 32}
    assert len({tuple((len(one.instructions), one.cycles) for one in code.values()) for code in found.values()}) == 1
