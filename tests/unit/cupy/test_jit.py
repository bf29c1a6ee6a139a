"""cupyx.jit: the translation of `with`, pairing on every exit, and unchanged plain code."""

from __future__ import annotations

import re

import cupy
import numpy as np
import pytest
from cupy._core import core
from cupyx import jit
from cupyx.jit import _compile, _cuda_types

import kscope
from kscope.errors import PairingError, UsageError
from kscope.instrument.recording import Recording
from kscope.language.cuda_header import source_uses_header
from kscope.marks import grammar

OUT = _cuda_types.CArray(np.dtype(np.int32), 1, True, True)
DOUBLE = _cuda_types.Scalar(np.float64)
INT, UINT, LONG, FLOAT = (_cuda_types.Scalar(kind) for kind in (np.int32, np.uint32, np.int64, np.float32))
LOAD = kscope.scope("load")
ITEM = kscope.scope("item", strategy=kscope.Lane0Warp0())


def translate(function, *types) -> str:
    """The CUDA C++ that CuPy writes."""
    result = _compile.transpile(function, ['extern "C"', "__global__"], "cuda", types, _cuda_types.void)
    return result.code


def compile(gpu, function, *types) -> bytes:
    source = "".join(f"#include <{name}>\n" for name in core._cupy_header_list) + translate(function, *types)
    return gpu.compile(source, ("-DCUPY_JIT_MODE", "-DCUB_DISABLE_BF16_SUPPORT"))


def placed(code: str) -> list[str]:
    """The marks of a text, in order."""
    found = (grammar.parse(line) for line in re.findall(r'"(//kscope [^"]*)"', code))
    return [" ".join(filter(None, (m.act, m.name, m.type, m.strategy, m.how))) for m in found if m is not None]


@pytest.fixture
def enabled(frontend):
    frontend.enable(Recording())
    return frontend


def straight(out, n):
    with kscope.region("first"):
        total = n + 1
    with kscope.region("second", value=n):
        out[0] = total


def test_cupyx_jit_regions_translate_to_mark_pairs_without_a_scope(enabled):
    code = translate(straight, OUT, INT)
    assert placed(code) == [
        "enter first with", "exit first with", "enter second i32 with", "exit second with",
    ]  # fmt: skip
    assert '"r"((int)(n))' in code


def loops(out, n):
    with LOAD:
        for k in range(n):
            with kscope.region("step", value=k):
                if k == 3:
                    continue
                if k == 5:
                    break
                if k == 7:
                    return
                out[0] = k


NEEDS_BREAK = pytest.mark.skipif(cupy.__version__ < "14", reason="CuPy 13 supports neither break nor continue")


@NEEDS_BREAK
def test_continue_break_and_return_close_open_regions(enabled, gpu):
    code = translate(loops, OUT, INT)
    before = {word: placed(code.split(f"{word};")[0])[-2:] for word in ("continue", "break", "return")}
    assert before["continue"] == ["enter step i32 with", "exit step with"]
    assert before["break"][-1] == "exit step with"
    assert before["return"] == ["exit step with", "exit load with"]
    assert b"kscope_ctl" in compile(gpu, loops, OUT, INT)  # every path pairs


@jit.rawkernel(device=True)
def twice(x):
    with kscope.region("twice"):
        return x + x


def calls(out, n):
    with kscope.region("caller"):
        out[0] = twice(n)
    out[1] = twice(n)


def test_a_device_function_computes_its_result_before_its_region_ends(enabled, gpu):
    code = translate(calls, OUT, INT)
    assert re.search(r"auto ks_result = .*x \+ x.*;\s*KSCOPE_JIT\(\"//kscope exit twice.*\s*return ks_result;", code)
    assert b"kscope_ctl" in compile(gpu, calls, OUT, INT)


def called(out, n):
    LOAD.enter()
    for k in range(n):
        ITEM.enter(k)
        out[0] = k
        ITEM.exit()
    LOAD.exit()
    kscope.instant("here")
    kscope.instant("there", n)
    kscope.counter("depth", 3, strategy=kscope.AllThreads())


def test_enter_and_exit_calls_become_marks(enabled, gpu):
    assert placed(translate(called, OUT, INT)) == [
        "enter load call", "enter item i32 lane0-warp0 call", "exit item lane0-warp0 call", "exit load call",
        "instant here call", "instant there i32 call", "counter depth i32 all call",
    ]  # fmt: skip
    assert b"kscope_ctl" in compile(gpu, called, OUT, INT)


def values(out, n, u, f):
    with kscope.region("i32", value=-7):
        out[0] = 1
    with kscope.region("u32", value=4_000_000_000):
        out[1] = 1
    with kscope.region("f32", value=1.5):
        out[2] = 1
    with kscope.region("run time u32", value=u), kscope.region("run time f32", value=f * f):
        out[3] = 1
    with LOAD(value=jit.threadIdx.x):
        out[4] = 1


def test_values_have_their_type(enabled, gpu):
    code = translate(values, OUT, INT, UINT, FLOAT)
    entered = [mark for mark in placed(code) if mark.startswith("enter")]
    assert entered == [
        "enter i32 i32 with", "enter u32 u32 with", "enter f32 f32 with",
        "enter run time u32 u32 with", "enter run time f32 f32 with", "enter load u32 with",
    ]  # fmt: skip
    assert [grammar.parse(line).operand for line in re.findall(r'"(//kscope enter [^"]*)"', code)[:3]] == [
        "0xFFFFFFF9", "0xEE6B2800", "0x3FC00000",
    ]  # fmt: skip
    assert b"kscope_ctl" in compile(gpu, values, OUT, INT, UINT, FLOAT)


def pinned(out, n):
    with kscope.region("work") as work:
        x = n * n
        work.pin(x)
    out[0] = x


def test_a_value_can_be_pinned(enabled, gpu):
    assert placed(translate(pinned, OUT, INT)) == ["enter work with", "pin work call", "exit work with"]
    assert b"kscope_ctl" in compile(gpu, pinned, OUT, INT)


def wide(out, n):
    with kscope.region("wide", value=n > 3):
        out[0] = 1


def whole(out, n, x):
    with kscope.region("long", value=n):
        out[0] = 1
    kscope.counter("double", x)


def test_values_of_64_bits_keep_all_of_them(enabled, gpu):
    marks = placed(translate(whole, OUT, LONG, DOUBLE))
    assert marks[0] == "enter long i64 with" and marks[2] == "counter double f64 call"
    assert b"kscope_ctl" in compile(gpu, whole, OUT, LONG, DOUBLE)


def flag(out, n):
    with kscope.region("flag", value=True):
        out[0] = 1


def nameless(out, n):
    with kscope.region(3):
        out[0] = 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (wide, r"'wide' is a bool: .* pass cupy.int32\(x\)"),
        (flag, "'flag' is the bool True: a record holds one integer or float"),
        (nameless, "the name must be a string known at compile time"),
    ],
)
def test_unsupported_cupyx_jit_regions_are_refused_with_their_line(enabled, function, message):
    with pytest.raises(UsageError, match=message) as caught:
        translate(function, OUT, LONG)
    assert ">     with kscope.region(" in str(caught.value)


def unpaired(out, n):
    LOAD.enter()
    if n > 3:
        LOAD.exit()
    out[0] = 1


def test_calls_that_do_not_pair_are_refused_by_name(enabled, gpu):
    with pytest.raises(PairingError, match="region 'load'"):
        compile(gpu, unpaired, OUT, INT)


def test_other_context_managers_are_refused_as_without_kscope(enabled):
    def other(out, n):
        with cupy.cuda.Device(0):
            out[0] = 1

    with pytest.raises(ValueError, match="Switching contexts are not allowed"):
        translate(other, OUT, INT)


# plain


def never():
    """The same kernels, never annotated."""

    def straight(out, n):
        total = n + 1
        out[0] = total

    def loops(out, n):
        for k in range(n):
            if k == 3:
                continue
            if k == 5:
                break
            if k == 7:
                return
            out[0] = k

    return straight, loops


@pytest.mark.parametrize("arch", ["80", "90", "100"])
@pytest.mark.parametrize("annotated", [straight, pytest.param(loops, marks=NEEDS_BREAK)])
def test_a_plain_kernel_is_byte_identical(frontend, gpu, monkeypatch, annotated, arch):
    monkeypatch.setenv(
        "CUPY_CACHE_IN_MEMORY", "1"
    )  # otherwise the source's digest is part of symbols of CuPy's headers
    gpu.arch = arch
    (without,) = (function for function in never() if function.__name__ == annotated.__name__)
    cubin = compile(gpu, without, OUT, INT)
    frontend.teach()
    assert compile(gpu, annotated, OUT, INT) == cubin
    assert len(gpu.compiled) == 2


def test_regions_without_teach_raise_cupys_error(frontend, gpu):
    frontend.enable(Recording())
    frontend.disable()
    with pytest.raises(ValueError, match="Switching contexts are not allowed"):
        translate(straight, OUT, INT)


def test_kernels_have_one_cache_per_state(frontend, gpu):
    kernel = jit.rawkernel()(straight)
    frontend.teach()
    kernel._cached_codes["types"] = _compile.transpile(straight, ["__global__"], "cuda", (OUT, INT), _cuda_types.void)
    kernel._cache["types"] = "plain"
    frontend.enable(Recording())
    assert kernel._cache == {}
    kernel._cache["types"] = "prepared"
    frontend.enable(Recording(records=16))
    assert kernel._cache == {}
    frontend.disable()
    assert kernel._cache == {"types": "plain"}
    frontend.enable(Recording())
    assert kernel._cache == {"types": "prepared"}


def test_a_kernel_that_cannot_be_plain_stays_prepared(frontend, gpu):
    kernel = jit.rawkernel()(straight)
    frontend.enable(Recording())
    kernel._cached_codes["types"] = _compile.transpile(straight, ["__global__"], "cuda", (OUT, INT), _cuda_types.void)
    kernel._cache["types"] = "prepared"
    frontend.disable()
    assert kernel._cache == {"types": "prepared"}
    frontend.enable(Recording(records=16))
    assert kernel._cache == {}


def test_translated_jit_kernels_are_detected_as_marked(enabled):
    assert source_uses_header(translate(straight, OUT, INT), ())


def forgets(out, n):
    out[0] = n
    kscope.region("load")


@jit.rawkernel(device=True)
def forgets_too(n):
    LOAD()
    return n


def calls_one_that_forgets(out, n):
    out[0] = forgets_too(n)


@pytest.mark.parametrize(("kernel", "place", "written"), [
    (forgets, forgets.__code__.co_firstlineno + 2, "kscope.region('load')"),
    (calls_one_that_forgets, forgets.__code__.co_firstlineno + 7, "LOAD()"),
])  # fmt: skip
def test_a_region_that_is_never_entered_is_refused_with_its_line(enabled, kernel, place, written):
    with pytest.raises(UsageError) as caught:
        translate(kernel, OUT, INT)
    assert f"{__file__}:{place}: {written} is a statement by itself" in str(caught.value)


def array_as_value(out, n):
    with kscope.region("a", value=out):
        out[0] = n


def array_as_predicate(out, n):
    with kscope.region("a", when=out):
        out[0] = n


@pytest.mark.parametrize(("kernel", "message"), [
    (array_as_value, r"value= of kscope region 'a' is a CArray.*pass cupy\.int32\(x\)"),
    (array_as_predicate, r"when= of kscope region 'a' is a CArray.*expected one bool or integer"),
])  # fmt: skip
def test_an_array_is_neither_a_value_nor_a_predicate(enabled, kernel, message):
    with pytest.raises(UsageError, match=message):
        translate(kernel, OUT, INT)
