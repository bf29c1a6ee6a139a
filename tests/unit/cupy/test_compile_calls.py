"""Programs that use NVRTC and the driver themselves: the results of the calls in each state."""

from __future__ import annotations

from typing import Any

import pytest
from contract.cuda_programs import SOURCE

nvrtc: Any = pytest.importorskip("cuda.bindings.nvrtc")

import kscope  # noqa: E402  # after the check that it is there
import kscope_cuda  # noqa: E402
from kscope.instrument import registry  # noqa: E402


def compile(source: str, *options: str) -> bytes:
    """PTX, as a program gets it from NVRTC."""
    given = [option.encode() for option in (*options, "-std=c++17", "-arch=compute_90")]
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"mine.cu", 0, [], [])
    (result,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
    assert int(result) == 0
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytearray(size)
    nvrtc.nvrtcGetPTX(program, text)
    return bytes(text)


def test_plain_compile_options_change_nothing() -> None:
    text = compile(SOURCE, *kscope_cuda.compile_options())
    assert kscope_cuda.lower(text, "sm_90") == text.rstrip(b"\0")
    assert b"kscope" not in text


def test_prepared_ptx_becomes_a_cubin_or_ptx_for_the_driver(gpu: Any) -> None:
    kscope.enable(records=16)
    try:
        text = compile(SOURCE, *kscope_cuda.compile_options())
        cubin, lowered = kscope_cuda.lower(text, "sm_90"), kscope_cuda.lower(text)
        assert cubin.startswith(b"\x7fELF") and b"kscope_ctl" in cubin
        assert b"kscope_ctl" in lowered and b"//kscope" not in lowered
        assert b'"mine.cu:' in cubin.replace(b"/", b'"')  # the location of a region
    finally:
        kscope.disable()
    assert kscope_cuda.lower(text, "sm_90") == text.rstrip(b"\0")  # marks are comments


def test_a_loaded_module_is_reported(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    monkeypatch.setattr(gpu.backend, "module_loaded", loaded.append)
    kscope_cuda.loaded(77)
    assert loaded == [77]
    assert "cuda" in registry.imported()
