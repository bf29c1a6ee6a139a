"""Public functions in jit functions and their marks in the PTX."""

from __future__ import annotations

import re
import warnings

import pytest
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

import kscope
from kscope import instant, region
from kscope.capture import metadata


def compiler_problems(kernel):
    return metadata.from_json(kernel.metadata.kscope.encode()).problems


ARCHS = pytest.mark.parametrize("arch", [80, 90, 100])
LOAD = kscope.scope("Load")
NAME = tl.constexpr("named")
FIRST = tl.constexpr(kscope.TargetWarp(0))


@triton.jit
def in_a_loop(a, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    with kscope.region("loop"):
        for i in range(0, n, BLOCK):
            with kscope.region("load", value=i):
                x = tl.load(a + i + at)
            with region("add"):
                total += x
    tl.store(out + at, total)


@ARCHS
def test_marks_are_in_the_order_of_the_source(compiler, arch):
    compiler(in_a_loop, arch, a="*fp32", out="*fp32", n="i32", BLOCK=128)
    assert compiler.marks() == [
        "enter loop", "enter load i32", "exit load", "enter add", "exit add", "exit loop",
    ]  # fmt: skip


@triton.jit
def pipelined(a, b, out, K, BM: tl.constexpr, BK: tl.constexpr):
    rows, inner = tl.arange(0, BM), tl.arange(0, BK)
    total = tl.zeros((BM, BM), tl.float32)
    for k in range(0, K, BK):
        with kscope.region("load"):
            x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
            y = tl.load(b + (k + inner)[:, None] * BM + rows[None, :])
        with kscope.region("dot"):
            total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * BM + rows[None, :], total)


@pytest.mark.filterwarnings("ignore:.* more bytes of registers spill")
@ARCHS
def test_software_pipelined_loops_keep_their_marks(compiler, arch):
    types = {"a": "*fp16", "b": "*fp16", "out": "*fp32", "K": "i32", "BM": 128, "BK": 64}
    kernel = compiler(pipelined, arch, {"num_stages": 3, "num_warps": 8}, **types)
    assert {"enter load", "exit load", "enter dot", "exit dot"} == set(compiler.marks())
    # Triton 3.6 moves a Blackwell MMA and its loads out of their regions; 3.9 keeps the MMA inside
    moved = {"empty"} if arch == 100 and triton.__version__.startswith("3.6") else set[str]()
    spilled = {"registers"} if arch == 80 else set[str]()  # 12 bytes
    assert moved <= {problem.kind for problem in compiler_problems(kernel)} <= moved | spilled


@triton.jit
def repeated(a, out, times, PINNED: tl.constexpr):
    x = tl.load(a + tl.arange(0, 128))
    for k in range(times):
        with kscope.region("products") as products:
            y = x
            for _ in tl.static_range(128):
                y = y * y + 1.0
            if PINNED:
                products.pin(y)
        tl.store(out + k * 128 + tl.arange(0, 128), y)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_region_whose_arithmetic_moved_out_of_a_loop_is_reported_when_it_is_compiled(compiler, pinned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = compiler(repeated, a="*fp32", out="*fp32", times="i32", PINNED=pinned)
    problems = compiler_problems(kernel)
    assert [(problem.kind, problem.kernel, problem.region) for problem in problems] == (
        [] if pinned else [("empty", "repeated", "products")]
    )
    assert [str(one.message) for one in caught] == [f"kscope: {problem.text}" for problem in problems]


@triton.jit
def persistent(a, b, c, tiles, K, BM: tl.constexpr, BK: tl.constexpr):
    rows, inner = tl.arange(0, BM), tl.arange(0, BK)
    for tile in tl.range(tl.program_id(0), tiles, 132, flatten=True):
        with kscope.region("tile"):
            total = tl.zeros((BM, BM), tl.float32)
            with kscope.region("k loop"):
                for k in range(0, K, BK):
                    x = tl.load(a + (tile * BM + rows)[:, None] * K + (k + inner)[None, :])
                    y = tl.load(b + (k + inner)[:, None] * BM + rows[None, :])
                    with kscope.region("dot"):
                        total = tl.dot(x, y, total)
            tl.store(c + (tile * BM + rows)[:, None] * BM + rows[None, :], total)


@pytest.mark.filterwarnings("ignore:kscope.*split region")
def test_regions_of_flattened_loops_are_named_with_the_remedy_and_those_inside_are_recorded(compiler):
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "tiles": "i32", "K": "i32", "BM": 128, "BK": 64}
    kernel = compiler(persistent, 90, {"num_stages": 3, "num_warps": 8}, **types)
    about = metadata.from_json(kernel.metadata.kscope.encode())
    assert [region.name for region in about.regions] == ["dot"]
    assert {problem.region for problem in about.problems} == {"tile", "k loop"}
    assert all("flatten=True merges" in problem.text for problem in about.problems)


@triton.jit
def helper(x, scale):
    with kscope.region("helper", value=scale):
        inner = innermost(x)
    return inner * scale


@triton.jit
def innermost(x):
    with region("innermost"):
        y = x * 2
    return y


@triton.jit
def calls_helpers(a, out, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    with kscope.region("body"):
        first = helper(tl.load(a + at), scale)
        second = helper(first, scale)
    tl.store(out + at, second)


@ARCHS
def test_helpers_are_inlined_with_their_marks(compiler, arch):
    compiler(calls_helpers, arch, a="*fp32", out="*fp32", scale="fp32", BLOCK=128)
    once = ["enter helper f32", "enter innermost", "exit innermost", "exit helper"]
    assert compiler.marks() == ["enter body", *once, *once, "exit body"]


@triton.jit
def all_the_names(out, BLOCK: tl.constexpr):
    with kscope.region(f"block {BLOCK}"):
        with kscope.region(NAME):
            tl.store(out, 1)
        with kscope.region("größer > 100 %; }"):
            tl.store(out + 1, 1)


def test_names_are_strings_f_strings_and_constexprs(compiler):
    compiler(all_the_names, out="*i32", BLOCK=64)
    assert compiler.marks() == [
        "enter block 64", "enter named", "exit named",
        "enter größer > 100 %; }", "exit größer > 100 %; }", "exit block 64",
    ]  # fmt: skip


@triton.jit
def declared_scopes(out, n):
    with LOAD():
        tl.store(out, 1)
    for _ in range(n):
        LOAD.enter()
        tl.store(out + 1, 1)
        LOAD.exit()


def test_a_declared_scope_is_entered_anywhere(compiler):
    compiler(declared_scopes, out="*i32", n="i32")
    assert compiler.marks() == ["enter Load", "exit Load", "enter Load", "exit Load"]


@triton.jit
def points(out, n, f):
    instant("here")
    kscope.instant("seen", n)
    kscope.counter("level", f)
    kscope.counter("constant", 5)
    kscope.counter("ratio", 0.5)
    kscope.counter("large", 0xF0000000)
    tl.store(out, n)


@triton.jit
def wide_points(out, n, f):
    big = n.to(tl.int64) << 33
    with kscope.region("region", value=big):
        kscope.instant("u64", big.to(tl.uint64))
    kscope.instant("f64", f.to(tl.float64))
    kscope.instant("pointer", out)
    kscope.begin("key", big, when=n > 3)
    kscope.counter("large", 1 << 40)
    tl.store(out, n)


def test_values_of_64_bits_and_addresses_keep_all_of_them(compiler):
    compiler(wide_points, out="*i32", n="i32", f="fp32")
    found = {line for line in compiler.marks() if not line.startswith("exit")}
    assert found == {
        "enter region i64", "instant u64 u64", "instant f64 f64", "instant pointer u64", "counter large i64",
        "instant key~1Fkscope.begin i64",
    } or {line.split()[-1] for line in found} == {"i64", "u64", "f64"}  # fmt: skip


def test_instants_and_counters_carry_values(compiler):
    compiler(points, out="*i32", n="u32", f="fp32")
    assert compiler.marks() == [
        "instant here", "instant seen u32", "counter level f32",
        "counter constant i32", "counter ratio f32", "counter large u32",
    ]  # fmt: skip
    assert "//kscope counter ratio f32 - call 0x3F000000" in compiler.texts[-1]


@triton.jit
def branches(out, n):
    if n > 3:
        with kscope.region("then"):
            tl.store(out, 1)
    else:
        with kscope.region("else"):
            tl.store(out + 1, 2)
    i = 0
    while i < n:
        with kscope.region("while", value=i):
            tl.atomic_add(out + 2, 1)
        i += 2
    for j in tl.static_range(2):
        with kscope.region("unrolled", value=j):
            tl.store(out + 3 + j, j)


@ARCHS
def test_branches_and_loops_of_every_kind_pair(compiler, arch):
    kernel = compiler(branches, arch, out="*i32", n="i32")
    assert sorted(set(compiler.marks())) == [
        "enter else", "enter then", "enter unrolled i32", "enter while i32",
        "exit else", "exit then", "exit unrolled", "exit while",
    ]  # fmt: skip
    assert not compiler_problems(kernel)


@triton.jit
def chosen_warps(out):
    with kscope.region("first", strategy=FIRST):
        with kscope.region("each", strategy=kscope.AllThreads()):
            tl.store(out, 1)


def test_regions_may_have_their_own_strategy(compiler):
    compiler(chosen_warps, out="*i32")
    assert "//kscope enter first - warps:0 with" in compiler.texts[-1]
    assert "//kscope enter each - all with" in compiler.texts[-1]


@triton.jit
def pinned(a, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    with kscope.region("exp") as exp:
        x = tl.exp(tl.load(a + at))
        exp.pin(x)
    for i in range(n):
        with kscope.region("narrow") as narrow:
            narrow.pin(i)
            narrow.pin(x.to(tl.float16))
    tl.store(out + at, x)


@ARCHS
def test_a_pin_covers_every_register_of_a_thread(compiler, arch):
    kernel = compiler(pinned, arch, {"num_warps": 1}, a="*fp32", out="*fp32", n="i32", BLOCK=128)
    assert compiler.marks().count("pin exp") == 4  # 128 floats over 32 lanes
    assert compiler.marks().count("pin narrow") == 1 + 2  # a scalar, and two packed pairs of halves
    assert kernel.asm["ptx"].count("@ks_never st.global.b32") == 7


VALUES = {
    "f16": ("n.to(tl.float16)", "fp16", "value=x.to(tl.float32)"),
    "bool": ("n > 3", "int1", "value=x.to(tl.int32)"),
    "constant bool": ("True", "bool True", "value=1"),
    "tensor": ("tl.arange(0, 16)", "tensor", "one element"),
    "string": ("'k'", "str", "one number"),
    "large": ("1 << 64", "more than 64 bits", "0xFFFFFFFFFFFFFFFF"),
}


@pytest.mark.parametrize("case", VALUES)
def test_values_that_are_no_scalars_of_32_or_64_bits_are_refused(compiler, module, case):
    expression, given, cure = VALUES[case]
    kernels = module(f"""
        @triton.jit
        def kernel(out, n):
            with kscope.region("load", value={expression}):
                tl.store(out, n)
    """)
    with pytest.raises(CompilationError) as caught:
        compiler(kernels.kernel, out="*i32", n="i32")
    message = str(caught.value)
    assert "UsageError" in message
    assert "'load'" in message
    assert given in message
    assert cure in message


@pytest.mark.parametrize("name", ["n", "''", "3", "'x' * 600"])
def test_non_constant_names_are_refused(compiler, module, name):
    kernels = module(f"""
        @triton.jit
        def kernel(out, n):
            with kscope.region({name}):
                tl.store(out, n)
    """)
    with pytest.raises(CompilationError, match="UsageError"):
        compiler(kernels.kernel, out="*i32", n="i32")


def test_a_pin_of_64_bits_is_refused(compiler, module):
    kernels = module("""
        @triton.jit
        def kernel(out, n):
            with kscope.region("x") as x:
                x.pin(n)
                tl.store(out, 1)
    """)
    with pytest.raises(CompilationError, match="8, 16 or 32-bit elements"):
        compiler(kernels.kernel, out="*i32", n="i64")


@triton.jit
def summed(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    with kscope.region("sum"):
        for start in range(0, n, BLOCK):
            total += tl.load(x + start + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(out + tl.arange(0, BLOCK), total)


def test_a_load_has_the_line_of_its_statement(compiler):
    """LLVM gives each line of an inline assembly the next line number."""
    text = compiler(summed, x="*fp16", out="*fp32", n="i32", BLOCK=1024).asm["ptx"]
    first = summed.fn.__code__.co_firstlineno
    line = next(first + n for n, one in enumerate(summed.src.splitlines(), 1) if "total += " in one)
    lines, found = 0, []
    for statement in text.splitlines():
        if match := re.match(r"\s*\.loc\s+\d+ (\d+)", statement):
            lines = int(match[1])
        if re.match(r"\s*(@%\w+ )?ld\.global\.(v\d\.)?b", statement):
            found.append(lines)
    assert found and set(found) == {line}
