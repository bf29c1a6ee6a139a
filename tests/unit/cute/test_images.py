"""The machine code of kernels with marks is kept for samples of stalls: the cubin in CuTe's binary."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from cutlass._mlir import ir
from cutlass.cute.runtime import load_module

from kscope.instrument import loaded_code
from kscope.instrument.recording import Recording
from kscope.machine_code import elf, tools
from kscope_cute import assembler, plain_form

from .conftest import VERSION, Gpu, arguments, compile, source
from .test_caches import BODY, call, jit_cache


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_code, "_images", {})


def test_the_cubin_is_kept_where_functions_have_one_form(frontend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_form, "cuda_jit_executor", None)  # of an older version
    frontend.enable(Recording())
    gc.collect()  # those of earlier tests
    others = len(frontend._launches.forms._sources)
    made = compile(source(BODY).host, *arguments())
    assert list(loaded_code.kept_cubins()) == [made.cubin] and len(frontend._launches.forms._sources) == others


@pytest.mark.parametrize("placement", ["fence", "schedule"])
def test_the_cubin_of_a_compiled_function_is_kept(frontend: Any, placement: Any) -> None:
    frontend.enable(Recording(placement=placement))
    made = compile(source(BODY).host, *arguments())
    assert list(loaded_code.kept_cubins()) == [made.cubin]


def test_the_cubin_of_a_function_from_the_disk_is_kept(prepared: Any) -> None:
    if VERSION < (4, 8):
        pytest.skip("4.4 chooses the folder of its cache when it is imported")
    module = source(BODY)
    call(module)
    (compiled,) = loaded_code.kept_cubins()
    loaded_code._images.clear()
    jit_cache().clear()
    call(module)
    assert list(loaded_code.kept_cubins()) == [compiled] and b"kscope_ctl" in compiled


def test_the_file_of_exported_functions_is_kept(gpu: Gpu, prepared: Any, tmp_path: Path) -> None:
    made = compile(source(BODY).host, *arguments())
    made.compiled.export_to_c(str(tmp_path), "made", "made")
    loaded_code._images.clear()
    load_module(str(tmp_path / "made.o"))
    assert list(loaded_code._images) == [tmp_path / "made.o"]
    assert made.cubin in list(loaded_code.kept_cubins())


def test_plain_functions_are_not_kept(frontend: Any) -> None:
    module = source(BODY)
    compile(module.host, *arguments())
    frontend.enable(Recording())
    compile(source("x[thread] = 1.0").host, *arguments())
    assert not loaded_code._images


def test_a_kernel_s_symbol_is_in_its_metadata(prepared: Any) -> None:
    made = compile(source(BODY).host, *arguments())
    (symbol,) = tools.builds_in(made.cubin)
    assert symbol.startswith("kernel_cutlass_kernel_")
    assert symbol in [one.name for one in elf.read(made.cubin).symbols() if one.function]


def test_other_constants_of_a_program_are_no_binaries() -> None:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(
            "llvm.mlir.global internal constant @numbers_binary(dense<[1, 2]> : tensor<2xi32>) : !llvm.array<2 x i32>\n"
            "llvm.mlir.global external @elsewhere_binary() : i64\n"
            'llvm.mlir.global internal constant @kernels_binary("code")\n'
        )
        assert assembler.binaries(module) == [b"code"]
