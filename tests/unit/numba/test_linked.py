"""CUDA C++ linked into a kernel: recorded if it is inlined by the linker, otherwise refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract.numba_offline import built
from numba.cuda.cudadrv import nvrtc

import kscope
from kscope.errors import UnsupportedError

from .reading import ptx, regions

pytestmark = pytest.mark.usefixtures("nvrtc_alone")
Written = Callable[..., dict[str, Any]]
SIGNATURE = "void(float32[::1], int64)"
SOURCE = """
#include <kscope.cuh>
extern "C" __device__ int scaled(float* result, float x) {{
  KSCOPE_REGION("in c++");
  {body}
  *result = x * 2;
  return 0;
}}
"""
KERNEL = """
    scaled = cuda.declare_device("scaled", "float32(float32)")

    @cuda.jit
    def kernel(x, n):
        {before}
        x[n] = scaled(x[n])
"""


def linked(
    written: Written, tmp_path: Path, *, lto: bool, body: str = "", region: bool = True, name: str = "scaled.cu"
) -> Any:
    path = tmp_path / name
    path.write_text(SOURCE.format(body=body))
    space = written(KERNEL.format(before='kscope.instant("before")' if region else ""))
    return built(space["kernel"], SIGNATURE, lto=lto, link=[str(path)])


@pytest.mark.parametrize("region", [True, False])
def test_regions_in_linked_source_are_recorded_when_linking_inlines_it(
    enabled: Any, written: Written, tmp_path: Path, region: bool
) -> None:
    library = linked(written, tmp_path, lto=True, region=region)
    assert library.get_cubin(cc=(9, 0)).code
    assert regions(ptx(library)).keys() == {"in c++", *(["before"] if region else [])}
    assert b"in c++" in library.get_cubin(cc=(9, 0)).code


@pytest.mark.parametrize("region", [True, False])
def test_regions_from_a_user_header_are_recorded(
    enabled: Any, written: Written, tmp_path: Path, region: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.cuh").write_text(
        '#pragma once\n#include "mine.cuh"\n#include <kscope.cuh>\n#define TIMED KSCOPE_REGION'
    )
    path = tmp_path / "scaled.cu"
    path.write_text(SOURCE.format(body="").replace("<kscope.cuh>", '"mine.cuh"').replace("KSCOPE_REGION", "TIMED"))
    monkeypatch.setattr(nvrtc.config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", str(tmp_path))
    kernel = written(KERNEL.format(before='kscope.instant("before")' if region else ""))["kernel"]
    library = built(kernel, SIGNATURE, lto=True, link=[str(path)])
    assert regions(ptx(library)).keys() == {"in c++", *(["before"] if region else [])}
    assert b"in c++" in library.get_cubin(cc=(9, 0)).code


def test_linked_source_without_lto_is_refused_by_file_name(enabled: Any, written: Written, tmp_path: Path) -> None:
    library = linked(written, tmp_path, lto=False)
    with pytest.raises(
        UnsupportedError, match=r"kernel kernel links scaled.cu, which has regions and is compiled separately.*lto=True"
    ):
        library.get_cubin(cc=(9, 0))


def test_noinline_functions_under_lto_are_refused_by_name(enabled: Any, written: Written, tmp_path: Path) -> None:
    path = tmp_path / "scaled.cu"
    path.write_text(SOURCE.format(body="").replace("__device__ int", "__device__ __noinline__ int"))
    library = built(written(KERNEL.format(before=""))["kernel"], SIGNATURE, lto=True, link=[str(path)])
    with pytest.raises(UnsupportedError, match=r"regions in scaled: the function was compiled separately \(noinline"):
        library.get_cubin(cc=(9, 0))


@pytest.mark.parametrize("lto", [False, True])
def test_linked_code_without_regions_links_beside_a_marked_kernel(
    enabled: Any, written: Written, tmp_path: Path, lto: bool
) -> None:
    path = tmp_path / "scaled.cu"
    path.write_text(SOURCE.format(body="").replace('KSCOPE_REGION("in c++");', "").replace("#include <kscope.cuh>", ""))
    space = written(KERNEL.format(before='kscope.instant("before")'))
    library = built(space["kernel"], SIGNATURE, lto=lto, link=[str(path)])
    assert b"kscope_ctl" in library.get_cubin(cc=(9, 0)).code
    assert list(regions(ptx(library))) == ["before"]


def test_code_that_lto_cannot_optimize_is_linked_in_the_second_step(
    enabled: Any, written: Written, tmp_path: Path
) -> None:
    (tmp_path / "scaled.ptx").write_bytes(_compiled(tmp_path, regions=False))
    space = written(KERNEL.format(before='kscope.instant("before")'))
    library = built(space["kernel"], SIGNATURE, lto=True, link=[str(tmp_path / "scaled.ptx")])
    assert b"kscope_ctl" in library.get_cubin(cc=(9, 0)).code


def test_regions_in_code_that_lto_cannot_optimize_are_refused_by_name(
    enabled: Any, written: Written, tmp_path: Path
) -> None:
    (tmp_path / "scaled.ptx").write_bytes(_compiled(tmp_path, regions=True))
    space = written(KERNEL.format(before='kscope.instant("before")'))
    library = built(space["kernel"], SIGNATURE, lto=True, link=[str(tmp_path / "scaled.ptx")])
    with pytest.raises(UnsupportedError, match=r"kernel kernel links scaled\.ptx, which has regions"):
        library.get_cubin(cc=(9, 0))


def _compiled(tmp_path: Path, *, regions: bool) -> bytes:
    """The source as PTX, with the regions as marks or without."""
    text = SOURCE.format(body="")
    if not regions:
        text = text.replace('KSCOPE_REGION("in c++");', "").replace("#include <kscope.cuh>", "")
    code = nvrtc.compile(text, "scaled.cu", (9, 0))[0].code
    return code if isinstance(code, bytes) else str(code).encode()


@pytest.mark.parametrize("lto", [False, True])
def test_plain_linked_code_contains_no_kscope(
    taught: Any, written: Written, tmp_path: Path, lto: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc.config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", kscope.cuda_include())
    code = linked(written, tmp_path, lto=lto).get_cubin(cc=(9, 0)).code
    assert b"kscope" not in code.replace(b"kscope.cuh", b"")
