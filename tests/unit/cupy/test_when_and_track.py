"""Predicates and tracks of regions in cupyx.jit kernels, and in CUDA C++ that NVRTC compiles."""

from __future__ import annotations

import pytest

import kscope
from kscope.capture import layout
from kscope.errors import UsageError
from kscope.instrument.recording import Recording
from kscope.marks import grammar
from kscope.marks.names import split

from .test_jit import FLOAT, INT, OUT, compile, translate

LOAD = kscope.scope("load", track="loads")
DEBUG = False


def conditional(out, n):
    for i in range(n):
        with kscope.region("step", value=i, when=i % 2 == 0, track="even"):
            out[i] = i
        with LOAD(when=n):
            out[i] = i + 1
        with kscope.region("debug", when=DEBUG):
            out[i] = i + 2
        kscope.counter("depth", i, when=i > 2, track="queue")
    LOAD.enter(when=n > 1)
    out[0] = 1
    LOAD.exit()
    kscope.instant("done", when=n > 3)


@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_a_mark_carries_its_predicate_and_its_track(gpu, frontend, arch):
    gpu.arch = arch
    frontend.enable(Recording())
    assert layout.META_SYMBOL.encode() in compile(gpu, conditional, OUT, INT)
    found = [grammar.parse(line) for line in gpu.compiled[-1].replace('"', "\n").splitlines()]
    marks = [(m.act, *split(m.name), m.operand, m.when) for m in found if m is not None and m.act != "exit"]
    assert marks == [
        ("enter", "step", "even", "%0", "%1"), ("enter", "load", "loads", None, "%0"),
        ("counter", "depth", "queue", "%0", "%1"), ("enter", "load", "loads", None, "%0"),
        ("instant", "done", None, None, "%0"),
    ]  # fmt: skip


def wrong(out, x):
    with kscope.region("step", when=x):
        out[0] = 1


def test_a_float_predicate_is_refused_in_cupyx_jit(frontend):
    frontend.enable(Recording())
    with pytest.raises(UsageError, match="when= of kscope region"):
        translate(wrong, OUT, FLOAT)


SOURCE = r"""
#include <kscope.cuh>
extern "C" __global__ void scale(int* out, int n) {
    KSCOPE_KERNEL();
    for (int k = 0; k < n; k++) {
        KSCOPE_REGION_IF("step" KSCOPE_TRACK("even"), k % 2 == 0);
        out[k] = k;
        KSCOPE_INSTANT_V_IF("point", k, out[k] > 3, kscope::Lane0Warp0);
    }
}
"""


@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_nvrtc_compiles_both(gpu, frontend, arch):
    gpu.arch = arch
    frontend.enable(Recording())
    assert b"step\\u001feven" in gpu.compile(SOURCE, ("-I" + kscope.cuda_include(),))


def lonely(out, n):
    if n == 3:
        with kscope.region("some", strategy=kscope.Elected(any_lane=True)):
            out[0] = 1


@pytest.mark.parametrize("arch", ["80", "90", "100"])
def test_the_first_lane_that_gets_there_records(gpu, frontend, arch):
    gpu.arch = arch
    frontend.enable(Recording())
    assert layout.META_SYMBOL.encode() in compile(gpu, lonely, OUT, INT)
    (found,) = {
        m.strategy for m in map(grammar.parse, gpu.compiled[-1].replace('"', "\n").splitlines()) if m is not None
    }
    assert found == "elected-any"
