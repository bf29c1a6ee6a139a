"""The machine code of CUDA C++ with regions is kept for samples of stalls, when it is bound or compiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvcc import IN_PLACE, compiled, kernel, needs_nvcc

from kscope.capture.model import KernelMeta, ModuleMeta
from kscope.instrument import loaded_code, registry
from kscope.instrument.recording import Recording
from kscope.lowering import empty_regions
from kscope.machine_code import fatbin
from kscope_cuda import Compilation, assembler
from kscope_cuda.frontend import CudaFrontend
from kscope_cuda.load import Library

BODY = '{ KSCOPE_REGION("store"); out[1] = n; }'


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_code, "_images", {})


@needs_nvcc
def test_code_in_place_is_kept_without_a_copy_where_its_library_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = compiled(kernel(BODY), IN_PLACE, to="fatbin")
    library = Library.image(data)
    (kept,) = loaded_code.kept_cubins()
    assert kept is library.cubins[0]
    loaded_code._images.clear()
    monkeypatch.setattr(empty_regions, "MAX_CUBIN", 1)
    assert Library.image(data).cubins == ()
    assert list(loaded_code.kept_cubins()) == [kept] and sum(one.size for one in loaded_code._images.values()) < len(
        kept
    )


@needs_nvcc
def test_a_module_that_the_program_loads_itself_is_kept_when_it_is_compiled() -> None:
    if assembler.assemble(".version 8.0\n.target sm_90\n.address_size 64\n", "sm_90") is None:
        pytest.skip("there is no assembler")
    ptx = compiled(kernel(BODY), "-DKSCOPE_MARKS=1")
    Compilation(Recording()).lower(ptx)  # the driver assembles it
    assert not loaded_code._images
    code = Compilation(Recording()).lower(ptx, "sm_90")
    assert list(loaded_code.kept_cubins()) == [code]


@needs_nvcc
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_the_file_of_exported_libraries_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metas = (ModuleMeta("cute", (KernelMeta("exported", 1, 2),), ()),)
    monkeypatch.setitem(registry._backends, "cuda", SimpleNamespace(bind=lambda code, metas_in_file: metas))
    data = compiled(kernel(BODY), IN_PLACE, to="fatbin")
    numbers = ",".join(map(str, data))
    source = f"const unsigned char data[] = {{{numbers}}};\nlong long made_kscope_library() {{ return 112; }}"
    (tmp_path / "made.c").write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "made.c", "-o", "made.so"], cwd=tmp_path, check=True)
    assert CudaFrontend().bind(tmp_path / "made.so", None) == metas
    assert list(loaded_code._images) == [tmp_path / "made.so"]
    assert list(loaded_code.kept_cubins()) == list(fatbin.cubins(data))
