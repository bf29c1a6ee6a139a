"""Launches: each library is reported once per context, and launches that record nothing are problems."""

from __future__ import annotations

import ctypes
import re
import sys
import textwrap
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, cast

import pytest
from cutlass.base_dsl import jit_executor

from kscope.capture.model import ModuleMeta, Problem
from kscope.instrument import registry
from kscope.instrument.live_objects import live_objects
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.marks.strategies import AllThreads
from kscope.session import host_info
from kscope_cute import libraries, load

from .conftest import VERSION, Gpu, Made, arguments, compile, source
from .test_caches import call

BODY = 'with region("one"):\n    x[thread] = 1.0'


class Loaded:
    """A stand-in for CuTe's CudaDialectJitModule, which a JitExecutor launches."""

    def __init__(self, *handles: int) -> None:
        self.cuda_library = list(handles)
        self.execution_args = None
        self.calls = 0

        def capi_func(packed: Any) -> None:
            self.calls += 1

        capi_func.restype = ctypes.c_int32  # type: ignore[attr-defined]  # as of a ctypes function
        self.capi_func = capi_func


def launch(loaded: Loaded) -> None:
    jit_executor.JitExecutor(loaded, None, False).run_compiled_program([])


def test_a_library_is_reported_once_before_its_first_launch(gpu: Gpu, prepared: Any) -> None:
    loaded = Loaded(3)
    launch(loaded)
    launch(loaded)
    assert (gpu.loaded, loaded.calls, gpu.paces) == ([31], 2, 2)


def test_a_module_is_loaded_where_a_graph_capture_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Backend:
        @contextmanager
        def relaxed(self) -> Generator[None]:
            events.append("relaxed")
            yield
            events.append("as before")

    def get_module(library: int) -> tuple[int, int]:
        events.append("loaded")
        return 0, library * 10

    monkeypatch.setitem(registry._backends, "cuda", cast(Any, Backend()))
    monkeypatch.setattr(libraries, "driver", SimpleNamespace(CUlibrary=int, cuLibraryGetModule=get_module))
    assert libraries.module(3) == 30
    assert events == ["relaxed", "loaded", "as before"]


def test_devices_are_armed_on_first_use(gpu: Gpu, prepared: Any) -> None:
    loaded = Loaded(3)
    for gpu.current in (1, 2, 1):
        launch(loaded)
    assert gpu.loaded == [31, 32]


def test_older_executors_are_armed_when_launched_while_enabled(gpu: Gpu, frontend: Any) -> None:
    loaded = Loaded(5)
    executor = jit_executor.JitExecutor(loaded, None, False)
    executor.run_compiled_program([])
    assert gpu.loaded == []
    frontend.enable(Recording())
    executor.run_compiled_program([])
    assert gpu.loaded == [51]
    frontend.disable()
    executor.run_compiled_program([])
    assert gpu.paces == 1


def test_host_functions_without_kernels_are_not_armed(gpu: Gpu, prepared: Any) -> None:
    launch(Loaded())
    assert (gpu.loaded, gpu.paces) == ([], 0)


def test_a_kernel_compiled_before_is_named_when_it_is_launched(gpu: Gpu, frontend: Any) -> None:
    module = source(BODY)
    compile(module.host, *arguments())
    frontend.enable(Recording())
    assert frontend.problems() == ()
    launch(Loaded(2))
    (problem,) = frontend.problems()
    assert problem.kind == "plain"
    assert "kernel_cutlass_kernel_tensorptrf32_0 has regions in its source and none in its binary" in problem.text
    frontend.begin()
    assert frontend.problems() == ()
    launch(Loaded(2))
    assert frontend.problems() == (problem,)


def test_a_kernel_compiled_with_other_options_is_named_when_it_is_launched(gpu: Gpu, prepared: Any) -> None:
    loaded = Loaded(3)
    launch(loaded)
    assert prepared.problems() == ()
    prepared.enable(Recording(clock="globaltimer"))
    gpu.others = True
    launch(loaded)
    (problem,) = prepared.problems()
    assert problem.kind == "options"
    assert f"kernel {gpu.names[0]} was compiled with other recording options" in problem.text
    prepared.enable(Recording())
    launch(loaded)
    assert prepared.problems() == ()
    assert gpu.loaded == [31]


def test_a_kernel_from_the_disk_cache_warns_of_its_problems_once(gpu: Gpu, prepared: Any) -> None:
    problem = Problem("empty", "a region of a kernel that CuTe found on disk")
    gpu.metas = (ModuleMeta("cute", (), (), problems=(problem,)),)
    with pytest.warns(UserWarning, match=f"^kscope: {problem.text}$") as caught:
        launch(Loaded(3, 5))
    assert len(caught) == 1


def test_binaries_contain_a_symbol_of_their_recording_options(prepared: Any) -> None:
    module = source(BODY)
    symbols = []
    for recording in (Recording(), Recording(clock="globaltimer"), Recording(strategy=AllThreads())):
        prepared.enable(recording)
        symbols.append(prepared._compiler.options.encode())
        cubin = compile(module.host, *arguments()).cubin
        assert [symbol in cubin for symbol in symbols] == [*([False] * (len(symbols) - 1)), True]


def test_a_kernel_without_marks_is_not_named(gpu: Gpu, prepared: Any) -> None:
    gpu.names = ["kernel_cutlass_quiet_tensorptrf32_0"]
    quiet = source(before="@cute.kernel\ndef quiet(x: cute.Tensor):\n    x[0] = 1.0", body="x[thread] = 1.0")
    assert quiet.quiet
    launch(Loaded(2))
    assert prepared.problems() == ()


MARKED = "with kscope.region('a'):\n        x[0] = 1.0"
SHORTER = {
    "a kernel": f"@cute.kernel\ndef quiet(x: cute.Tensor):\n    {MARKED}",
    "a kernel without annotations": f"@cute.kernel\ndef quiet(x):\n    {MARKED}",
    "a function": f"def quiet(x):\n    {MARKED}",
    "a helper": f"@cute.jit\ndef quiet(x: cute.Tensor):\n    {MARKED}",
}


@pytest.mark.parametrize("shorter", SHORTER)
def test_a_symbol_is_not_matched_to_a_shorter_function_name(
    gpu: Gpu, prepared: Any, alone: Callable[[Any], Any], shorter: str
) -> None:
    gpu.names = ["kernel_cutlass_quiet_kernel_tensorptrf32_0"]
    before = f"{SHORTER[shorter]}\n\n@cute.kernel\ndef quiet_kernel(x: cute.Tensor):\n    x[0] = 1.0"
    kept = alone(source(before=before, body="x[thread] = 1.0"))
    assert kept.quiet_kernel
    launch(Loaded(2))
    assert prepared.problems() == ()


@pytest.mark.parametrize("shorter", SHORTER)
def test_a_symbol_is_not_matched_to_a_shorter_function_name_of_a_lost_kernel(
    gpu: Gpu, prepared: Any, alone: Callable[[Any], Any], shorter: str
) -> None:
    gpu.names = ["kernel_cutlass_quiet_kernel_tensorptrf32_0"]
    kept = alone(source(before=SHORTER[shorter].replace(MARKED, "x[0] = 1.0"), body="x[thread] = 1.0"))
    assert kept.quiet
    launch(Loaded(2))
    assert [problem.kind for problem in prepared.problems()] == ["plain"], "the kernel itself may have had regions"


FORMS = {
    "a method": (
        """
        class Gemm:
            @cute.kernel
            def method(self, x: cute.Tensor):
                BODY
        """,
        "Gemm().method(x)",
    ),
    "a method of an object with a text": (
        """
        from dataclasses import dataclass

        @dataclass
        class Gemm:
            tile: int = 4

            @cute.kernel
            def method(self, x: cute.Tensor):
                BODY
        """,
        "Gemm().method(x)",
    ),
    "no annotations": ("@cute.kernel\ndef bare(x, n):\n    BODY", "bare(x, n)"),
    "no annotations, a number first": ("@cute.kernel\ndef bare(n, x):\n    BODY", "bare(3, x)"),
    "no annotations, a run-time number first": ("@cute.kernel\ndef bare(n, x):\n    BODY", "bare(n, x)"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("statement", "kinds"), [("x[0] = 1.0", []), ("region('a').__enter__(); x[0] = 1.0", ["plain"])]
)
def test_a_kernel_of_any_form_compiled_before_is_named_if_it_has_regions(
    gpu: Gpu, frontend: Any, alone: Callable[[Any], Any], form: str, statement: str, kinds: list[str]
) -> None:
    before, call = FORMS[form]
    launched = f"""
@cute.jit
def launching(x: cute.Tensor, n: Int32):
    {call}.launch(grid=[2, 1, 1], block=[128, 1, 1])
"""
    module = alone(source("x[thread] = 1.0", before=textwrap.dedent(before).replace("BODY", statement) + launched))
    named_after(gpu, compile(module.launching, *arguments()))
    frontend.enable(Recording())
    launch(Loaded(2))
    assert [problem.kind for problem in frontend.problems()] == kinds


DEAD = """
@cute.jit
def helper(x, value: cutlass.Constexpr):
    if cutlass.const_expr(value > 9):
        with region("dead"):
            x[1] = 1.0
"""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Returns a module, and hides the functions of all others: tests have several kernels of one name and signature."""

    def alone(module: Any) -> Any:
        def live(*kinds: type) -> list[Any]:
            return [one for one in live_objects(*kinds) if one.__code__.co_filename == module.__file__]

        monkeypatch.setattr(load, "live_objects", live)
        return module

    return alone


def named_after(gpu: Gpu, made: Made) -> None:
    """Libraries have the kernel that was compiled."""
    (name,) = re.findall(r"\.entry\s+([\w$]+)", made.ptx)
    gpu.names = [name]


def test_regions_not_reached_by_tracing_are_no_problem(gpu: Gpu, prepared: Any, alone: Callable[[Any], Any]) -> None:
    module = alone(source("helper(x, 3)", before=DEAD))
    named_after(gpu, compile(module.host, *arguments()))
    launch(Loaded(2))
    assert prepared.problems() == ()


def test_a_lost_kernel_that_was_traced_without_marks_has_no_problem(
    gpu: Gpu, prepared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_after(gpu, compile(source("x[thread] = 1.0").host, *arguments()))
    monkeypatch.setattr(load, "live_objects", lambda *kinds: [])
    launch(Loaded(2))
    assert prepared.problems() == ()


def test_a_cached_kernel_whose_regions_are_unreachable_has_no_problem(
    gpu: Gpu, frontend: Any, alone: Callable[[Any], Any]
) -> None:
    if VERSION < (4, 8):
        pytest.skip("the kernel's symbol is kept from nvidia-cutlass-dsl 4.8 on")
    module = alone(source("helper(x, 3)", before=DEAD))
    call(module)
    gpu.names = [one._dsl_kernel_name for one in load.live_objects(FunctionType) if hasattr(one, "_dsl_kernel_name")]
    assert len(gpu.names) == 1
    frontend.enable(Recording())
    launch(Loaded(2))
    assert [problem.kind for problem in frontend.problems()] == ["plain"], "not traced since"
    call(module)
    launch(Loaded(2))
    assert frontend.problems() == ()


def test_a_kernel_without_selected_code_has_no_problem(gpu: Gpu, frontend: Any, alone: Callable[[Any], Any]) -> None:
    module = alone(source("x[thread] = 1.0"))
    frontend.enable(Recording(selection=Selection(("wait",))))
    named_after(gpu, compile(module.host, *arguments()))
    launch(Loaded(2))
    assert not [problem for problem in frontend.problems() if problem.kind == "plain"]
    frontend.enable(Recording(selection=Selection(("store",))))
    launch(Loaded(2))
    assert [problem.kind for problem in frontend.problems()].count("plain") == 1


def test_marks_in_helpers_and_methods_are_found(gpu: Gpu, prepared: Any) -> None:
    gpu.names = ["kernel_cutlass_method_Gemm_object_at_0x1_0"]
    kept = source(
        body="x[thread] = 1.0",
        before="""
        class Gemm:
            @cute.kernel
            def method(self, x):
                self.helper(x)

            def helper(self, x):
                with region("here"):
                    pass
        """,
    )
    assert kept.Gemm
    launch(Loaded(2))
    assert [problem.kind for problem in prepared.problems()] == ["plain"]


def test_plain_kernels_without_source_are_reported(gpu: Gpu, prepared: Any) -> None:
    gpu.names = ["kernel_cutlass_from_an_object_file_0"]
    launch(Loaded(2))
    assert [problem.kind for problem in prepared.problems()] == ["plain"]


def test_an_exported_object_file_keeps_the_lowered_binary(prepared: Any, tmp_path: Path) -> None:
    module = source(BODY)
    compiled = compile(module.host, *arguments()).compiled
    compiled.export_to_c(str(tmp_path), "made", function_prefix="made")
    assert b"kscope_ctl" in (tmp_path / "made.o").read_bytes()
    assert sys.modules["cutlass"]


def test_a_recording_states_the_version_of_the_dsl() -> None:
    assert host_info.facts(0)["versions"]["nvidia-cutlass-dsl"] == metadata.version("nvidia-cutlass-dsl")
