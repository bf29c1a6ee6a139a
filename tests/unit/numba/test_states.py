"""Kernels that dispatchers and the disk cache keep belong to one state, in every order of states and processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import synth
from numba import cuda
from numba.cuda import types
from numba.cuda.codegen import CUDACodeLibrary

from kscope.capture.model import Problem
from kscope.instrument.recording import Recording
from kscope.lowering import register_budget
from kscope_numba import load

from .conftest import Backend
from .reading import regions

Written = Callable[..., dict[str, Any]]
KERNELS = """
    @cuda.jit
    def helper(x, i):
        with kscope.region("helper"):
            return x[i] * 2

    @cuda.jit
    def kernel(x, n):
        x[0] = helper(x, n)

    @cuda.jit
    def bare(x, n):
        x[0] = n
"""
X = np.zeros(4, np.float32)


class Array:
    """An argument of a launch; nothing is copied."""

    _numba_type_ = types.Array(types.float32, 1, "C")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> object:
    """Replace module loading; returns the code that Numba launches."""
    function = SimpleNamespace(module=SimpleNamespace(handle=5))
    monkeypatch.setattr(CUDACodeLibrary, "get_cufunc", lambda library: function)
    driver = SimpleNamespace(cuLibraryGetModule=lambda library: int(library) + 70)
    monkeypatch.setattr(load, "_driver", SimpleNamespace(driver=driver))
    return function


def launch(kernel: Any, gpu: Backend) -> bytes:
    """The cubin that a launch runs."""
    kernel[128, 32](Array(), 3)
    return gpu.loaded[-1]


def is_marked(cubin: bytes) -> bool:
    return b"kscope_ctl" in cubin


def test_kernels_are_compiled_once_per_state(taught: Any, gpu: Backend, written: Written) -> None:
    kernel = written(KERNELS)["kernel"]
    plain = launch(kernel, gpu)
    assert not is_marked(plain)
    taught.enable(Recording())
    marked = launch(kernel, gpu)
    assert is_marked(marked)
    taught.enable(Recording(records=8))
    other = launch(kernel, gpu)
    assert is_marked(other) and other != marked
    compiled = dict(kernel.overloads)
    taught.disable()
    assert launch(kernel, gpu) is plain or launch(kernel, gpu) == plain
    taught.enable(Recording(records=8))
    assert dict(kernel.overloads) == compiled
    assert launch(kernel, gpu) == other


def test_kernels_without_regions_are_not_recompiled(taught: Any, gpu: Backend, written: Written) -> None:
    bare = written(KERNELS)["bare"]
    launch(bare, gpu)
    before = dict(bare.overloads)
    taught.enable(Recording())
    assert bare.overloads == before
    taught.disable()
    assert bare.overloads == before


def test_marked_kernels_stay_installed_without_teach(frontend: Any, gpu: Backend, written: Written) -> None:
    kernel = written(KERNELS)["kernel"]
    frontend.enable(Recording())
    marked = launch(kernel, gpu)
    frontend.disable()
    assert launch(kernel, gpu) == marked
    frontend.enable(Recording())
    assert launch(kernel, gpu) == marked


def test_kernels_with_fixed_signatures_are_compiled_again(taught: Any, gpu: Backend, written: Written) -> None:
    space = written("""
        @cuda.jit("void(float32[::1], int64)")
        def fixed(x, n):
            with kscope.region("fixed"):
                x[0] = n

        @cuda.jit
        def free(x, n):
            with kscope.region("free"):
                x[0] = n
    """)
    special = space["free"].specialize(Array(), 3)
    for state, marked in (("plain", False), ("on", True), ("plain", False), ("on", True)):
        taught.enable(Recording()) if state == "on" else taught.disable()
        for kernel in (space["fixed"], special, space["free"].specialize(Array(), 3)):
            assert is_marked(launch(kernel, gpu)) is marked
            assert kernel.specialized
            (compiled,) = kernel.overloads.values()
            assert ("kscope_ctl" in compiled.inspect_asm((9, 0))) is (marked and not compiled._codelibrary._lto)


@pytest.mark.parametrize("collected", ["", "inner", "inner outer"])
def test_callees_of_a_fixed_kernel_are_compiled_first_in_any_gc_order(
    taught: Any, gpu: Backend, written: Written, collected: str
) -> None:
    def made(name: str) -> None:
        if name in collected.split():
            gc.collect()  # old objects come after young ones

    gc.collect()
    space = written(
        """
        @cuda.jit("float32(float32)", device=True)
        def inner(v):
            with kscope.region("inner"):
                return v * 2

        made("inner")

        @cuda.jit("float32(float32)", device=True)
        def outer(v):
            return inner(v) + 1

        made("outer")

        @cuda.jit("void(float32[::1], int64)")
        def kernel(x, n):
            x[0] = outer(x[n])
        """,
        made=made,
    )
    try:
        taught.enable(Recording())
        assert b'"inner"' in launch(space["kernel"], gpu)
        assert taught.problems() == ()
    finally:  # Numba keeps device functions, and these the rest: later tests have no GPU to compile them for
        for name in ("inner", "outer", "kernel"):
            space[name].disable_compile(False)


def test_an_unrecordable_kernel_with_a_fixed_signature_is_reported_at_launch(
    taught: Any, gpu: Backend, written: Written, loads: object
) -> None:
    space = written("""
        @cuda.jit("void(float32[::1], int64)", debug=True, opt=False)
        def fixed(x, n):
            with kscope.region("fixed"):
                x[0] = n
    """)
    before = dict(space["fixed"].overloads)
    taught.enable(Recording())
    assert taught.problems() == ()
    (compiled,) = before.values()
    compiled._codelibrary.get_cufunc()  # as Numba begins each launch
    (problem,) = taught.problems()
    assert problem.kind == "plain" and "kernel fixed" in problem.text and "debug=True" in problem.text
    for launches in (0, 1, 0):
        taught.begin()
        for _ in range(launches):
            compiled._codelibrary.get_cufunc()
        assert taught.problems() == (problem,) * launches
    assert space["fixed"].overloads == before and space["fixed"].specialized
    taught.disable()
    assert space["fixed"].overloads == before


@pytest.mark.parametrize("lto", [False, True])
def test_inspection_shows_the_code_of_the_state(taught: Any, gpu: Backend, written: Written, lto: bool) -> None:
    kernel = cuda.jit(written(KERNELS)["kernel"].py_func, lto=lto)
    taught.enable(Recording())
    launch(kernel, gpu)
    (compiled,) = kernel.overloads.values()
    text = compiled.inspect_lto_ptx((9, 0)) if lto else compiled.inspect_asm((9, 0))
    assert list(regions(text)) == ["helper"]


@pytest.mark.parametrize("after", [None, Recording(records=1024)], ids=["plain", "other options"])
def test_code_generated_later_has_the_recording_of_its_kernel(
    taught: Any, gpu: Backend, written: Written, monkeypatch: pytest.MonkeyPatch, after: Recording | None
) -> None:
    """Numba holds no lock then: another thread may change the state at any time."""
    kernel, lower = cuda.jit(written(KERNELS)["kernel"].py_func, lto=False), register_budget.lower_to_fit
    taught.enable(Recording(records=8))
    launch(kernel, gpu)
    (compiled,) = kernel.overloads.values()
    expected = compiled.inspect_asm((9, 0))
    compiled._codelibrary._ptx_cache.clear()

    def lower_to_fit(*args: Any, **options: Any) -> Any:
        enter()
        return lower(*args, **options)

    def enter() -> None:
        taught.disable() if after is None else taught.enable(after)

    monkeypatch.setattr(register_budget, "lower_to_fit", lower_to_fit)
    assert compiled.inspect_asm((9, 0)) == expected
    compiled._codelibrary._ptx_cache.clear()
    if after is not None:
        assert compiled.inspect_asm((9, 0)) == expected


def test_a_kernel_from_the_disk_cache_warns_of_its_problems_once(frontend: Any, gpu: Backend, loads: object) -> None:
    problem = Problem("empty", "a region of a kernel that Numba found on disk")
    gpu.metas = (replace(synth.module(), problems=(problem,)),)
    frontend.enable(Recording())
    with pytest.warns(UserWarning, match=f"^kscope: {problem.text}$") as caught:
        assert all(CUDACodeLibrary(None, name, entry_name="kernel").get_cufunc() for name in ("first", "second"))
    assert len(caught) == 1


def test_a_module_is_reported_once_and_each_launch_is_paced(frontend: Any, gpu: Backend, loads: object) -> None:
    frontend.enable(Recording())
    library = CUDACodeLibrary(None, "library", entry_name="kernel")
    for _ in range(3):
        assert library.get_cufunc() is loads
    assert (gpu.modules, gpu.paced) == ([75], 3)
    frontend.disable()
    library.get_cufunc()
    assert (gpu.modules, gpu.paced) == ([75], 3)


CACHED = """
import kscope
from numba import cuda

@cuda.jit(cache=True)
def kernel(x, n):
    with kscope.region("work"):
        x[0] = n

@cuda.jit(cache=True)
def bare(x, n):
    x[0] = n
"""
FAKE = """
from contextlib import contextmanager
from contract import numba_offline
from numba.cuda import dispatcher, types
from numba.cuda.codegen import JITCUDACodegen

@contextmanager
def gpu():
    JITCUDACodegen.magic_tuple = lambda codegen: ((13, 0), (9, 0))
    dispatcher._Kernel.bind = lambda kernel: kernel._codelibrary.get_cubin(cc=(9, 0))
    with numba_offline.device():
        yield

def launch(kernel):
    compiled = kernel.compile((types.Array(types.float32, 1, 'C'), types.int64))
    return compiled._codelibrary.get_cubin(cc=(9, 0)).code
"""
SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from unit_numba_gpu import gpu, launch
import kscope_numba
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.marks.strategies import AllThreads
kscope_numba.teach()
if sys.argv[1] != "plain":
    registry.frontend("numba").enable(Recording() if sys.argv[1] == "on" else Recording(strategy=AllThreads()))
with gpu():
    import kernels
    code = launch(kernels.kernel)
    launch(kernels.bare)
hits = [sum(kernel.stats.cache_hits.values()) for kernel in (kernels.kernel, kernels.bare)]
print(hits[0], int(b"kscope_ctl" in code), int(b'"strategy":"all"' in code), hits[1])
"""


def test_the_disk_cache_serves_each_state_its_own(tmp_path: Path, root: Path) -> None:
    (tmp_path / "kernels.py").write_text(CACHED)
    (tmp_path / "unit_numba_gpu.py").write_text(FAKE)
    places = [str(root / part) for part in (".", "frontends", "runtime", "tests")]
    script = SCRIPT.format(paths=[str(tmp_path), *places])

    def run(state: str) -> tuple[int, ...]:
        """Hits, whether it is marked, whether every thread records, hits of the kernel without regions."""
        done = subprocess.run(
            [sys.executable, "-c", script, state], cwd=tmp_path, check=True, capture_output=True, text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        )  # fmt: skip
        return tuple(map(int, done.stdout.split()))

    assert run("on") == (0, 1, 0, 0)
    assert run("plain") == (0, 0, 0, 1)  # the bare kernel is the same in every state
    assert run("on") == (1, 1, 0, 1)
    assert run("lanes") == (0, 1, 1, 1)
    assert run("plain") == (1, 0, 0, 1)
