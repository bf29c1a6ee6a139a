"""kscope.bind(): modules loaded through the driver record, over a fake driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

import kscope
from kscope.capture.model import KernelMeta, ModuleMeta
from kscope.errors import DriverError, FormatError, UsageError
from kscope.instrument import registry
from kscope.session import states

from .conftest import MODULE, Bench
from .fake import FakeDriver, described

Make = Callable[..., Bench]
LIBRARY, KERNEL, FUNCTION = 0x70, 0x71, 0x72
POINTER = ctypes.POINTER(ctypes.c_void_p)


def handle(name: str, number: int) -> object:
    """A stand-in for cuda-bindings' type of that name, which converts to a number."""
    return type(name, (), {"__int__": lambda self: number, "__repr__": lambda self: f"<{name} {number:#x}>"})()


def module(number: int) -> object:
    return handle("CUmodule", number)


@pytest.fixture
def rig(bench: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A GPU with an unregistered module, as a library, and its kernel and function."""
    made = bench()
    made.driver.libraries[LIBRARY], made.driver.kernels[KERNEL], made.driver.functions[FUNCTION] = (
        MODULE,
        LIBRARY,
        MODULE,
    )
    monkeypatch.setattr(registry, "_frontends", {})
    monkeypatch.setattr(registry, "_backends", {"cuda": made.backend})
    monkeypatch.setattr(registry, "TABLE", {"cuda": registry.TABLE["cuda"]})
    monkeypatch.setattr("kscope.instrument.registry._announced", lambda path: {})
    yield made
    states.STATE.active = states.STATE.join = None
    kscope.disable()


HANDLES = {
    "CUmodule": module(MODULE),
    "CUlibrary": handle("CUlibrary", LIBRARY),
    "CUkernel": handle("CUkernel", KERNEL),
    "CUfunction": handle("CUfunction", FUNCTION),
    "cudaLibrary_t": handle("cudaLibrary_t", LIBRARY),
    "cudaKernel_t": handle("cudaKernel_t", KERNEL),
    "a number": LIBRARY,
    "a void pointer": ctypes.c_void_p(LIBRARY),
    "64 bits": ctypes.c_uint64(LIBRARY),
    "an object of cuda.core's": SimpleNamespace(handle=handle("CUlibrary", LIBRARY)),
    "a pointer to one": ctypes.pointer(ctypes.c_void_p(LIBRARY)),
}


@pytest.mark.parametrize("code", HANDLES.values(), ids=HANDLES)
def test_every_handle_leads_to_its_module(rig: Bench, code: object) -> None:
    assert kscope.bind(code) == ("kernel",)
    assert rig.gpu.bound(MODULE) != 0


def test_code_is_bound_before_and_during_a_session(rig: Bench) -> None:
    kscope.bind(LIBRARY)
    rig.gpu.module(9, meta=described(name="later"))
    with kscope.profile(pool=rig.pool) as prof:
        assert rig.gpu.memory(MODULE).gate["epoch"] != 0
        kscope.bind(module(9))
        assert rig.gpu.bound(9) == rig.gpu.bound(MODULE)
    assert rig.gpu.memory(MODULE).gate["epoch"] == 0
    assert [kernel.name for meta in prof.capture.modules for kernel in meta.kernels] == ["kernel", "later"]


def test_the_first_call_may_be_in_a_session(rig: Bench) -> None:
    with kscope.profile(pool=rig.pool) as prof:
        kscope.bind(LIBRARY)
        assert rig.gpu.memory(MODULE).gate["epoch"] != 0
    assert [kernel.name for meta in prof.capture.modules for kernel in meta.kernels] == ["kernel"]


def test_binding_again_changes_nothing(rig: Bench) -> None:
    kscope.bind(LIBRARY)
    bound = rig.gpu.bound(MODULE)
    kscope.bind(module(MODULE))
    assert rig.gpu.bound(MODULE) == bound
    assert len(rig.backend.modules()) == 1


def test_binding_works_during_a_graph_capture_on_the_same_thread(rig: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    call = FakeDriver._call
    monkeypatch.setattr(FakeDriver, "_call", lambda self, name: (modes.append(self.strict[-1]), call(self, name))[1])
    kscope.bind(LIBRARY)
    assert set(modes) == {1}
    assert rig.driver.strict == [0]


def test_plain_modules_are_refused_with_the_remedy(rig: Bench) -> None:
    rig.gpu.module(8, prepared=False)
    with pytest.raises(UsageError, match=r"no kscope marks.*compiled plain; compile them after kscope\.enable"):
        kscope.bind(module(8))


def test_bind_requires_the_file_if_the_module_has_no_names(rig: Bench) -> None:
    rig.gpu.module(9, meta=b"")
    with pytest.raises(UsageError, match=r"no kscope_meta.*kscope\.bind\(module, 'kernels\.cubin'\)"):
        kscope.bind(module(9))
    assert rig.gpu.bound(9) == 0
    reported = (ModuleMeta("cuda", (KernelMeta("of the file", 5, 8),), ()),)
    assert rig.backend.bind(module(9), reported) == reported
    assert rig.gpu.bound(9) != 0
    assert rig.backend.modules() == reported


def test_names_that_cannot_be_read_are_reported(rig: Bench) -> None:
    rig.gpu.module(9, meta=b"not JSON\0")
    with pytest.raises(FormatError, match="is not JSON"):
        kscope.bind(module(9))
    assert rig.gpu.bound(9) == 0
    assert rig.backend.problems() == ()


@pytest.mark.parametrize("code", [0, ctypes.c_void_p(), module(0), POINTER()], ids=["0", "void", "module", "pointer"])
def test_a_null_handle_is_refused(rig: Bench, code: object) -> None:
    with pytest.raises(UsageError, match=r"null"):
        kscope.bind(code)


@pytest.mark.parametrize("code", [None, 1.5, True, b"cubin", object()], ids=["None", "1.5", "True", "bytes", "object"])
def test_bind_refuses_other_objects(rig: Bench, code: object) -> None:
    with pytest.raises(UsageError, match=r"expected a CUfunction, .*the number of a CUlibrary, or a shared object"):
        kscope.bind(code)


def test_an_image_in_the_place_of_a_handle_is_not_printed_whole(rig: Bench) -> None:
    with pytest.raises(UsageError, match="expected a CUfunction") as refused:
        kscope.bind(b"cubin" * 10_000)
    assert len(str(refused.value)) < 300


def test_handles_unknown_to_the_driver_are_refused(rig: Bench) -> None:
    with pytest.raises(DriverError, match="cuLibraryGetModule failed: CUDA_ERROR_INVALID_HANDLE"):
        kscope.bind(0x666)


def test_no_gpu_is_current(rig: Bench) -> None:
    rig.driver.set_context(0)
    with pytest.raises(UsageError, match="no GPU is current in this thread"):
        kscope.bind(LIBRARY)


def test_the_simulator_refuses_bind() -> None:
    from kscope_sim import SimBackend, SimFrontend

    with pytest.raises(kscope.UnsupportedError, match="SimBackend has no driver"):
        SimBackend().bind(LIBRARY, ())
    with pytest.raises(kscope.UnsupportedError, match="the sim frontend cannot bind code"):
        SimFrontend().bind(LIBRARY, None)


def test_attributes_of_one_function_are_given_to_another(rig: Bench) -> None:
    rig.driver.attributes = {1: {8: 100_000, 9: 50}, 2: {8: 0}}
    rig.backend.copy_attributes(1, 2)
    assert rig.driver.attributes[2] == {8: 100_000, 9: 50}
