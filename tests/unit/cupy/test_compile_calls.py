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
    compilation = kscope_cuda.Compilation()
    text = compile(SOURCE, *compilation.options())
    assert compilation.lower(text, "sm_90") == text.rstrip(b"\0")
    assert b"kscope" not in text


def test_prepared_ptx_becomes_a_cubin_or_ptx_for_the_driver(gpu: Any) -> None:
    kscope.enable(records=16)
    try:
        compilation = kscope_cuda.Compilation()
        text = compile(SOURCE, *compilation.options())
        cubin, lowered = compilation.lower(text, "sm_90"), compilation.lower(text)
        assert cubin.startswith(b"\x7fELF") and b"kscope_ctl" in cubin
        assert b"kscope_ctl" in lowered and b"//kscope" not in lowered
        assert b'"mine.cu:' in cubin.replace(b"/", b'"')  # the location of a region
    finally:
        kscope.disable()
    assert kscope_cuda.Compilation().lower(text, "sm_90") == text.rstrip(b"\0")  # marks are comments


def test_a_compilation_keeps_its_recording_when_the_state_changes(gpu: Any) -> None:
    kscope.enable(records=16)
    try:
        prepared = kscope_cuda.Compilation()
        options, text = prepared.options(), compile(SOURCE, *prepared.options())
        expected = prepared.lower(text)
        kscope.enable(records=64)
        other = kscope_cuda.Compilation()
        assert other.options() != options and other.lower(text) != expected
        assert (prepared.options(), prepared.lower(text)) == (options, expected)
    finally:
        kscope.disable()
    assert (prepared.options(), prepared.lower(text)) == (options, expected)


def test_a_loaded_module_is_reported(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    monkeypatch.setattr(gpu.backend, "module_loaded", loaded.append)
    kscope_cuda.loaded(77)
    assert loaded == [77]
    assert "cuda" in registry.imported()
