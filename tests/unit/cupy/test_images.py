"""The machine code of marked kernels is kept for samples of stalls, wherever CuPy has it from."""

from __future__ import annotations

from pathlib import Path

import pytest
import synth
from cupy.cuda import compiler

import kscope
from kscope.instrument import loaded_code
from kscope.instrument.recording import Recording
from kscope_cuda.cupy import load

INCLUDE = ("-I" + kscope.cuda_include(),)


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_code, "_images", {})


@pytest.mark.parametrize("names", [(), ("kernel<int>",)])
def test_code_that_is_compiled_or_found_on_disk_is_kept(frontend, gpu, source, names):
    gpu.backend.metas = (synth.module(),)
    text = source().replace('extern "C"', "template <class T>") if names else source()
    original = compiler.function
    frontend.enable(Recording())
    for _ in range(2):
        code = gpu.compile(text, INCLUDE, name_expressions=names or None)
        assert list(loaded_code.kept_cubins()) == [code] and b"kscope_ctl" in code
        loaded_code._images.clear()
    assert len(gpu.compiled) == 1 and compiler.function is original


def test_plain_code_is_not_kept(frontend, gpu, source):
    frontend.enable(Recording())
    gpu.compile('extern "C" __global__ void plain() {}')
    frontend.disable()
    gpu.compile(source(), INCLUDE)
    assert not loaded_code._images


def test_the_file_of_a_module_is_kept(frontend, gpu, monkeypatch, tmp_path: Path):
    gpu.backend.metas = (synth.module(),)
    monkeypatch.setattr(load, "describe_file", lambda path: ())
    frontend.enable(Recording())
    file = tmp_path / "kernel.cubin"
    file.write_bytes(b"\x7fELF" + bytes(14) + (190).to_bytes(2, "little"))
    monkeypatch.setattr(frontend._loader, "_state", "recording")

    class Module:
        ptr = 1

    frontend._loader._module(lambda *args: Module(), (None, str(file), ()))
    assert list(loaded_code.kept_cubins()) == [file.read_bytes()]
