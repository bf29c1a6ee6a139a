"""Predicates and tracks of regions in Triton and Gluon kernels."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import kscope
from kscope.errors import UsageError
from kscope.marks import grammar
from kscope.marks.names import split, work_of

LOAD = kscope.scope("load", track="loads")


@triton.jit
def conditional(out, n, x, BLOCK: tl.constexpr, DEBUG: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for i in range(n):
        with kscope.region("step", value=i, when=i % 2 == 0, track="even"):
            tl.store(out + at, at + i)
        with LOAD(when=n):
            tl.store(out + at, at + i)
        with kscope.region("wide", when=x):
            tl.store(out + at, at)
        with kscope.region("debug", when=DEBUG):
            tl.store(out + at, at)
        kscope.counter("depth", i, when=i > 2, track="queue")
    LOAD.enter(when=n > 1)
    tl.store(out + at, at)
    LOAD.exit()
    kscope.instant("done", when=n > 3)


@gluon.jit
def conditional_in_gluon(out, n, x, BLOCK: gl.constexpr, DEBUG: gl.constexpr):
    at = gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [32], [4], [0]))
    for i in range(n):
        with kscope.region("step", value=i, when=i % 2 == 0, track="even"):
            gl.store(out + at, at + i)
        with LOAD(when=n):
            gl.store(out + at, at + i)
        with kscope.region("wide", when=x):
            gl.store(out + at, at)
        with kscope.region("debug", when=DEBUG):
            gl.store(out + at, at)
        kscope.counter("depth", i, when=i > 2, track="queue")
    LOAD.enter(when=n > 1)
    gl.store(out + at, at)
    LOAD.exit()
    kscope.instant("done", when=n > 3)


def placed(compiler):
    """The last kernel's marks: act, name, track, whether there is a value, and a predicate."""
    found = [grammar.parse(line) for line in compiler.texts[-1].splitlines()]
    return [(m.act, *split(m.name), m.operand is not None, m.when is not None) for m in found if m is not None]


EXPECTED = [
    ("enter", "step", "even", True, True), ("exit", "step", "even", False, False),
    ("enter", "load", "loads", False, True), ("exit", "load", "loads", False, False),
    ("enter", "wide", None, False, True), ("exit", "wide", None, False, False),
    ("counter", "depth", "queue", True, True),
    ("enter", "load", "loads", False, True), ("exit", "load", "loads", False, False),
    ("instant", "done", None, False, True),
]  # fmt: skip
TYPES = {"out": "*i32", "n": "i32", "x": "i64", "BLOCK": 128}


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("kernel", [conditional, conditional_in_gluon], ids=["triton", "gluon"])
def test_a_mark_carries_its_predicate_and_its_track(compiler, kernel, arch):
    made = compiler(kernel, arch, DEBUG=False, **TYPES)
    assert placed(compiler) == EXPECTED
    assert made.asm["ptx"].count("setp.ne.u32 ks_w") == 6
    assert made.asm["cubin"]


def test_a_constant_true_predicate_adds_no_predicate(compiler):
    compiler(conditional, DEBUG=True, **TYPES)
    assert ("enter", "debug", None, False, False) in placed(compiler)


@triton.jit
def silent(out, DEBUG: tl.constexpr):
    with kscope.region("debug", when=DEBUG):
        tl.store(out, 1)
    kscope.instant("debug too", when=DEBUG)


@triton.jit
def bare(out, DEBUG: tl.constexpr):
    tl.store(out, 1)


def test_a_kernel_whose_every_predicate_is_false_is_the_plain_kernel(compiler):
    texts = [compiler(kernel, out="*i32", DEBUG=False).asm["ptx"] for kernel in (silent, bare)]
    one, other = (re.sub(r"//.*|\.loc.*|\.file.*", "", text.partition(".section")[0]).split() for text in texts)
    assert [word.replace("silent", "bare") for word in one] == other
    assert "ks_" not in texts[0]


@triton.jit
def wrong(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    with kscope.region("step", when=at > n):
        tl.store(out + at, at)


def test_tensor_predicates_are_refused(compiler):
    with pytest.raises(Exception, match=r"when= of kscope region 'step' is a tensor of <\['128'\], int1>") as raised:
        compiler(wrong, out="*i32", n="i32", BLOCK=128)
    assert isinstance(raised.value.__cause__ or raised.value, (UsageError, triton.CompilationError))


@triton.jit
def elected(out, n):
    with kscope.region("some", strategy=kscope.Elected(any_lane=True)):
        tl.store(out, n)


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_the_first_lane_that_gets_there_records(compiler, arch):
    text = compiler(elected, arch, out="*i32", n="i32").asm["ptx"]
    assert text.count("%lanemask_lt") == 1
    assert text.count("KS_LATE:") == 1


@triton.jit
def silent_call(out, DEBUG: tl.constexpr):
    LOAD.enter(when=DEBUG)
    tl.store(out, 1)
    LOAD.exit()


def test_a_never_recording_explicit_enter_removes_its_exit(compiler):
    assert "ks_" not in compiler(silent_call, out="*i32", DEBUG=False).asm["ptx"]
    assert "ks_w0" not in compiler(silent_call, out="*i32", DEBUG=True).asm["ptx"]


@triton.jit
def working(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    with kscope.region("fixed", bytes=BLOCK * 4, flops=2 * BLOCK):
        tl.store(out + at, at)
    with kscope.region("varying", bytes=n):
        tl.store(out + at, at + n, mask=at < n)


def test_a_mark_carries_its_work_and_a_run_time_amount_is_its_value(compiler):
    compiler(working, out="*i32", n="i32", BLOCK=128)
    found = [grammar.parse(line) for line in compiler.texts[-1].splitlines()]
    works = [(split(m.name)[0], work_of(m.name), m.operand is not None) for m in found if m]
    assert works == [
        ("fixed", "bytes=512,flops=256", False), ("fixed", "bytes=512,flops=256", False),
        ("varying", "bytes=value", True), ("varying", "bytes=value", False),
    ]  # fmt: skip
