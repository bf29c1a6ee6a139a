"""Numba without a GPU: NVVM compiles for real, modules are never loaded."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba.cuda", reason="numba-cuda is not installed: make test-numba", exc_type=ImportError)

from contract import numba_offline  # after checking that it is installed
from cuda.bindings import nvrtc as bindings
from numba.cuda import dispatcher
from numba.cuda.core import entrypoints
from numba.cuda.cudadrv import driver, nvrtc

from kscope.capture.model import ModuleMeta
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope_numba import NumbaFrontend, load

_files = count()


class Backend:
    """A fake CUDA runtime. loaded: cubins that were launched; modules: those reported to it; metas: of each
    of them; captures: of graphs, by stream."""

    def __init__(self) -> None:
        self.loaded: list[bytes] = []
        self.modules: list[int] = []
        self.paced = 0
        self.metas: tuple[ModuleMeta, ...] = ()
        self.captures: dict[int, int] = {}

    def module_loaded(self, module: int) -> tuple[ModuleMeta, ...]:
        self.modules.append(module)
        return self.metas

    def is_open(self) -> bool:
        return True

    def capture(self, stream: int) -> int:
        return self.captures.get(stream, 0)

    def relaxed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pace(self, kernel: object = None) -> None:
        self.paced += 1


@pytest.fixture
def frontend() -> Iterator[Any]:
    """The frontend, disabled and without teach() before and afterwards."""
    entrypoints.init_all()  # where kscope is installed, Numba would do it in the midst of a test
    found = registry.frontend("numba")
    assert isinstance(found, NumbaFrontend)
    # each reset looks at every live object several times; a test that enabled recording by other means left that behind
    if found._taught or found._compiler.recording is not None:
        _reset(found)
    yield found
    _reset(found)


def _reset(found: Any) -> None:
    found._taught = True  # so that compiled kernels are plain again
    found.disable()
    found._taught = False
    found.disable()


@pytest.fixture
def enabled(frontend: Any) -> Any:
    """The frontend, enabled with the default recording."""
    frontend.enable(Recording())
    return frontend


@pytest.fixture
def taught(frontend: Any) -> Any:
    """The frontend after teach(): regions compile away while it is disabled."""
    frontend.teach()
    return frontend


@pytest.fixture
def nvrtc_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile CUDA C++ to PTX without the driver, whose version cuda.core would query."""
    original = nvrtc.compile

    def compile_cu(source: Any, name: str, cc: Any, ltoir: bool = False, **options: Any) -> Any:
        if ltoir:
            return original(source, name, cc, ltoir=True, **options)
        include = nvrtc.config.CUDA_NVRTC_EXTRA_SEARCH_PATHS
        flags = [f"-arch=compute_{cc[0]}{cc[1]}", "-rdc=true", *([f"-I{include}"] if include else [])]
        text = source if isinstance(source, bytes) else source.encode()
        _, program = bindings.nvrtcCreateProgram(text, name.encode(), 0, [], [])
        (failed,) = bindings.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        assert failed == bindings.nvrtcResult.NVRTC_SUCCESS
        _, size = bindings.nvrtcGetPTXSize(program)
        ptx = bytearray(size)
        bindings.nvrtcGetPTX(program, ptx)
        return driver.ObjectCode.from_ptx(bytes(ptx).rstrip(b"\0"), name=name), ""

    monkeypatch.setattr(nvrtc, "compile", compile_cu)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Any]:
    """Writes a module of kernels and imports it: its namespace. kscope, np and cuda are there."""

    def write(text: str, name: str | None = None, **known: Any) -> dict[str, Any]:
        path = tmp_path / (name or f"kernels{next(_files)}.py")
        path.write_text("import numpy as np\nfrom numba import cuda\n\nimport kscope\n\n" + textwrap.dedent(text))
        space: dict[str, Any] = {"__name__": path.stem, "__file__": str(path), **known}
        exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), space)
        return space

    return write


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A fake GPU: dispatchers compile and cache kernels as for a real one. While recording is enabled, launches run
    kernels with marks; test_rest.py tests which ones run plain."""
    backend = Backend()
    monkeypatch.setitem(registry._backends, "cuda", backend)
    monkeypatch.setattr(dispatcher._Kernel, "bind", lambda kernel: kernel._codelibrary.get_cubin(cc=numba_offline.CC))
    monkeypatch.setattr(
        dispatcher._Kernel,
        "launch",
        lambda kernel, *args: backend.loaded.append(kernel._codelibrary.get_cubin(cc=numba_offline.CC).code),
    )
    monkeypatch.setattr(dispatcher.config, "CUDA_LOW_OCCUPANCY_WARNINGS", 0)  # of small grids
    monkeypatch.setattr(load.LoadHooks, "_form", lambda hooks, kernel, launch: kernel)
    monkeypatch.setattr(load, "_kscope_users", type(load._kscope_users)())
    from numba.cuda.codegen import JITCUDACodegen

    monkeypatch.setattr(JITCUDACodegen, "magic_tuple", lambda codegen: ((13, 0), numba_offline.CC))
    with numba_offline.device():
        yield backend
