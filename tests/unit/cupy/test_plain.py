"""Plain kernels: a kernel with regions compiles to the same bytes as one without kscope."""

from __future__ import annotations

import re

import cupy
import pytest
from contract.cuda_programs import SOURCE
from cupy.cuda import compiler

import kscope
from kscope.instrument.recording import Recording

INCLUDE = ("-I" + kscope.cuda_include(),)


def without_kscope(source: str) -> str:
    """The same source, never annotated."""
    return re.sub(r'KSCOPE_\w+\((?:"(?:[^"\\]|\\.)*"|[^";])*\);|#include <kscope.cuh>', "", source)


def test_the_comparison_strips_every_kscope_call():
    assert "kscope" not in without_kscope(SOURCE).lower()
    assert "out[0] = k;" in without_kscope(SOURCE)


def enabled_and_disabled(frontend):
    frontend.enable(Recording())
    frontend.disable()


BEFORE = {
    "never enabled": lambda frontend: None,
    "enabled and disabled": enabled_and_disabled,
    "taught": lambda frontend: frontend.teach(),
}


@pytest.mark.parametrize("arch", ["80", "90", "100"])
@pytest.mark.parametrize("before", BEFORE)
def test_a_plain_module_is_byte_identical(frontend, gpu, before, arch):
    gpu.arch = arch
    never = gpu.compile(without_kscope(SOURCE))
    BEFORE[before](frontend)
    assert gpu.compile(SOURCE, INCLUDE) == never
    assert len(gpu.compiled) == 2


@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_plain_ptx_is_byte_identical(frontend, gpu, monkeypatch, arch):
    monkeypatch.setattr(compiler, "_use_ptx", True)
    gpu.arch = arch
    assert gpu.compile(SOURCE, INCLUDE) == gpu.compile(without_kscope(SOURCE))


@pytest.mark.skipif(cupy.cuda.get_nvcc_path() is None, reason="there is no nvcc")
def test_a_plain_module_of_nvcc_is_byte_identical(frontend, gpu):
    never = gpu.compile(without_kscope(SOURCE), backend="nvcc")
    enabled_and_disabled(frontend)
    assert gpu.compile(SOURCE, INCLUDE, backend="nvcc") == never


def test_teach_adds_the_header_to_cupys_include_path(frontend, gpu):
    with pytest.raises(compiler.CompileException, match="cannot open source file"):
        gpu.compile(SOURCE)
    frontend.teach()
    assert gpu.compile(SOURCE) == gpu.compile(without_kscope(SOURCE))
    frontend.enable(Recording())
    assert b"kscope_ctl" in gpu.compile(SOURCE)
    frontend.disable()
    assert b"kscope_ctl" not in gpu.compile(SOURCE)


def test_kscope_0_in_the_source_overrides_enable(frontend, gpu):
    frontend.enable(Recording())
    assert b"kscope_ctl" not in gpu.compile(SOURCE, ("-DKSCOPE=0",))
