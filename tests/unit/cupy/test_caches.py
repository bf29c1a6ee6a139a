"""Prepared and plain kernels stay apart in CuPy's caches, on disk and in memory, in every order."""

from __future__ import annotations

import gc
import itertools
import shutil
import subprocess
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cupy
import pytest
import synth
from cupy._core import _kernel, _reduction, raw
from cupy.cuda import compiler
from cupyx.jit import _compile

import kscope
from kscope.capture.model import Problem
from kscope.errors import UnsupportedError
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope_cuda import nvrtc
from kscope_cuda.cupy import functions, load

INCLUDE = ("-I" + kscope.cuda_include(),)
STATES = {
    "plain": None,
    "prepared": Recording(),
    "of 16 records": Recording(records=16),
    "by block": Recording(strategy=kscope.Lane0Warp0()),
}
ORDERS = [
    pytest.param(order, marks=[pytest.mark.slow] if number % 5 else [], id=", ".join(order))
    for number, order in enumerate(
        [("plain", "prepared", "plain", "prepared", "by block", "prepared"), *itertools.permutations(STATES)]
    )
]


def switch(frontend, state):
    if STATES[state] is None:
        frontend.disable()
    else:
        frontend.enable(STATES[state])


@pytest.mark.parametrize("order", ORDERS)
def test_the_disk_cache_returns_the_current_states_kernel(frontend, gpu, source, order):
    found: dict[str, set[bytes]] = {}
    for state in [*order, *reversed(order)]:
        switch(frontend, state)
        cubin = gpu.compile(source(), INCLUDE)
        assert (b"kscope_ctl" in cubin) == (state != "plain")
        found.setdefault(state, set()).add(cubin)
    assert all(len(cubins) == 1 for cubins in found.values())
    assert len({cubin for cubins in found.values() for cubin in cubins}) == len(found)
    assert len(gpu.compiled) == len(found)


def test_a_kernel_from_the_disk_cache_warns_of_its_problems_once(frontend, gpu, source):
    problem = Problem("empty", "a region of a kernel that CuPy found on disk")
    unmatched = Problem("unmatched", "compilers do not warn of it")
    gpu.backend.metas = (replace(synth.module(), problems=(problem, unmatched)),)
    frontend.enable(Recording())
    with pytest.warns(UserWarning, match=f"^kscope: {problem.text}$") as caught:
        assert all(gpu.compile(source(f"out[0] = {number};"), INCLUDE) for number in (1, 2, 2))
    assert len(caught) == 1


@pytest.mark.parametrize("after", ["plain", "by block"])
def test_a_state_that_another_thread_changes_waits_for_a_compilation(frontend, gpu, source, monkeypatch, after):
    switch(frontend, "prepared")
    lower, threads, waited = nvrtc.lower, [], []

    def changed(text, *args, **options):
        if ".entry" not in text:  # the first compilation of a process: CuPy's own, of an empty file
            return lower(text, *args, **options)
        threads.append(threading.Thread(target=switch, args=(frontend, after)))
        threads[0].start()
        threads[0].join(0.1)
        waited.append(threads[0].is_alive())
        return lower(text, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "lower", changed)
        first = gpu.compile(source(), INCLUDE)
    threads[0].join()
    assert waited == [True] and b"kscope_ctl" in first
    second = gpu.compile(source(), INCLUDE)
    assert second != first and (b"kscope_ctl" in second) == (after != "plain")
    switch(frontend, "prepared")
    assert gpu.compile(source(), INCLUDE) == first and len(gpu.compiled) == 2


@pytest.mark.parametrize("order", ORDERS)
def test_one_module_is_kept_per_state(frontend, gpu, source, order):
    module = cupy.RawModule(code=source(), options=INCLUDE)
    found: dict[str, set[int]] = {}
    for state in [*order, *reversed(order)]:
        switch(frontend, state)
        assert isinstance(module.module, functions.PreparedModule) == (state != "plain")
        found.setdefault(state, set()).add(id(module.module))
    assert all(len(modules) == 1 for modules in found.values())
    assert gpu.backend.loaded == len(found) - ("plain" in found)


def test_name_expressions_come_back_from_the_disk(frontend, gpu):
    code = """#include <kscope.cuh>
        template <class T> __global__ void kernel(T* out) { KSCOPE_REGION("work"); out[0] = 1; }"""
    names = ("kernel<int>", "kernel<float>")
    for state in ("plain", "prepared", "plain", "prepared"):
        switch(frontend, state)
        cubin = gpu.compile(code, INCLUDE, name_expressions=names)
        assert (b'["kernel<int>",' in cubin) == (state == "prepared")  # its name in the trace
        module = cupy.RawModule(code=code, options=INCLUDE, name_expressions=names)
        assert module.module.mapping == {"kernel<int>": "_Z6kernelIiEvPT_", "kernel<float>": "_Z6kernelIfEvPT_"}
    if hasattr(compiler, "_kernel_cache_backend"):  # before 14.1 CuPy compiles such modules in every process
        assert len(gpu.compiled) == 2


def test_a_changed_header_is_compiled_again(frontend, gpu, source, tmp_path, monkeypatch):
    copied = tmp_path / "include"
    shutil.copytree(kscope.cuda_include(), copied)
    monkeypatch.setattr(nvrtc, "cuda_include", lambda: str(copied))
    header = Path(copied, "kscope.cuh")
    for text in (header.read_text(), header.read_text() + "\n// another line\n", header.read_text()):
        header.write_text(text)
        frontend.enable(Recording())
        gpu.compile(source())
    assert len(gpu.compiled) == 2


def test_sources_without_macros_are_unchanged(frontend, gpu):
    frontend.enable(Recording())
    bare = 'extern "C" __global__ void kernel(int* out) { out[0] = 1; }'
    prepared = gpu.compile(bare)
    frontend.disable()
    assert gpu.compile(bare) == prepared
    assert len(gpu.compiled) == 1  # the same key
    assert gpu.backend.loaded == 0


def test_macros_included_through_a_user_header_are_lowered(frontend, gpu, tmp_path):
    Path(tmp_path, "mine.cuh").write_text('#include <kscope.cuh>\n#define MINE KSCOPE_REGION("mine")\n')
    code = '#include "mine.cuh"\nextern "C" __global__ void kernel(int* out) { MINE; out[0] = 1; }'
    frontend.enable(Recording())
    assert b"kscope_ctl" in gpu.compile(code, (f"-I{tmp_path}", *INCLUDE))


# modules with global variables

VARIABLE = "__constant__ int table[4];"


@pytest.mark.parametrize(
    "before",
    [
        VARIABLE, "__device__ int counter;", "__device__ __align__(16) float x[4] = {1};", "__managed__ int m;",
        "__device__ int counter{0};", "__device__ alignas(16) float x[4];", '#include "outer.cuh"',
        "#include <state.cuh>",
    ],
)  # fmt: skip
def test_a_module_with_variables_stays_as_it_was_loaded(frontend, gpu, source, before, tmp_path):
    Path(tmp_path, "state.cuh").write_text('#pragma once\n#include "outer.cuh"\n__device__ int counter;\n')
    Path(tmp_path, "outer.cuh").write_text("#pragma once\n#include <state.cuh>\n")
    module = cupy.RawModule(code=source(before=before), options=(f"-I{tmp_path}", *INCLUDE))
    plain = module.module
    frontend.enable(Recording())
    assert module.module is plain


@pytest.mark.parametrize("before", ["__device__ int twice(int n) { return 2 * n; }", "struct S { int n; };"])
def test_modules_with_device_functions_are_reloaded(frontend, gpu, source, before):
    module = cupy.RawModule(code=source(before=before), options=INCLUDE)
    plain = module.module
    frontend.enable(Recording())
    assert module.module is not plain


def test_a_prepared_module_with_variables_stays_prepared(frontend, gpu, source):
    frontend.enable(Recording())
    module = cupy.RawModule(code=source(before=VARIABLE), options=INCLUDE)
    prepared = module.module
    frontend.disable()
    assert module.module is prepared
    frontend.enable(Recording(records=16))
    assert module.module is prepared
    other = cupy.RawModule(code=source(), options=INCLUDE)
    frontend.disable()
    assert not isinstance(other.module, functions.PreparedModule)


# kernels that cache loaded code


def cache_of(kernel: cupy.RawKernel) -> list:
    (found,) = (found for found in gc.get_referents(kernel) if type(found) is list)
    return found


@pytest.fixture
def carried(monkeypatch):
    """Kernels whose settings were carried over."""
    kernels = []
    monkeypatch.setattr(load, "_copy_settings", lambda kernel, device, old: kernels.append(kernel))
    return kernels


def test_a_kernel_that_was_loaded_plain_is_loaded_again(frontend, gpu, source, carried):
    kernel = cupy.RawKernel(source(), "kernel", options=INCLUDE)
    bare = cupy.RawKernel('extern "C" __global__ void bare() {}', "bare")
    for each in (kernel, bare):
        cache_of(each).append(functions.function.Function.__new__(functions.function.Function))
    frontend.enable(Recording())
    assert cache_of(kernel) == [None]
    assert cache_of(bare) != [None]
    assert carried == [kernel]
    assert frontend.problems() == ()


class Plain(functions.function.Function):
    """Code that CuPy has loaded for a kernel without kscope; launching it does nothing."""

    def __init__(self):
        self.ptr, self.launches = 7, []

    def __call__(self, *args, **options):
        self.launches.append(("shaped", *args))

    def linear_launch(self, *args, **options):
        self.launches.append(("linear", *args))


def test_a_kernel_that_stays_plain_is_named_in_every_session_that_launches_it(frontend, gpu, source, carried):
    kernel, plain = cupy.RawKernel(source(before=VARIABLE, name="stays"), "stays", options=INCLUDE), Plain()
    cache_of(kernel).append(plain)
    for recording in (Recording(), Recording(records=8)):
        frontend.enable(recording)
        assert frontend.problems() == ()
        (launched,) = cache_of(kernel)
        assert launched.ptr == 7
        for launch in (launched, launched.linear_launch):
            frontend.begin()
            assert frontend.problems() == ()
            launch(1)
            (problem,) = frontend.problems()
            assert problem.kind == "plain"
            assert "kernel stays was loaded before recording was enabled" in problem.text
    frontend.disable()
    assert frontend.problems() == ()
    assert cache_of(kernel) == [plain]
    assert plain.launches == [("shaped", 1), ("linear", 1)] * 2


@pytest.mark.parametrize(
    ("dynamic", "static", "share", "copied"),
    [
        (49152, 0, -1, {}),
        (48128, 1024, -1, {}),
        (100_000, 1024, -1, {"max_dynamic_shared_size_bytes": 100_000}),
        (49152, 0, 50, {"preferred_shared_memory_carveout": 50}),
    ],
)
def test_settings_of_a_function_are_copied_to_its_successor(monkeypatch, dynamic, static, share, copied):
    driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=dynamic,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=static,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT=share,
        funcGetAttribute=lambda value, function: value,
    )
    devices = []
    device = SimpleNamespace(Device=lambda number: devices.append(number) or nullcontext())
    monkeypatch.setattr(load, "driver", driver)
    monkeypatch.setattr(load, "cupy", SimpleNamespace(cuda=device))
    kernel = SimpleNamespace()
    load._copy_settings(kernel, 3, SimpleNamespace(ptr=0))
    assert vars(kernel) == copied
    assert devices == [3]


def test_elementwise_kernel_memos_are_cleared_on_a_state_change(frontend, gpu):
    marked = cupy.ElementwiseKernel("int32 x", "int32 y", 'KSCOPE_REGION("twice"); y = 2 * x', "marked")
    bare = cupy.ElementwiseKernel("int32 x", "int32 y", "y = 2 * x", "bare")
    for kernel in (marked, bare):
        kernel._elementwise_kernel_memo["key"] = "loaded"
    frontend.enable(Recording())
    assert marked._elementwise_kernel_memo == {}
    assert bare._elementwise_kernel_memo == {"key": "loaded"}


def test_elementwise_kernel_caches_are_separate_per_state(frontend, gpu, monkeypatch):
    made = []

    def original(*args):
        return original.__wrapped__(*args)

    original.__wrapped__ = lambda *args: made.append(args) or len(made)
    monkeypatch.setattr(_kernel, "_get_elementwise_kernel", original)
    for state in ("prepared", "prepared", "by block", "prepared"):
        switch(frontend, state)
        _kernel._get_elementwise_kernel((), 'KSCOPE_REGION("a");')
    assert len(made) == 2
    frontend.disable()
    assert _kernel._get_elementwise_kernel is original


# hooks


POINTS = {
    "_compile_module_with_cache": lambda: compiler,
    "compile": lambda: compiler._NVRTCProgram,
    "compile_using_nvcc": lambda: compiler,
    "_get_raw_module": lambda: raw,
    "_get_elementwise_kernel": lambda: _kernel,
    "_ReductionKernel_get_cached_function": lambda: _reduction,
    "_transpile_stmt": lambda: _compile,
}


def hooks():
    return tuple(getattr(owner(), name) for name, owner in POINTS.items())


def test_every_hook_is_gone_after_disable(frontend, gpu):
    before = hooks()
    frontend.enable(Recording())
    frontend.enable(Recording(records=64))
    assert all(now is not then for now, then in zip(hooks(), before, strict=True))
    frontend.disable()
    frontend.disable()
    assert hooks() == before


@pytest.mark.parametrize("name", POINTS)
def test_hooks_installed_by_other_tools_stay(frontend, gpu, source, monkeypatch, name):
    owner = POINTS[name]()
    monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end
    frontend.enable(Recording())
    inner, calls = getattr(owner, name), []

    def theirs(*args, **options):
        calls.append(args)
        return inner(*args, **options)

    setattr(owner, name, theirs)
    frontend.disable()
    assert getattr(owner, name) is theirs
    plain = gpu.compile(source(), INCLUDE)
    assert b"kscope" not in plain
    for _ in range(2):  # with a hook in between, and wrapped again
        frontend.enable(Recording())
        frontend.enable(Recording(records=64))
        assert b"kscope_ctl" in gpu.compile(source(), INCLUDE)
    frontend.disable()
    assert getattr(owner, name) is theirs
    assert gpu.compile(source(), INCLUDE) == plain
    assert calls or name not in ("_compile_module_with_cache", "compile")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (compiler, "_compile_module_with_cache"),
        (compiler, "_NVRTCProgram"),
        (compiler, "compile_using_nvcc"),
        (raw, "_get_raw_module"),
        (_reduction, "_ReductionKernel_get_cached_function"),
        (_compile, "_transpile_stmt"),
    ],
)
def test_a_missing_hook_point_is_named_with_the_version(frontend, gpu, monkeypatch, module, name):
    monkeypatch.delattr(module, name)
    with pytest.raises(UnsupportedError, match=rf"cupy {cupy.__version__} has no {module.__name__}\.{name}"):
        frontend.enable(Recording())


def test_importing_the_frontend_patches_nothing(frontend, gpu):
    assert registry.frontend("cupy") is frontend
    assert all("kscope" not in str(getattr(hook, "__module__", "")) for hook in hooks())


# modules from files


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_a_cubin_that_records_in_place_is_armed_with_its_names(frontend, gpu, tmp_path, monkeypatch):
    code = (
        '#include <kscope.cuh>\nextern "C" __global__ void k(int* o) { KSCOPE_KERNEL(); KSCOPE_REGION("a"); o[0] = 1; }'
    )
    Path(tmp_path, "k.cu").write_text(code)
    nvcc = ["nvcc", "-cubin", "-arch=sm_90", *INCLUDE, "-DKSCOPE=1", tmp_path / "k.cu", "-o", tmp_path / "k.cubin"]
    subprocess.run(nvcc, check=True)

    class FromFile:
        ptr = 0

        def get_global_var(self, name):
            assert name == "kscope_ctl"
            return 4096

    def original(*args):
        return FromFile()

    original.__wrapped__ = FromFile
    monkeypatch.setattr(raw, "_get_raw_module", original)
    found = []
    monkeypatch.setattr(gpu.backend, "arm_control_block", lambda *arguments: found.append(arguments), raising=False)
    frontend.enable(Recording())
    raw._get_raw_module(None, str(tmp_path / "k.cubin"), (), "nvcc", False, False, None, None, None)
    ((address, metas),) = found
    assert address == 4096
    assert [kernel.name for meta in metas for kernel in meta.kernels] == ["k"]
    assert [region.name for meta in metas for region in meta.regions] == ["a"]


def test_kernels_that_the_collector_does_not_show_are_reported(frontend, gpu):
    gc.freeze()
    try:
        switch(frontend, "prepared")
        (problem,) = frontend.problems()
        assert problem.kind == "plain" and "gc.freeze() was called: kernels of CuPy" in problem.text
    finally:
        gc.unfreeze()
    switch(frontend, "by block")
    assert frontend.problems() == ()
