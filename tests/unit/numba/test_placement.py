"""placement="schedule": the cubin that Numba loads is the plain kernel's, and records."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from contract import numba_offline
from numba import cuda
from unit.sass.kernels import needs_tools
from unit.sass.loaded import meta, stores

import kscope
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope_numba import linking

pytestmark = [needs_tools, pytest.mark.skipif(linking.matching_ptxas() is None, reason="needs ptxas")]
SIGNATURE = "void(float32[::1], float32[::1], int32)"


@cuda.jit
def copies(a, out, n):
    at = cuda.grid(1)
    with kscope.region("load"):
        x = a[at]
    with kscope.region("store", value=n):
        out[at] = x * 2


def built(frontend: Any, lto: bool = True, code: Any = copies, **options: Any) -> tuple[Any, bytes, list[str]]:
    """The library of a kernel, what Numba loads of it, and the problems of placement that were reported."""
    frontend.enable(Recording(placement="schedule", **options))
    with warnings.catch_warnings(record=True) as found, numba_offline.device():
        warnings.simplefilter("always")
        library = numba_offline.built(code, SIGNATURE, lto=lto)
        cubin = bytes(library.get_cubin(cc=numba_offline.CC).code)
    said = [str(one.message) for one in found]
    return library, cubin, [one for one in said if "is recorded with placement='fence'" in one]


def test_the_cubin_records_in_its_machine_code(frontend: Any) -> None:
    library, cubin, said = built(frontend)
    assert (stores(cubin), said) == (2, [])
    about = meta(cubin)
    assert (about.placement, [one.name for one in about.kernels]) == ("schedule", ["copies"])
    assert [(one.name, one.type) for one in about.regions] == [("load", None), ("store", "i32")]
    assert all("test_placement.py:" in (one.where or "") for one in about.regions)
    assert "//kscope enter load" in library.get_lto_ptx(
        cc=numba_offline.CC
    )  # the text with marks is what was assembled


@pytest.mark.parametrize("options", [{"max_registers": 32}, {"lineinfo": True}])
def test_numbas_options_are_kept(frontend: Any, options: dict[str, Any]) -> None:
    frontend.enable(Recording(placement="schedule"))
    library = numba_offline.built(copies, SIGNATURE, lto=True, **options)
    cubin = bytes(library.get_cubin(cc=numba_offline.CC).code)
    assert stores(cubin) == 2
    assert (b".nv_debug_line_sass" in cubin) == ("lineinfo" in options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lto": False}, "kscope does not run the assembler for this kernel"),
        ({"fill": "stop"}, "fill='stop' is not supported"),
    ],
)
def test_what_cannot_be_recorded_there_is_recorded_in_its_text_and_reported(
    frontend: Any, options: dict[str, Any], why: str
) -> None:
    _, cubin, (problem,) = built(frontend, **options)
    assert f"kernel copies is recorded with placement='fence', because with placement='schedule' {why}" in problem
    about = meta(cubin)
    assert (about.placement, [one.kind for one in about.problems]) == ("fence", ["placement"])


def test_without_ptxas_the_linkers_code_is_not_changed(frontend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "matching_ptxas", lambda: None)
    for cache in (linking.assemble_program, linking.usage):
        cache.cache_clear()
    _, cubin, (problem,) = built(frontend)
    for cache in (linking.assemble_program, linking.usage):
        cache.cache_clear()
    assert "no ptxas of CUDA" in problem and "install nvidia-cuda-nvcc" in problem
    assert meta(cubin).placement == "fence"


def test_a_dry_run_compares_the_cubin_that_records(frontend: Any, tmp_path: Path) -> None:
    with catalog.listing() as found:
        _, cubin, _ = built(frontend)
    (kernel,) = found
    assert kernel.build is not None
    plain, marked = (path.read_bytes() for path in kernel.build(tmp_path) or ())
    assert (stores(plain), marked) == (0, cubin)
