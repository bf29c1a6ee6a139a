"""Regions in Numba: functions, places and values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from contract.numba_offline import built
from numba import cuda
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Grid, Launch, run

from kscope.instrument.recording import Recording
from kscope.marks.strategies import AllThreads
from kscope.marks.wide_values import halves

from .reading import metadata_of, ptx, regions

Written = Callable[..., dict[str, Any]]
SIGNATURE = "void(float32[::1], int64)"


@pytest.mark.parametrize("lto", [False, True])
def test_regions_nest_and_carry_their_place(enabled: Any, written: Written, lto: bool) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            with kscope.region("outer"), kscope.region("second"):
                for i in range(n):
                    with kscope.region("inner", value=i):
                        x[i] += 1
    """)
    text = ptx(built(space["kernel"], SIGNATURE, lto=lto))
    place = space["__file__"]
    assert regions(text) == {
        "outer": (None, f"{place}:9"),
        "second": (None, f"{place}:9"),
        "inner": ("i64", f"{place}:11"),
    }
    assert [kernel.name for kernel in metadata_of(text).kernels] == ["kernel"]
    assert metadata_of(text).problems == ()


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("lto", [False, True])
def test_a_region_whose_arithmetic_moved_out_of_a_loop_is_reported_when_it_is_compiled(
    enabled: Any, written: Written, lto: bool, pinned: bool
) -> None:
    space = written(f"""
        @cuda.jit(fastmath=True)
        def kernel(x, n):
            first = x[0]
            for i in range(n):
                with kscope.region("products") as products:
                    y = first
                    for k in range(64):
                        y = y * y + np.float32(1)
                    {"products.pin(y)" if pinned else ""}
                x[i] = y
    """)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = ptx(built(space["kernel"], SIGNATURE, lto=lto))
    problems = metadata_of(text).problems
    assert [(problem.kind, problem.region) for problem in problems] == ([] if pinned else [("empty", "products")])
    assert [str(one.message) for one in caught if issubclass(one.category, UserWarning)] == [
        f"kscope: {problem.text}" for problem in problems
    ]


@pytest.mark.parametrize(
    "options", [{}, {"lto": True}, {"lineinfo": True}, {"lineinfo": True, "lto": True}, {"opt": False}], ids=str
)
@pytest.mark.parametrize("how", ["", "device=True", "device=True, inline='always'", "device=True, forceinline=True"])
def test_device_functions_have_regions_with_every_inlining(
    enabled: Any, written: Written, how: str, options: dict[str, Any]
) -> None:
    space = written(f"""
        @cuda.jit({how})
        def leaf(x, i):
            with kscope.region("leaf"):
                if x[i] > 3:
                    return x[i]
                return x[i] * 2

        @cuda.jit({how})
        def middle(x, i):
            return leaf(x, i) + leaf(x, i + 1)

        @cuda.jit
        def kernel(x, n):
            with kscope.region("outer"):
                x[0] = middle(x, n)
    """)
    text = ptx(built(space["kernel"], SIGNATURE, **options))
    assert sorted(regions(text)) == ["leaf", "outer"]
    assert metadata_of(text).problems == ()


def test_a_big_device_function_called_often_is_inlined_for_its_region(enabled: Any, written: Written) -> None:
    lines = "\n".join(f"                x[{i}] = x[{i + 1}] * 2 + x[{i}]" for i in range(40))
    space = written(f"""
        @cuda.jit
        def big(x, i):
            with kscope.region("big"):
                x[i] = 0
{lines}

        @cuda.jit
        def kernel(x, n):
            for i in range(n):
                big(x, i)
            big(x, n)
            big(x, n + 1)
    """)
    text = ptx(built(space["kernel"], SIGNATURE))
    assert list(regions(text)) == ["big"]


def test_closures_and_lambdas_and_their_constants(enabled: Any, written: Written) -> None:
    space = written("""
        DEPTH = 3

        def make(tile):
            LOAD = kscope.scope(f"load {tile}")

            @cuda.jit
            def kernel(x, n):
                def inner(i):
                    with kscope.region(f"inner {tile} of {DEPTH}"):
                        return x[i] + tile
                point = lambda i: kscope.instant("point", i)
                with LOAD:
                    x[0] = inner(1)
                    point(n)
                    square = (lambda v: v * v)
                    x[1] = square(x[0])
            return kernel

        kernel = make(16)
    """)
    assert regions(ptx(built(space["kernel"], SIGNATURE))).keys() == {"inner 16 of 3", "load 16", "point"}


def test_break_and_loop_else_record(enabled: Any, written: Written) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            with kscope.region("all"):
                for i in range(n):
                    with kscope.region("step"):
                        if x[i] < 0:
                            continue
                        if x[i] > 9:
                            break
                        if x[i] == 5:
                            return
                        x[i] += 1
                else:
                    with kscope.region("else"):
                        x[0] = 0
                while x[1] > 0:
                    with kscope.region("while"):
                        x[1] -= 1
    """)
    text = ptx(built(space["kernel"], SIGNATURE))
    assert sorted(regions(text)) == ["all", "else", "step", "while"]
    assert metadata_of(text).problems == ()


@pytest.mark.parametrize("body", [
    "for i in range(0, n, int(x[0])):\n                        x[i] += 1",
    "assert n > 0\n                    x[0] = n",
    "if n < 0:\n                        raise ValueError('n')\n                    x[0] = n",
    "x[0] = careful(n)",
])  # fmt: skip
def test_exceptions_leave_no_region_open(enabled: Any, written: Written, body: str) -> None:
    space = written(f"""
        @cuda.jit
        def careful(n):
            if n < 0:
                raise ValueError("n")
            return n

        @cuda.jit
        def kernel(x, n):
            with kscope.region("outer"):
                with kscope.region("raises"):
                    {body}
                x[1] = 2
    """)
    text = ptx(built(space["kernel"], SIGNATURE))
    assert sorted(regions(text)) == ["outer", "raises"]
    assert metadata_of(text).problems == ()


@pytest.mark.parametrize(("value", "kind"), [
    ("n", "i64"), ("np.int8(n)", "i32"), ("np.int16(n)", "i32"), ("np.int32(n)", "i32"), ("np.uint8(n)", "u32"),
    ("np.uint32(n)", "u32"), ("np.uint64(n)", "u64"), ("x[0]", "f32"), ("np.float64(n)", "f64"), ("7", "i32"),
    ("-7", "i32"), ("4_000_000_000", "u32"), ("1.5", "f32"), ("SEVEN", "i32"), ("np.uint32(7)", "u32"),
    ("n + 1", "i64"),
])  # fmt: skip
def test_values_have_the_type_of_their_expression(enabled: Any, written: Written, value: str, kind: str) -> None:
    space = written(f"""
        SEVEN = 7

        @cuda.jit
        def kernel(x, n):
            with kscope.region("r", value={value}):
                x[n] += 1
            kscope.instant("i", {value})
            kscope.counter("c", value={value})
    """)
    assert {name: kind for name, (kind, _) in regions(ptx(built(space["kernel"], SIGNATURE))).items()} == dict.fromkeys(
        "ric", kind
    )


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_wide_values_keep_all_their_bits(enabled: Any, written: Written, kind: str) -> None:
    space = written("""
        def kernel(n):
            kscope.instant("n", n)
    """)
    library = built(cuda.jit(space["kernel"]), f"void({kind})", lto=True)
    short = "i64" if kind == "int64" else "u64"
    for n in (0, 1, -1, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63):
        word, more = halves(short, n % (1 << 64))
        assert recorded(ptx(library), library._entry_name, n) == ([more, word] if more else [word]), n


def recorded(text: str, kernel: str, argument: int) -> list[int]:
    """The values that one warp records, run by the interpreter."""
    host = Host(Pool((Ring(12), Ring(12))))
    grid, words = Grid((1, 1, 1), (32, 1, 1)), [argument % (1 << 64)]
    launch = Launch(host.load(text.rstrip("\0")), host.memory, kernel, grid, words, [(0, 0, 0)])
    run(launch.start(), "random", 1)
    return [int(record["value"]) for slab in host.slabs() for record in slab.records()]


def test_scopes_are_found_wherever_they_are_declared(enabled: Any, written: Written) -> None:
    space = written("""
        import sys, types
        from kscope import region, instant as point
        import kscope as ks

        class Phases:
            LOAD = kscope.scope("load", strategy=kscope.AllThreads(), value=3)
            names = ("zero", "one")

        steps = [kscope.scope("step 0"), kscope.scope("step 1")]
        options = types.SimpleNamespace(WAIT=kscope.scope("wait"))
        library = types.ModuleType("library")
        library.STORE = kscope.scope("store")

        @cuda.jit
        def kernel(x, n):
            with Phases.LOAD:
                x[0] = 1
            with library.STORE(n), region("alone"), ks.scope(name=Phases.names[1]):
                x[1] = 2
            point("here")
            with steps[1], options.WAIT:
                x[1] = 3
            with kscope.region("pinned") as pinned:
                y = x[n] * np.float32(3)
                pinned.pin(y)
                pinned.pin(n)
            x[2] = y
    """)
    text = ptx(built(space["kernel"], SIGNATURE))
    assert {name: kind for name, (kind, _) in regions(text).items()} == {
        "load": "i32", "store": "i64", "alone": None, "one": None, "here": None, "pinned": None,
        "step 1": None, "wait": None,
    }  # fmt: skip
    assert text.count("@ks_never st") == 3  # 32 bits of y, 64 of n


def test_calls_need_no_source(enabled: Any) -> None:
    from numba import cuda

    import kscope

    space = {
        "kscope": kscope,
        "cuda": cuda,
        "LOAD": kscope.scope("load", value=4),
        "ALL": kscope.scope("all", strategy=AllThreads()),
    }
    exec(
        compile(
            "@cuda.jit\ndef kernel(x, n):\n"
            "    ALL.enter()\n    LOAD.enter()\n    x[0] = 1\n    LOAD.exit()\n    ALL.exit()\n"
            "    kscope.instant('here')\n    kscope.instant('with', x[0])\n    kscope.counter('depth', value=n)\n",
            "<no file>", "exec", dont_inherit=True,
        ),
        space,
    )  # fmt: skip
    text = ptx(built(space["kernel"], SIGNATURE))
    assert {name: kind for name, (kind, _) in regions(text).items()} == {
        "all": None, "load": "i32", "here": None, "with": "f32", "depth": "i64",
    }  # fmt: skip


def test_the_options_of_the_recording_reach_the_kernel(frontend: Any, written: Written) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            with kscope.region("r"):
                x[n] += 1
    """)
    frontend.enable(Recording(strategy=AllThreads(), clock="globaltimer", records=64))
    about = metadata_of(ptx(built(space["kernel"], SIGNATURE)))
    assert (about.strategy, about.clock, about.kernels[0].log2_records) == ("all", "globaltimer", 6)


def test_the_demos_kernel_has_its_regions(enabled: Any) -> None:
    from kscope_numba import demo

    matrix = "float32[:, ::1]"
    text = ptx(built(demo.product, f"void({matrix}, {matrix}, {matrix})"))
    assert list(regions(text)) == ["load", "mainloop", "multiply", "store"]


@pytest.mark.parametrize(("declared", "entered"), [
    ("STEPS = [kscope.scope('a')]", "STEPS[0]"),
    ("STEPS = {'first': kscope.scope('a')}", "STEPS['first']"),
    ("import types; SPACE = types.SimpleNamespace(inner=types.SimpleNamespace(A=kscope.scope('a')))", "SPACE.inner.A"),
])  # fmt: skip
def test_scopes_in_containers_are_found(enabled: Any, written: Written, declared: str, entered: str) -> None:
    space = written(f"""
        {declared}

        @cuda.jit
        def kernel(x, n):
            with {entered}:
                x[0] = 1
    """)
    assert list(regions(ptx(built(space["kernel"], SIGNATURE)))) == ["a"]


@pytest.mark.parametrize("lto", [False, True])
def test_line_information_stays(enabled: Any, written: Written, lto: bool) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            with kscope.region("a"):
                x[n] += 1
    """)
    library = built(space["kernel"], SIGNATURE, lto=lto, lineinfo=True)
    assert ".loc" in ptx(library)
    assert b".nv_debug_line_sass" in library.get_cubin(cc=(9, 0)).code
    assert regions(ptx(library)) == {"a": (None, f"{space['__file__']}:9")}
