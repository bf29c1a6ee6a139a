"""The kernels of the CuPy examples compile for every architecture, with their regions, without a GPU."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from kscope.instrument.recording import Recording

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.filterwarnings("ignore:(?s)kscope.*bytes of registers spill:UserWarning")  # with the newest NVRTC
@pytest.mark.parametrize("arch", ["80", "90", "100"])
@pytest.mark.parametrize("name", ["softmax", "gemm", "pipeline"])
def test_a_kernel_of_the_examples_compiles(frontend, gpu, name, arch, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    kernel = getattr(import_module(f"cupy_{name}"), name)
    gpu.arch = arch
    plain = gpu.compile(kernel.code, kernel.options)
    frontend.enable(Recording())
    prepared = gpu.compile(kernel.code, kernel.options)
    assert b"kscope_ctl" not in plain
    assert b"kscope_ctl" in prepared
