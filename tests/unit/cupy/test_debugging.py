"""Kernels with regions that are compiled for a debugger are refused by their names, and plain ones are left alone."""

from __future__ import annotations

import cupy
import pytest

from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording

REFUSED = r"regions in kernel: compiled with -G \(--device-debug\), .*; leave -G out"


@pytest.mark.parametrize("option", ["-G", "--device-debug"])
def test_debug_builds_with_nvrtc_are_refused(frontend, gpu, source, option):
    frontend.enable(Recording())
    with pytest.raises(UnsupportedError, match=REFUSED):
        gpu.compile(source(), (option,))


@pytest.mark.skipif(cupy.cuda.get_nvcc_path() is None, reason="there is no nvcc")
def test_debug_builds_with_nvcc_are_refused(frontend, gpu, source):
    frontend.enable(Recording())
    with pytest.raises(UnsupportedError, match=REFUSED):
        gpu.compile(source(), ("-G",), backend="nvcc")


def test_debug_builds_without_regions_are_unchanged(frontend, gpu):
    bare = 'extern "C" __global__ void kernel(int* out) { out[0] = 1; }'
    never = gpu.compile(bare, ("-G",))
    frontend.enable(Recording())
    assert gpu.compile(bare, ("-G",)) == never
