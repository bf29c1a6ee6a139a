"""A prepared process launches plain Numba kernels whenever no session records, and those with marks where it must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import synth
from contract import numba_offline
from numba.cuda import dispatcher
from numba.cuda.codegen import CUDACodeLibrary

from kscope.capture.model import ModuleMeta
from kscope.instrument import loaded_code
from kscope.instrument.recording import Recording
from kscope.instrument.two_forms import CARVEOUT, MAX_DYNAMIC_SHARED
from kscope.machine_code import elf, tools
from kscope_numba import load, plain_form

from .conftest import Backend
from .test_states import KERNELS, Array, Written, is_marked

FORM = load.LoadHooks._form
STREAM, CAPTURED = SimpleNamespace(handle=1), SimpleNamespace(handle=2)
SMS, MARKED = 10, 1000


class Driver:
    """kscope's queries of loaded kernels: handles from MARKED on are of modules with marks.

    Attributes:
        attributes: of functions, by handle.
        blocks: how many fit on an SM, of the plain form and the one with marks.
        reads: how many attributes were read.
    """

    CUkernel = CUfunction_attribute = int
    CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=16)

    def __init__(self) -> None:
        self.attributes: dict[int, dict[int, int]] = {}
        self.blocks, self.registers, self.reads = [2, 2], [32, 40], 0

    def cuKernelGetFunction(self, kernel: int) -> tuple[int, int]:  # noqa: N802  # the driver's
        return 0, kernel

    def cuCtxGetDevice(self) -> tuple[int, int]:  # noqa: N802
        return 0, 0

    def cuDeviceGetAttribute(self, number: int, device: int) -> tuple[int, int]:  # noqa: N802
        return 0, SMS

    def cuFuncGetAttribute(self, number: int, function: int) -> tuple[int, int]:  # noqa: N802
        self.reads += 1
        default = self.registers[function >= MARKED] if number == 4 else 0
        return 0, self.attributes.get(function, {}).get(number, default)

    def cuFuncSetAttribute(self, function: int, number: int, value: int) -> tuple[int]:  # noqa: N802
        self.attributes.setdefault(function, {})[number] = value
        return (0,)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> tuple[int, int]:  # noqa: N802
        return 0, self.blocks[function >= MARKED]


class Device:
    """A device whose launches do nothing."""

    def __init__(self, frontend: Any, gpu: Backend, written: Written) -> None:
        self.frontend, self.gpu, self.written, self.driver = frontend, gpu, written, Driver()

    def kernel(self, text: str = KERNELS) -> Any:
        """A kernel with marks, of a module that is written now."""
        return self.written(text)["kernel"]

    def ran(self, kernel: Any, blocks: int = 3, stream: Any = None) -> str:
        """The form that a launch ran."""
        if stream is None:
            kernel[blocks, 32](Array(), 3)
        else:
            (compiled,) = kernel.overloads.values()
            compiled.launch((), (blocks, 1, 1), (32, 1, 1), stream)
        return "marked" if is_marked(self.gpu.loaded[-1]) else "plain"


def _recorded(backend: Backend, module: int) -> tuple[ModuleMeta, ...]:
    backend.modules.append(module)
    return backend.metas if module >= MARKED else ()


@pytest.fixture
def device(taught: Any, gpu: Backend, written: Written, monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device(taught, gpu, written)
    functions: dict[int, Any] = {}

    def get_cufunc(library: Any) -> Any:
        if id(library) not in functions:
            number = len(functions) + MARKED * is_marked(library.get_cubin(cc=numba_offline.CC).code)
            functions[id(library)] = SimpleNamespace(
                library=library, handle=number, module=SimpleNamespace(handle=number)
            )
        return functions[id(library)]

    def bind(kernel: Any) -> None:
        kernel._codelibrary.get_cufunc()

    gpu.metas, gpu.captures = (synth.module(name="kernel"),), {2: 9}
    monkeypatch.setattr(Backend, "module_loaded", _recorded)
    monkeypatch.setattr(load.LoadHooks, "_form", FORM)
    monkeypatch.setattr(CUDACodeLibrary, "get_cufunc", get_cufunc)
    monkeypatch.setattr(dispatcher._Kernel, "bind", bind)
    monkeypatch.setattr(load, "_driver", SimpleNamespace(driver=SimpleNamespace(cuLibraryGetModule=int)))
    monkeypatch.setattr(load, "_binding", SimpleNamespace(CUlibrary=int, cuLibraryGetModule=int))
    monkeypatch.setattr(plain_form, "_driver", SimpleNamespace(binding=found.driver))
    taught.enable(Recording())
    return found


def test_launches_run_plain_at_rest_and_with_marks_in_a_session(device: Device) -> None:
    kernel = device.kernel()
    for _ in range(2):
        assert device.ran(kernel) == device.ran(kernel) == "plain"
        device.frontend.begin()
        assert device.ran(kernel) == device.ran(kernel) == "marked"
        device.frontend.end()
    assert len(device.gpu.modules) == 2  # each form is loaded once


def test_the_plain_form_is_that_of_a_process_without_kscope(device: Device) -> None:
    """Its device functions are plain, too, though those of the form with marks are kept."""
    space = device.written(KERNELS)
    device.ran(space["kernel"])
    at_rest, kept = device.gpu.loaded[-1], dict(space["helper"].overloads)
    device.frontend.disable()
    device.ran(space["kernel"])
    assert len(at_rest) == len(device.gpu.loaded[-1]) and not is_marked(at_rest)  # Numba numbers its symbols
    device.frontend.enable(Recording())
    assert kept and dict(space["helper"].overloads) == kept


def test_a_kernel_that_ran_before_recording_was_enabled_is_not_compiled_again(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.frontend.disable()
    kernel = device.kernel()
    device.ran(kernel)
    (plain,) = kernel.overloads.values()
    device.frontend.enable(Recording())
    forms = device.frontend._loads.forms
    assert device.ran(kernel) == "plain"
    (marked,) = kernel.overloads.values()
    assert forms._forms[marked].kernel is plain is not marked


def test_a_graph_captures_the_form_with_marks(device: Device) -> None:
    kernel = device.kernel()
    assert device.ran(kernel) == "plain"
    assert device.ran(kernel, stream=CAPTURED) == "marked"
    assert device.ran(kernel, stream=STREAM) == "plain"
    assert device.ran(kernel, stream=CAPTURED) == "marked"
    assert device.ran(kernel, stream=SimpleNamespace(handle=None)) == "marked"  # of unknown state


def test_a_session_in_a_plain_process_compiles_no_plain_form(device: Device) -> None:
    device.frontend.begin()
    assert device.ran(device.kernel(), blocks=SMS) == "marked"
    assert len(device.gpu.modules) == 1


def test_kernels_with_fixed_signatures_and_specialized_ones_have_two_forms(device: Device) -> None:
    fixed = device.kernel("""
        @cuda.jit("void(float32[::1], int64)")
        def kernel(x, n):
            with kscope.region("fixed"):
                x[0] = n
    """)
    assert device.ran(fixed) == "plain"
    special = device.kernel().specialize(Array(), 3)
    assert device.ran(special) == "plain"
    device.frontend.begin()
    assert device.ran(fixed) == device.ran(special) == "marked"


def test_a_cached_kernel_has_two_forms_in_every_process(device: Device) -> None:
    space = device.written(KERNELS.replace("@cuda.jit\n    def kernel", "@cuda.jit(cache=True)\n    def kernel"))
    assert device.ran(space["kernel"]) == "plain"
    path = Path(space["__file__"])
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), space)  # as another process
    again = space["kernel"]
    assert device.ran(again) == "plain"
    assert sum(again.stats.cache_hits.values()) == 1
    device.frontend.begin()
    assert device.ran(again) == "marked"


def test_attributes_that_the_program_sets_hold_for_the_plain_form(device: Device) -> None:
    kernel = device.kernel()
    device.ran(kernel)
    attributes, before = device.driver.attributes, device.driver.reads
    assert device.ran(kernel) == "plain" and device.driver.reads == before  # the program has no handle
    (marked,) = kernel.overloads.values()
    handle = marked._codelibrary.get_cufunc().handle
    assert handle >= MARKED
    device.driver.cuFuncSetAttribute(handle, MAX_DYNAMIC_SHARED, 100_000)
    assert device.ran(kernel) == "plain"
    (plain,) = attributes.keys() - {handle}
    assert plain < MARKED and attributes[plain] == {MAX_DYNAMIC_SHARED: 100_000}
    device.driver.cuFuncSetAttribute(handle, CARVEOUT, 50)
    device.ran(kernel)
    assert attributes[plain] == {MAX_DYNAMIC_SHARED: 100_000, CARVEOUT: 50}


def test_a_launch_in_a_session_waits_for_room_once(device: Device) -> None:
    kernel = device.kernel()
    device.ran(kernel)
    device.frontend.begin()
    (marked,) = kernel.overloads.values()
    for number in (1, 2):
        before = device.gpu.paced
        device.ran(kernel)
        marked._codelibrary.get_cufunc()  # as Numba's launch, which is not part of this device
        assert device.gpu.paced - before == 1, number


def test_a_plain_form_that_does_not_load_leaves_the_one_with_marks(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = device.kernel()
    monkeypatch.setattr(device.driver, "cuKernelGetFunction", lambda kernel: (2, None))
    assert device.ran(kernel) == device.ran(kernel) == "marked"
    device.frontend.begin()
    assert device.ran(kernel, blocks=SMS) == "marked"


def test_a_grid_sized_by_the_plain_forms_occupancy_is_refused_by_name(device: Device) -> None:
    kernel = device.kernel()
    device.driver.blocks = [2, 1]
    device.frontend.begin()
    assert device.ran(kernel, blocks=SMS) == "marked"
    assert device.frontend.problems() == ()
    assert device.ran(kernel, blocks=2 * SMS) == "plain"
    (problem,) = device.frontend.problems()
    assert problem.kind == "cooperative" and "kernel kernel: a launch is not recorded" in problem.text
    assert device.frontend.launches()[synth.KERNEL].direct == 1
    assert device.ran(kernel, blocks=2 * SMS + 1) == "marked"  # larger than either form allows


def test_a_plain_form_with_lower_occupancy_does_not_run_a_grid_that_fits_with_marks(device: Device) -> None:
    kernel = device.kernel()
    device.driver.blocks, device.driver.registers = [1, 2], [48, 40]
    assert device.ran(kernel, blocks=2 * SMS) == "marked"
    assert device.ran(kernel, blocks=SMS) == device.ran(kernel, blocks=2 * SMS + 1) == "plain"


def _linked(library: Any) -> None:
    library._linking_files = {"counter.o"}


def _set_up(library: Any) -> None:
    library._setup_functions = [print]


@pytest.mark.parametrize("change", [_linked, _set_up])
def test_a_kernel_whose_module_may_have_a_state_runs_one_form(device: Device, change: Callable[[Any], None]) -> None:
    kernel = device.kernel()
    device.frontend.begin()
    device.ran(kernel)
    (marked,) = kernel.overloads.values()
    change(marked._codelibrary)
    device.frontend.end()
    assert device.ran(kernel) == device.ran(kernel) == "marked"


def test_a_kernel_whose_module_has_variables_runs_one_form(device: Device) -> None:
    device.gpu.metas = (replace(synth.module(name="kernel"), variables=True),)
    kernel = device.kernel()
    assert device.ran(kernel) == "marked"


def test_a_kernel_that_does_not_compile_plain_runs_with_marks(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, calls = device.kernel(), []
    device.frontend.begin()
    device.ran(kernel)
    device.frontend.end()

    def fail(*arguments: Any, **options: Any) -> None:
        calls.append(1)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(dispatcher._Kernel, "__init__", fail)
    assert device.ran(kernel) == device.ran(kernel) == "marked"
    assert len(calls) == 1


def test_the_machine_code_of_marked_kernels_is_kept_for_samples_of_stalls(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_code, "_images", {})
    kernel = device.kernel()
    device.frontend.begin()
    assert device.ran(kernel) == "marked"
    (kept,) = loaded_code.kept_cubins()
    assert kept is device.gpu.loaded[-1]  # not a copy
    device.frontend.end()
    assert device.ran(kernel) == "plain" and list(loaded_code.kept_cubins()) == [kept]
    (symbol,) = tools.builds_in(kept)
    assert symbol in [one.name for one in elf.read(kept).symbols() if one.function]
