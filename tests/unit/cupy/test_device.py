"""Device helpers (kscope.clock() etc.) in cupyx.jit kernels; in CUDA C++ they are functions of the header."""

from __future__ import annotations

import pytest

import kscope
from kscope.capture import layout
from kscope.errors import UsageError
from kscope.instrument.recording import Recording
from kscope_cuda.cupy import teach

from .test_jit import INT, OUT, compile, translate


def reads_helpers(out, n):
    began = kscope.clock64()
    for i in range(n):
        out[i] = i
    out[0] = kscope.clock64() - began
    out[1] = kscope.clock()
    out[2] = kscope.globaltimer()
    out[3] = kscope.smid() + kscope.warp_id() + kscope.lane_id() + kscope.block_id()


def test_teach_makes_clock_helpers_available_in_plain_kernels(gpu, frontend):
    teach()
    cubin = compile(gpu, reads_helpers, OUT, INT)
    assert layout.META_SYMBOL.encode() not in cubin
    assert all(f"%%{name}" in gpu.compiled[-1] for name in ("clock64;", "clock;", "globaltimer;", "smid;", "laneid;"))


def test_clock_helpers_before_teach_are_refused_with_the_remedy(gpu, frontend):
    with pytest.raises(UsageError, match=r"kscope.clock64\(\) in a cupyx.jit kernel.*teach\(\)"):
        translate(reads_helpers, OUT, INT)


def measures(out, n):
    began = kscope.clock()
    with kscope.region("step", value=kscope.block_id()):
        out[0] = n
    kscope.counter("cycles", kscope.clock() - began)


@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_device_helpers_may_be_mark_values(gpu, frontend, arch):
    gpu.arch = arch
    frontend.enable(Recording())
    assert layout.META_SYMBOL.encode() in compile(gpu, measures, OUT, INT)


SOURCE = r"""
#include <kscope.cuh>
extern "C" __global__ void scale(long long* out, int n) {
    long long began = kscope::clock64();
    out[n] = kscope::clock64() - began + kscope::warp_id();
}
"""


@pytest.mark.parametrize("recording", [None, Recording()])
def test_nvrtc_has_the_functions_of_the_header(gpu, frontend, recording):
    if recording is not None:
        frontend.enable(recording)
    assert gpu.compile(SOURCE, ("-I" + kscope.cuda_include(),))
