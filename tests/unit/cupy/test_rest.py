"""A prepared process launches plain CuPy kernels whenever no session records, and those with marks where it must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import synth
from cupy._core import core

import kscope
from kscope.instrument.recording import Recording
from kscope.instrument.two_forms import CARVEOUT, MAX_DYNAMIC_SHARED
from kscope_cuda.cupy import functions, plain_form

INCLUDE = ("-I" + kscope.cuda_include(),)
MARKED, PLAIN, SMS = 7, 8, 10
STREAM, CAPTURED, BROKEN = (SimpleNamespace(ptr=number) for number in (1, 2, 3))


class Driver:
    """What CuPy's bindings read of kernels, by handle. blocks: how many fit on an SM."""

    CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 4, 1

    def __init__(self) -> None:
        self.attributes: dict[int, dict[int, int]] = {MARKED: {4: 40}, PLAIN: {4: 32}}
        self.blocks = {MARKED: 2, PLAIN: 2}
        self.read = 0

    def funcGetAttribute(self, attribute: int, function: int) -> int:  # noqa: N802  # CuPy's
        self.read += 1
        return self.attributes[function].get(attribute, 0)

    def funcSetAttribute(self, function: int, attribute: int, value: int) -> None:  # noqa: N802  # CuPy's
        self.attributes[function][attribute] = value

    def occupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> int:  # noqa: N802
        assert (threads, shared) == (64, 0)
        return self.blocks[function]


class Plain:
    """CuPy's function of a plain module. launches: forms that were launched."""

    def __init__(self, code: bytes, name: str, launches: list[str]) -> None:
        assert name == "kernel"
        self.ptr, self.code, self._launches = PLAIN, code, launches

    def __call__(self, *args: Any, **options: Any) -> None:
        self._launches.append("plain")

    linear_launch = __call__


class Device:
    """A device whose launches do nothing. launches: the forms that ran; last: the plain function that was loaded."""

    def __init__(self, frontend: Any, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frontend, self.gpu, self.driver = frontend, gpu, Driver()
        self.launches: list[str] = []
        self.plain: list[Plain] = []
        self.stream = STREAM
        monkeypatch.setattr(plain_form, "driver", self.driver)
        runtime = SimpleNamespace(
            streamIsCapturing=self._is_capturing, getDevice=lambda: 0, deviceGetAttribute=lambda number, device: SMS
        )
        monkeypatch.setattr(plain_form, "runtime", runtime)
        monkeypatch.setattr(functions, "runtime", runtime)
        monkeypatch.setattr(functions, "current_stream", lambda: self.stream)
        monkeypatch.setattr(functions.PreparedKernel, "_launch", lambda kernel, *launch: self.launches.append("marked"))

    def _is_capturing(self, stream: int) -> bool:
        if stream == BROKEN.ptr:
            raise RuntimeError("cudaErrorStreamCaptureImplicit")
        return stream == CAPTURED.ptr

    def kernel(self, source: str) -> Any:
        """A kernel of a module that was compiled and loaded now."""
        module: Any = core.compile_with_cache(source, INCLUDE, prepend_cupy_headers=False)
        load = module.load_plain

        def load_plain() -> Any:
            loaded = load()

            def get_function(name: str) -> Plain:
                self.plain.append(Plain(loaded.payload, name, self.launches))
                return self.plain[-1]

            return SimpleNamespace(get_function=get_function)

        module.load_plain = load and load_plain
        kernel = functions.PreparedKernel.__new__(functions.PreparedKernel)
        kernel.module, kernel.name, kernel.handle, kernel._launches = module, "kernel", MARKED, module.launches
        kernel.ptr, kernel._plain, kernel._number = MARKED, None, None
        return kernel

    def ran(self, kernel: Any, *more: Any, blocks: int = 3, **options: Any) -> str:
        """The form that a launch ran."""
        kernel((blocks,), (64,), (), *more, **options)
        return self.launches[-1]


@pytest.fixture
def device(frontend: Any, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Device:
    frontend.enable(Recording())
    return Device(frontend, gpu, monkeypatch)


def test_launches_run_plain_at_rest_and_with_marks_in_a_session(device: Device, source: Callable[..., str]) -> None:
    kernel = device.kernel(source())
    for _ in range(2):
        assert device.ran(kernel) == "plain"
        kernel.linear_launch(100, ())
        assert device.launches[-1] == "plain"
        device.frontend.begin()
        assert device.ran(kernel) == "marked"
        kernel.linear_launch(100, ())
        assert device.launches[-1] == "marked"
        device.frontend.end()
    assert len(device.plain) == 1  # loaded once


def test_the_plain_form_is_that_of_a_process_without_kscope(device: Device, source: Callable[..., str]) -> None:
    device.ran(device.kernel(source()))
    device.frontend.disable()
    assert device.plain[0].code == device.gpu.compile(source(), INCLUDE)
    assert b"kscope" not in device.plain[0].code


def test_a_session_in_a_plain_process_compiles_no_plain_form(device: Device, source: Callable[..., str]) -> None:
    device.frontend.begin()
    assert device.ran(device.kernel(source())) == "marked"
    assert len(device.gpu.compiled) == 1


def test_a_kernel_runs_plain_after_recording_was_disabled(device: Device, source: Callable[..., str]) -> None:
    kernel = device.kernel(source())
    device.frontend.begin()
    device.frontend.disable()
    assert device.ran(kernel) == "plain"


def test_a_graph_captures_the_form_with_marks(device: Device, source: Callable[..., str]) -> None:
    kernel = device.kernel(source())
    assert device.ran(kernel, stream=CAPTURED) == "marked"
    assert device.ran(kernel, 0, CAPTURED) == "marked"
    assert device.plain == []  # nothing is loaded during a capture
    assert device.ran(kernel, stream=STREAM) == "plain"
    device.stream = CAPTURED
    assert device.ran(kernel) == "marked"
    device.stream = BROKEN
    assert device.ran(kernel) == "marked"


@pytest.mark.parametrize(
    ("declared", "used"),
    [
        ("__device__ int counter;", "counter++"),
        ("__constant__ int table[4];", "table[n]"),
        ("__device__ int next() { static int calls; return calls++; }", "next()"),
    ],
)
def test_a_module_with_variables_runs_one_form(
    device: Device, source: Callable[..., str], declared: str, used: str
) -> None:
    text = source(f"out[0] = {used};", before=declared)
    device.gpu.backend.metas = (_metadata(device, text),)
    kernel = device.kernel(text)
    assert device.ran(kernel) == "marked"
    device.frontend.begin()
    assert device.ran(kernel) == "marked"
    assert device.plain == []


def _metadata(device: Device, text: str) -> Any:
    """Metadata of a module as the driver finds them, with what the compiled code says about variables."""
    code = device.gpu.compile(text, INCLUDE)
    return replace(synth.module(name="kernel"), variables=b'"variables":true' in code)


def test_a_module_without_variables_is_marked_as_such(device: Device, source: Callable[..., str]) -> None:
    assert not _metadata(device, source(body='printf("%d", n); out[0] = n;')).variables


def test_attributes_that_the_program_sets_hold_for_the_plain_form(device: Device, source: Callable[..., str]) -> None:
    kernel = device.kernel(source())
    attributes = device.driver.attributes
    device.driver.funcSetAttribute(kernel.ptr, MAX_DYNAMIC_SHARED, 100_000)
    assert device.ran(kernel) == "plain" and attributes[PLAIN][MAX_DYNAMIC_SHARED] == 100_000
    device.driver.funcSetAttribute(kernel.ptr, CARVEOUT, 50)
    device.frontend.begin()
    device.driver.funcSetAttribute(kernel.ptr, MAX_DYNAMIC_SHARED, 60_000)
    assert device.ran(kernel) == "marked"
    device.frontend.end()
    assert device.ran(kernel) == "plain"
    assert attributes[PLAIN][MAX_DYNAMIC_SHARED] == 60_000 and attributes[PLAIN][CARVEOUT] == 50


def test_two_kernels_of_one_function_share_its_attributes(device: Device, source: Callable[..., str]) -> None:
    one = device.kernel(source())
    other: Any = functions.PreparedKernel.__new__(functions.PreparedKernel)
    vars(other).update(vars(one))
    other.module, other.ptr = one.module, MARKED
    attributes = device.driver.attributes
    for kernel, size in ((one, 100_000), (other, 50_000), (one, 100_000)):
        device.driver.funcSetAttribute(kernel.ptr, MAX_DYNAMIC_SHARED, size)
        assert device.ran(kernel) == "plain" and attributes[PLAIN][MAX_DYNAMIC_SHARED] == size


def test_attributes_are_not_read_until_the_program_has_a_handle(device: Device, source: Callable[..., str]) -> None:
    kernel = device.kernel(source())
    kernel.module.is_taken = False  # arming the fake reads handles
    device.ran(kernel)
    before = device.driver.read
    device.ran(kernel)
    assert device.driver.read == before
    assert kernel.ptr == MARKED
    device.ran(kernel)
    assert device.driver.read > before


@pytest.mark.parametrize("options", [{}, {"enable_cooperative_groups": True}])
def test_a_grid_sized_by_the_plain_forms_occupancy_is_refused_by_name(
    device: Device, source: Callable[..., str], options: dict[str, Any]
) -> None:
    kernel = device.kernel(source())
    device.driver.blocks[MARKED] = 1
    device.frontend.begin()
    assert device.ran(kernel, blocks=SMS, **options) == "marked"
    assert device.frontend.problems() == ()
    assert device.ran(kernel, blocks=2 * SMS, **options) == "plain"
    (problem,) = device.frontend.problems()
    assert problem.kind == "cooperative" and "kernel kernel: a launch is not recorded" in problem.text
    assert device.ran(kernel, blocks=2 * SMS + 1, **options) == "marked"  # larger than either form allows
    device.frontend.begin()
    assert device.frontend.problems() == ()


def test_a_graph_captures_the_plain_form_of_a_grid_that_is_sized_by_it(
    device: Device, source: Callable[..., str]
) -> None:
    kernel = device.kernel(source())
    device.driver.blocks[MARKED] = 1
    assert device.ran(kernel, blocks=2 * SMS, stream=CAPTURED) == "plain"
    assert device.ran(kernel, blocks=SMS, stream=CAPTURED) == "marked"


def test_a_plain_form_with_lower_occupancy_does_not_run_a_grid_that_fits_with_marks(
    device: Device, source: Callable[..., str]
) -> None:
    device.driver.attributes[PLAIN][4] = 48
    device.driver.blocks[PLAIN] = 1
    kernel = device.kernel(source())
    assert device.ran(kernel, blocks=2 * SMS) == "marked"
    assert device.ran(kernel, blocks=SMS) == device.ran(kernel, blocks=2 * SMS + 1) == "plain"


def test_a_plain_form_that_cannot_be_loaded_leaves_the_one_with_marks(
    device: Device, source: Callable[..., str]
) -> None:
    kernel, calls = device.kernel(source()), []

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")

    kernel.module.load_plain = fail
    assert device.ran(kernel) == device.ran(kernel) == "marked"
    assert len(calls) == 1
