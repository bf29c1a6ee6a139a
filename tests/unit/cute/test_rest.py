"""A prepared process launches plain CuTe functions whenever no session records, and those with marks where it must."""

from __future__ import annotations

import ctypes
import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import synth
from cuda.bindings import driver
from cutlass import cute
from cutlass._mlir import ir
from cutlass.base_dsl import jit_executor

from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope_cute import assembler, libraries, plain_form
from kscope_cute.traced_module import launch_streams

from .conftest import Gpu, arguments, source
from .test_caches import BODY, call, jit_cache
from .test_loading import Loaded

STREAM, CAPTURED = 5, 6
ON_STREAM = """
from cuda.bindings import driver

@cute.jit
def on_stream(x: cute.Tensor, n: Int32, stream: driver.CUstream):
    kernel(x, n).launch(grid=[2, 1, 1], block=[128, 1, 1], stream=stream)
"""


def address(value: int) -> ctypes.c_void_p:
    """An argument of a host function: the address of a number."""
    number = ctypes.c_void_p(value)
    found = ctypes.c_void_p(ctypes.addressof(number))
    found.number = number  # type: ignore[attr-defined]  # keeps it
    return found


class Device:
    """A device whose launches do nothing.

    Attributes:
        plain: the plain modules that were compiled.
        smaller: whether fewer blocks of the plain form fit.
    """

    def __init__(self, frontend: Any, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frontend, self.gpu = frontend, gpu
        self.plain: list[Any] = []
        self.smaller = False
        compiled = plain_form._Source.compiled

        def compile_plain(made: Any) -> Any:
            self.plain.append(compiled(made))
            return self.plain[-1]

        monkeypatch.setattr(plain_form._Source, "compiled", compile_plain)
        monkeypatch.setattr(plain_form, "_load", lambda engine: [4])
        module = SimpleNamespace(CudaDialectJitModule=lambda *of: Loaded(*of[3]))
        monkeypatch.setattr(plain_form, "cuda_jit_executor", module)
        monkeypatch.setattr(libraries, "fits_less", lambda library, than: self.smaller)

    def executor(self, compiled: Any) -> Any:
        """An executor of a compiled function with marks, as if it were loaded."""
        loaded = Loaded(3)
        loaded.engine, loaded.execution_args = compiled.engine, compiled.execution_args  # type: ignore[attr-defined]
        return jit_executor.JitExecutor(loaded, None, False)

    def ran(self, executor: Any, *args: Any) -> str:
        """The form that a launch ran. args: addresses of the host function's arguments."""
        before = executor.jit_module.calls
        executor.run_compiled_program(list(args))
        return "marked" if executor.jit_module.calls > before else "plain"


@pytest.fixture
def device(prepared: Any, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(prepared, gpu, monkeypatch)


def compiled(module: Any, name: str = "host", *more: Any) -> Any:
    return cute.compile(getattr(module, name), *arguments(), *more)


def binary(module: Any) -> bytes:
    """The binary of a compiled host module's kernels."""
    with module.context:
        return bytes(ir.StringAttr(assembler._binary_of(module, "kernels").attributes["value"]).value_bytes)


def test_launches_run_plain_at_rest_and_with_marks_in_a_session(device: Device) -> None:
    executor = device.executor(compiled(source(BODY)))
    for _ in range(2):
        assert device.ran(executor) == device.ran(executor) == "plain"
        device.frontend.begin()
        assert device.ran(executor) == "marked"
        device.frontend.end()
    assert len(device.plain) == 1 and device.gpu.loaded == [31]  # compiled once; the plain one is not armed


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        'with region("loop"):\n    for k in range(n):\n        with region("step", value=k):\n            x[k] = 1.0',
        'for k in cutlass.range(n):\n    kscope.instant("odd", when=k % 2 == 1)\n    x[k] = x[k] + 1.0',
    ],
)
def test_the_plain_form_is_that_of_a_process_without_kscope(device: Device, body: str) -> None:
    module = source(body)
    device.ran(device.executor(compiled(module)))
    device.frontend.disable()
    assert binary(device.plain[0]) == binary(compiled(module).ir_module)


def test_a_graph_captures_the_form_with_marks(device: Device) -> None:
    device.gpu.captures = {CAPTURED: 9}
    x, n = address(1), address(4)
    executor = device.executor(compiled(source(BODY, ON_STREAM), "on_stream", driver.CUstream(0)))
    assert device.ran(executor, x, n, address(CAPTURED)) == "marked"
    assert device.ran(executor, x, n) == "marked"  # not the arguments of its host function
    assert device.plain == []  # nothing is compiled during a capture
    assert device.ran(executor, x, n, address(STREAM)) == "plain"
    assert device.ran(executor, x, n, address(CAPTURED)) == "marked"


def test_a_launch_into_the_default_stream_looks_for_its_capture(device: Device) -> None:
    executor = device.executor(compiled(source(BODY)))
    assert device.ran(executor, address(1), address(4)) == "plain"
    device.gpu.captures = {0: 9}
    assert device.ran(executor, address(1), address(4)) == "marked"


def test_the_streams_of_launches_are_found_in_the_host_code(frontend: Any) -> None:
    frontend.enable(Recording())
    found = traced(compiled(source(BODY)))
    with ir.Context():
        text = str(ir.Module.parse(found.code))
        assert launch_streams(ir.Module.parse(text)) == ()
        other = text.replace("arith.constant 0 : i64", "arith.constant 7 : i64")
        assert other != text and launch_streams(ir.Module.parse(other)) is None
        assert launch_streams(ir.Module.parse("module {}")) is None
    assert traced(compiled(source(BODY, ON_STREAM), "on_stream", driver.CUstream(0))).streams == (2,)


def traced(function: Any) -> Any:
    """kscope's data about a compiled function."""
    frontend: Any = registry.frontend("cute")
    return frontend._launches.forms._sources[function.engine].traced


def test_a_function_whose_module_has_variables_has_one_form(device: Device) -> None:
    device.gpu.metas = (replace(synth.module(), variables=True),)
    assert device.ran(device.executor(compiled(source(BODY)))) == "marked"


def test_a_function_whose_library_the_program_has_runs_one_form(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = compiled(source(BODY))
    executor = device.executor(function)
    assert device.ran(executor) == "plain"
    monkeypatch.setattr(function, "jit_module", SimpleNamespace(cuda_library=[3]))
    assert function.library == 3
    assert device.ran(executor) == "marked"


def test_a_plain_form_of_which_fewer_blocks_fit_does_not_run(device: Device) -> None:
    device.smaller = True
    executor = device.executor(compiled(source(BODY)))
    assert device.ran(executor) == device.ran(executor) == "marked"
    assert len(device.plain) == 1


def test_a_function_from_an_object_file_has_one_form(device: Device) -> None:
    class Engine:
        """Like CuTe's, which is of another type, and allows no weak references."""

        __slots__ = ()

    executor = device.executor(compiled(source(BODY)))
    executor.jit_module.engine = Engine()
    assert device.ran(executor) == "marked"


def test_a_plain_form_that_cannot_be_loaded_leaves_the_one_with_marks(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(engine: Any) -> list[Any]:
        raise RuntimeError("cudaErrorMemoryAllocation")

    monkeypatch.setattr(plain_form, "_load", fail)
    executor = device.executor(compiled(source(BODY)))
    assert device.ran(executor) == device.ran(executor) == "marked"
    assert len(device.plain) == 1


def test_a_plain_form_is_freed_with_its_function(device: Device) -> None:
    function = compiled(source(BODY))
    executor = device.executor(function)
    assert device.ran(executor) == "plain"
    engines = [weakref.ref(function.engine), weakref.ref(vars(executor.jit_module)[plain_form._FORM])]
    del function, executor
    gc.collect()
    assert [engine() for engine in engines] == [None, None]


def test_a_function_from_a_cache_has_two_forms(frontend: Any) -> None:
    module = source(BODY)
    frontend.enable(Recording())
    sources = frontend._launches.forms._sources
    for _ in range(2):  # the second one is from the disk
        sources.clear()
        call(module)
        (found,) = sources.values()
        assert found.traced.streams == () and b"kscope_ctl" not in binary(found.compiled())
        jit_cache().clear()


def test_a_function_without_marks_is_left_alone(frontend: Any) -> None:
    frontend.enable(Recording())
    sources = frontend._launches.forms._sources
    sources.clear()
    compiled(source("x[thread] = 1.0"))
    assert not sources
