"""What cannot be recorded is refused with its name, the user's file and line."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract.numba_offline import built
from numba.core.errors import TypingError as NumbaTypingError
from numba.cuda.codegen import CUDACodeLibrary
from numba.cuda.core.errors import TypingError

from kscope.errors import PairingError, UnsupportedError, UsageError
from kscope.instrument.recording import Recording
from kscope.language.regions import scope
from kscope_numba import hook_points
from kscope_numba.evaluator import Evaluator

from .reading import ptx

Written = Callable[..., dict[str, Any]]
SIGNATURE = "void(float32[::1], int64)"


def refused(written: Written, body: str, kind: type[Exception], **options: Any) -> str:
    """The error for a kernel whose body begins on line 9."""
    lines = "".join(f"            {line}\n" for line in body.splitlines())
    space = written(f"\n        @cuda.jit\n        def kernel(x, n):\n{lines}")
    with pytest.raises(kind) as caught:
        ptx(built(space["kernel"], SIGNATURE, **options))
    message = str(caught.value)
    assert Path(space["__file__"]).name in message
    where = getattr(caught.value, "where", None)
    assert where is None or (message.startswith(f"{where}: ") and message.count(where) == 1)
    return message


@pytest.mark.parametrize(("statement", "output"), [
    ('with kscope.region(f"step {n}"): x[0] = 1', "n is a variable of the kernel"),
    ("with kscope.region(): x[0] = 1", "with kscope.region(): a region needs a name"),
    ("with kscope.region: x[0] = 1", "a region needs a name"),
    ('with kscope.region(""): x[0] = 1', "must have 1 to 512 bytes"),
    ("with kscope.region(7): x[0] = 1", "must be a string known at compile time"),
    ('with kscope.region("a", strategy=3): x[0] = 1', "expected 'lane0-warp0', 'elected', 'elected-any', 'all'"),
    ('with kscope.region("a", color=3): x[0] = 1', "unexpected keyword argument 'color'"),
    ('with kscope.region(*("a",)): x[0] = 1', "write the arguments out"),
    ('with kscope.region("a", n): x[0] = 1', "a region takes its value by name: value=n"),
    ('with kscope.instant("a"): x[0] = 1', "records a point in time, not a span"),
    ('with kscope.region("a", value=True): x[0] = 1', "the bool True"),
    ('with kscope.region("a", value=n > 3): x[0] = 1', "is a bool"),
    ('with kscope.region("a", value=x): x[0] = 1', "array(float32, 1d, C)"),
    ('with kscope.region("a", value=(n, n)): x[0] = 1', "UniTuple"),
    ('kscope.instant("a", value=x)', "array(float32, 1d, C)"),
    ("kscope.instant(n)", "n is a variable of the kernel"),
    ('kscope.counter("a")', "missing 1 required positional argument: 'value'"),
    ('kscope.region("a").pin(x)', "expected a number"),
    ('with kscope.region("a") as (b, c): x[0] = 1', "expected one name"),
    ('with kscope.regoin("a"): x[0] = 1', "with kscope.regoin('a'): kscope has no regoin; did you mean region?"),
    ('with kscope.region("a"), cuda.pinned(x): x[0] = 1', "with cuda.pinned(x): expected kscope.region(name)"),
])  # fmt: skip
def test_errors_quote_the_code_and_its_location(enabled: Any, written: Written, statement: str, output: str) -> None:
    message = refused(written, statement, UsageError)
    assert output in message
    assert ".py:9" in message


class Refused(scope):
    def __init__(self, name: str) -> None:
        raise UsageError(f"{__file__} is not the name of a region: {name}")


def test_a_place_in_the_text_of_an_error_is_not_taken_for_its_own() -> None:
    def kernel() -> None: ...

    with pytest.raises(UsageError, match="is not the name") as caught:
        Evaluator(kernel, lambda node: node).scope(ast.parse("Refused('load')", mode="eval").body)
    assert caught.value.where == f"{__file__}:1"


def test_numba_errors_in_a_region_have_the_users_line(enabled: Any, written: Written) -> None:
    inner = 'with kscope.region("inner", value=n):\n        x[0] = x.no_such_attribute'
    body = f'with kscope.region("outer"):\n    {inner}\n    x[1] = 2'
    message = refused(written, body, TypingError)
    assert "no_such_attribute" in message
    assert ", line 11:" in message
    assert "x[0] = x.no_such_attribute" in message  # the line itself, as Numba shows it


def test_numba_errors_in_a_device_function_have_the_users_line(enabled: Any, written: Written) -> None:
    space = written("""
        @cuda.jit
        def helper(x):
            with kscope.region("helper"):
                return x + "a"

        @cuda.jit
        def kernel(x, n):
            with kscope.region("outer"):
                helper(n)
    """)
    with pytest.raises((TypingError, NumbaTypingError)) as caught:
        built(space["kernel"], SIGNATURE)
    assert f'{space["__file__"]}", line 10' in str(caught.value)
    assert 'return x + "a"' in str(caught.value)


@pytest.mark.parametrize("lto", [False, True])
@pytest.mark.parametrize("body", [
    'LOAD = kscope.scope("a")\nkscope.scope("a").enter()\nx[0] = 1',
    'if n > 3:\n    kscope.scope("a").enter()\nx[0] = 1\nkscope.scope("a").exit()',
])  # fmt: skip
def test_unpaired_calls_are_refused(enabled: Any, written: Written, body: str, lto: bool) -> None:
    body = body.removeprefix('LOAD = kscope.scope("a")\n')
    message = refused(written, body, PairingError, lto=lto)
    assert "kernel kernel: region 'a'" in message
    assert ".py:9" in message or ".py:10" in message


@pytest.mark.filterwarnings("ignore:Context.call_conv:DeprecationWarning")  # Numba's own, of such a function
@pytest.mark.parametrize("lto", [False, True])
@pytest.mark.parametrize("body", [
    'with kscope.region("deeper"):\n    return 0 if i < 1 else depth(i - 1) + 1',
    "return 0 if i < 1 else depth(leaf(i) - 1) + 1",
])  # fmt: skip
def test_regions_in_a_recursive_function(enabled: Any, written: Written, body: str, lto: bool) -> None:
    """Also in its callees."""
    space = written("""
        @cuda.jit
        def leaf(i):
            with kscope.region("deeper"):
                return i

        @cuda.jit
        def depth(i):
            BODY

        @cuda.jit
        def kernel(x, n):
            with kscope.region("outer"):
                x[0] = depth(n)
    """.replace("BODY", body.replace("\n", "\n            ")), __name__="__main__")  # fmt: skip
    output = r"kernel calls a recursive function that contains region 'deeper' \(.*\.py:(9|14)\)"
    with pytest.raises(UnsupportedError, match=output):
        ptx(built(space["kernel"], SIGNATURE, lto=lto))


def test_debug_builds_are_refused_by_name(enabled: Any, written: Written) -> None:
    message = refused(written, 'with kscope.region("load"):\n    x[0] = 1', UnsupportedError, debug=True, opt=False)
    assert "kernel is compiled with debug=True and has region 'load'" in message
    assert ".py:9" in message


def test_a_debug_build_without_regions_compiles(enabled: Any, written: Written) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            x[0] = n
    """)
    assert "kscope" not in built(space["kernel"], SIGNATURE, debug=True, opt=False).get_asm_str(cc=(9, 0))


def test_with_statements_without_source_are_refused(enabled: Any, tmp_path: Path) -> None:
    from numba import cuda

    import kscope

    space: dict[str, Any] = {"kscope": kscope, "cuda": cuda}
    text = '@cuda.jit\ndef kernel(x, n):\n    with kscope.region("a"):\n        x[0] = 1\n'
    exec(compile(text, "<no file>", "exec", dont_inherit=True), space)
    with pytest.raises(
        UnsupportedError, match=r"kernel \(<no file>:1\) has regions, and its source is not available.*LOAD.enter\(\)"
    ):
        built(space["kernel"], SIGNATURE)


def test_an_edited_file_is_refused(enabled: Any, written: Written) -> None:
    space = written("""
        @cuda.jit
        def kernel(x, n):
            with kscope.region("a"):
                x[0] = 1
    """)
    path = Path(space["__file__"])
    path.write_text(path.read_text().replace("x[0] = 1", "x[0] = 2"))
    linecache.clearcache()
    with pytest.raises(UnsupportedError, match="the file was edited since"):
        built(space["kernel"], SIGNATURE)


def test_two_types_of_one_name_are_refused(enabled: Any, written: Written) -> None:
    body = 'with kscope.region("a", value=n):\n    x[0] = 1\nwith kscope.region("a", value=x[0]):\n    x[0] = 1'
    space = written(
        "\n        @cuda.jit\n        def kernel(x, n):\n"
        + "".join(f"            {line}\n" for line in body.splitlines())
    )
    with pytest.raises(
        UsageError, match=r"kernel kernel: 'a' has a value of type f32 at one place and i64 at another \(\S+:\d+\)"
    ):
        ptx(built(space["kernel"], SIGNATURE))


@pytest.mark.parametrize("point", ["get_cubin", "_link_all", "llvm_strs"])
def test_a_missing_hook_point_is_named_and_nothing_is_changed(
    frontend: Any, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.delattr(CUDACodeLibrary, point)
    before = dict(vars(CUDACodeLibrary))
    with pytest.raises(
        UnsupportedError, match=rf"numba-cuda [\d.]+ has no numba\.cuda\.codegen\.CUDACodeLibrary\.{point}"
    ):
        frontend.enable(Recording())
    assert dict(vars(CUDACodeLibrary)) == before


@pytest.mark.parametrize(("installed", "output"), [("0.23.0", "0.23.0 is installed; kscope needs 0.24 or later")])
def test_an_old_version_is_refused(monkeypatch: pytest.MonkeyPatch, installed: str, output: str) -> None:
    monkeypatch.setattr(hook_points.metadata, "version", lambda name: installed)
    with pytest.raises(UnsupportedError, match=output):
        hook_points.version()


def test_numbas_built_in_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> str:
        raise hook_points.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(hook_points.metadata, "version", gone)
    with pytest.raises(UnsupportedError, match="needs the package numba-cuda"):
        hook_points.version()
