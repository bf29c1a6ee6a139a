"""Marks of every kind in CuTe kernels, and refused ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cutlass
import pytest
from cutlass import cute
from cutlass.base_dsl import compiler

from kscope.capture import layout, metadata
from kscope.capture.model import ModuleMeta
from kscope.errors import PairingError, UnsupportedError, UsageError
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.marks.strategies import AllThreads, Lane0Warp0, TargetWarp

from .conftest import VERSION, Made, arguments, source

Make = Callable[..., Made]


def metadata_of(made: Made) -> ModuleMeta:
    """The module's metadata."""
    found = re.search(rf"{layout.META_SYMBOL}\[\d+\] = \{{([^}}]*)\}}", made.ptx)
    assert found is not None
    return metadata.from_json(bytes(map(int, found[1].split(","))))


def names(made: Made) -> list[str]:
    return sorted(region.name for region in metadata_of(made).regions)


BODIES = {
    "outer variables are visible and assignable": """
        total = Float32(0.0)
        with region("outer"):
            loaded = x[thread]
            total = total + loaded
            with region("inner"):
                total = total * 2.0
        x[thread] = total + loaded
        """,
    "a dynamic if, for and while, in and around": """
        total = Float32(0.0)
        turn = Int32(0)
        with region("outer"):
            if n > 3:
                with region("then"):
                    total = total + x[0]
            else:
                with region("else"):
                    total = total - x[0]
            for k in cutlass.range(n):
                with region("for", value=k):
                    total = total + x[k]
                    if total > 10.0:
                        with region("big"):
                            total = total - 1.0
        while turn < n:
            with region("while", value=turn):
                total = total + x[turn]
                turn = turn + 1
        x[thread] = total
        """,
    "unrolled, fully unrolled and constexpr ranges": """
        total = Float32(0.0)
        for k in cutlass.range(n, unroll=4):
            with region("unroll"):
                total = total + x[thread + k]
        for k in cutlass.range(4, unroll_full=True):
            with region("full"):
                total = total + x[thread + k]
        for k in cutlass.range_constexpr(2):
            with region(f"constexpr {k}"):
                total = total + x[thread + k]
        x[thread] = total
        """,
    "branches of warps, and elect_one": """
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with region("producer"):
                for k in cutlass.range(n):
                    with region("ask"):
                        x[k] = 1.0
        else:
            with region("consumer"):
                with cute.arch.elect_one():
                    with region("elected"):
                        x[thread] = 2.0
        """,
    "several items of one with": """
        with region("first"), region("second"):
            x[thread] = 1.0
        with cute.arch.elect_one(), region("third"):
            x[thread] = 2.0
        """,
    "a scope of the kernel's own": """
        mine = kscope.region("mine")
        for k in cutlass.range(n):
            with mine:
                x[thread] = x[thread] + 1.0
        """,
}
EXPECTED = {
    "outer variables are visible and assignable": ["inner", "outer"],
    "a dynamic if, for and while, in and around": ["big", "else", "for", "outer", "then", "while"],
    "unrolled, fully unrolled and constexpr ranges": ["constexpr 0", "constexpr 1", "full", "unroll"],
    "branches of warps, and elect_one": ["ask", "consumer", "elected", "producer"],
    "several items of one with": ["first", "second", "third"],
    "a scope of the kernel's own": ["mine"],
}


@pytest.mark.parametrize("body", BODIES)
def test_regions_compile_in_every_cute_construct(make: Make, body: str) -> None:
    made = make(BODIES[body])
    assert names(made) == EXPECTED[body]
    assert {problem.kind for problem in metadata_of(made).problems} <= {"empty"}
    assert "//kscope" not in made.ptx


def test_regions_in_helpers_record_at_every_call(make: Make) -> None:
    made = make(
        """
        with region("caller"):
            helper(x, 0)
        for k in cutlass.range(n):
            helper(x, k)
        """,
        before="""
        @cute.jit
        def helper(x: cute.Tensor, k: Int32):
            with region("helper", value=k):
                x[k] = x[k] + 1.0
        """,
    )
    assert {region.name: region.type for region in metadata_of(made).regions} == {"caller": None, "helper": "i32"}


def test_values_keep_their_types(make: Make) -> None:
    made = make(
        """
        with region("i32", value=n):
            kscope.instant("u32", value=cutlass.Uint32(n))
        kscope.counter("f32", value=x[thread])
        kscope.instant("constant", value=4_000_000_000)
        kscope.instant("none")
        """
    )
    types = {region.name: region.type for region in metadata_of(made).regions}
    assert types == {"i32": "i32", "u32": "u32", "f32": "f32", "constant": "u32", "none": None}


def test_values_of_64_bits_keep_their_types(make: Make) -> None:
    made = make(
        """
        with region("i64", value=cutlass.Int64(n) << 33):
            kscope.instant("u64", value=cutlass.Uint64(n))
        kscope.counter("f64", value=cutlass.Float64(x[thread]))
        kscope.begin("key", cutlass.Int64(n))
        kscope.end("key", cutlass.Int64(n))
        """
    )
    types = {region.name.partition("\x1f")[0]: region.type for region in metadata_of(made).regions}
    assert types == {"i64": "i64", "u64": "u64", "f64": "f64", "key": "i64"}


def test_explicit_calls_may_pair_across_iterations(make: Make) -> None:
    made = make(
        """
        TURN.enter()
        for k in cutlass.range(n):
            TURN.exit()
            x[k] = 1.0
            TURN.enter(k)
        TURN.exit()
        """.replace("TURN.enter()\n        for", "TURN.enter(0)\n        for"),
        before='TURN = kscope.scope("turn")',
    )
    assert names(made) == ["turn"]


def test_a_region_has_its_source_location(make: Make) -> None:
    (region,) = metadata_of(make('with region("here"):\n    x[thread] = 1.0')).regions
    assert region.where is not None
    file, line = region.where.rsplit(":", 1)
    assert 'region("here")' in Path(file).read_text().splitlines()[int(line) - 1]


def test_line_information_refers_only_to_user_code(make: Make) -> None:
    body = 'with region("here"):\n    x[thread] = 1.0'
    made, plain = (make(body, recording=r, options="--generate-line-info") for r in (Recording(), None))
    (region,) = metadata_of(made).regions
    assert region.where is not None and region.where.endswith(".py:12")  # the line of the `with`
    files = [len(re.findall(r"^\s*\.file", one.ptx, re.M)) for one in (made, plain)]
    assert files == [1, 1]
    assert b".debug_line" in made.cubin


@pytest.mark.parametrize("strategy", [Lane0Warp0(), TargetWarp(1, 3), AllThreads()])
@pytest.mark.parametrize("clock", ["cycles", "globaltimer"])
@pytest.mark.parametrize("fill", ["ring", "stop"])
def test_every_option_compiles(make: Make, strategy: Any, clock: Any, fill: Any) -> None:
    recording = Recording(strategy=strategy, clock=clock, fill=fill)
    made = make('with region("one"):\n    x[thread] = 1.0', recording=recording)
    message = metadata_of(made)
    assert (message.strategy, message.clock, message.fill) == (strategy.spec, clock, fill)


def test_the_store_waits_for_the_end_of_its_block(make: Make) -> None:
    made = make('with region("one"):\n    x[thread] = 1.0\nx[thread + 1] = 2.0')
    *_, last = re.finditer(r"st\.global\.\w+\s+\[%", made.ptx)
    at = [made.ptx.index("mov.u64 ks_e0"), last.start(), made.ptx.index("st.global.v4.b32 [ks_a+32]")]
    assert at == sorted(at)  # the user's later store first


def test_regions_of_code_that_never_runs_are_named(make: Make) -> None:
    with pytest.warns(UserWarning, match="removed every mark of 'never'"):
        made = make('with region("one"):\n    if n != n:\n        with region("never"):\n            x[thread] = 1.0')
    assert [problem.kind for problem in metadata_of(made).problems] == ["removed", "empty"]


def test_regions_without_instructions_are_reported(make: Make) -> None:
    with pytest.warns(UserWarning, match="region 'one' .* has no instruction between its clock readings"):
        made = make('with region("one"):\n    unused = Float32(n) * 2.0\nx[thread] = 1.0')
    (problem,) = metadata_of(made).problems
    assert (problem.kind, problem.kernel, problem.region) == ("empty", "kernel", "one")


def test_a_name_that_is_not_static_is_refused(make: Make) -> None:
    with pytest.raises(UsageError, match="the name must be a string known at compile time"):
        make("with region(n):\n    x[thread] = 1.0")
    with pytest.raises(UsageError, match=r"the name contains '\?', which CuTe DSL prints for a value"):
        make('with region(f"step {n}"):\n    x[thread] = 1.0')


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("cutlass.Int16(n)", r"a Int16: .* pass value=cutlass.Int32\(x\)"),
        ("cutlass.Float16(1.0)", r"a Float16: .* pass value=cutlass.Float32\(x\)"),
        ("n > 3", "a Boolean"),
        ("True", "the bool True"),
        ("1 << 64", "needs more than 64 bits"),
        ("x", "Tensor"),
    ],
)
def test_only_scalars_of_32_and_64_bits_are_values(make: Make, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(f'with region("one", value={value}):\n    x[thread] = 1.0')


def test_a_region_left_open_on_one_path_is_refused_with_its_line(make: Make) -> None:
    with pytest.raises(PairingError, match=r"region 'half' is .* on one path .*kernel_\d+\.py:\d+") as caught:
        make(
            """
            for k in cutlass.range(n):
                HALF.enter()
                if x[k] > 2.0:
                    HALF.exit()
            """,
            before='HALF = kscope.scope("half")',
        )
    assert "prefetch_stages" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # CuTe's, of names that 4.4 still needs
def test_a_region_that_spans_prefetch_stages_is_refused(frontend: Any) -> None:
    if VERSION < (4, 8):
        pytest.skip("the kernel needs nvidia-cutlass-dsl 4.8")
    from . import kernels
    from .conftest import compile

    frontend.enable(Recording())
    with pytest.raises(PairingError, match=r"'across' .* cannot contain both loads and code that uses them"):
        compile(kernels.pipelined_host, *kernels.fakes(), True)


def test_cute_errors_are_not_masked_by_handled_errors(frontend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no such pass")

    monkeypatch.setattr(compiler.Compiler, "compile", fails)
    frontend.enable(Recording())
    try:
        raise PairingError("handled")
    except PairingError:
        with pytest.raises(Exception, match="no such pass") as caught:
            cute.compile(source("x[thread] = 1.0").host, *arguments())
    assert not isinstance(caught.value, PairingError)


def option(name: str) -> Any:
    """A compile option of CuTe's; skips the test where it has none of that name."""
    if not hasattr(compiler, name):
        pytest.skip(f"this CuTe DSL has no {name}")
    return getattr(compiler, name)


def test_a_device_function_that_is_compiled_apart_is_refused_by_name(make: Make) -> None:
    device_target = option("DeviceTarget")
    module = source(
        "x[thread] = 1.0",
        before="""
        @cute.jit
        def twice(a: Float32) -> Float32:
            with region("one"):
                b = a * 2.0
            return b
        """,
    )
    registry.frontend("cute").enable(Recording())
    with pytest.raises(UnsupportedError, match=r"regions in .*twice.*compiled separately.*move the region"):
        cute.compile[device_target](module.twice, cutlass.Float32)


def test_the_other_tracer_of_cute_carries_marks_as_well(make: Make, tmp_path: Path) -> None:
    options = option("FrontendNext"), compiler.KeepPTX, compiler.DumpDir(str(tmp_path))
    module = source('for k in cutlass.range(n):\n    with region("one", value=k):\n        x[thread] = 1.0')
    registry.frontend("cute").enable(Recording())
    made = cute.compile[options](module.host, *arguments())
    assert "ks_s0" in made.__ptx__


def test_a_region_around_a_launch_does_nothing(make: Make) -> None:
    assert "ks_" not in make("x[thread] = 1.0", around='with region("host"):').ptx
