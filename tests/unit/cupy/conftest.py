"""CuPy without a GPU: NVRTC compiles for real, but no module is loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

cupy = pytest.importorskip("cupy")

from cupy._core import core, raw  # noqa: E402  # after the check that it is there
from cupy.cuda import compiler, function  # noqa: E402

import kscope  # noqa: E402
from kscope.capture.model import ModuleMeta  # noqa: E402
from kscope.instrument import registry  # noqa: E402
from kscope_cuda.cupy import load as loading  # noqa: E402

cupy.disable_experimental_feature_warning = True  # cupyx.jit is
INCLUDE = ("-I" + kscope.cuda_include(),)


class Loaded(function.Module):
    """A module that keeps the code CuPy would give to the driver."""

    payload = b""
    made: ClassVar[list[Loaded]] = []

    def load(self, cubin: bytes) -> None:
        self.payload = cubin
        Loaded.made.append(self)


class Backend:
    """A fake of the CUDA runtime. loaded: modules; metas: of each module; captures: of graphs, by stream."""

    def __init__(self) -> None:
        self.loaded = 0
        self.metas: tuple[ModuleMeta, ...] = ()
        self.captures: dict[int, int] = {}

    def module_loaded(self, module: int) -> tuple[ModuleMeta, ...]:
        self.loaded += 1
        return self.metas

    def patched(self, cubin: bytes, ordinal: int) -> bytes:
        return cubin

    def is_open(self) -> bool:
        return True

    def capture(self, stream: int) -> int:
        return self.captures.get(stream, 0)

    def relaxed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pace(self, kernel: object = None) -> None:
        """Nothing fills up here."""


class Gpu:
    """A stand-in for the GPU. arch: the architecture that CuPy sees."""

    def __init__(self) -> None:
        self.arch, self.backend = "90", Backend()
        self.compiled: list[str] = []

    def compile(self, source: str, options: tuple[str, ...] = (), **rest: Any) -> bytes:
        """Compile the source through CuPy's compiler and caches, as RawModule and ElementwiseKernel do; the loaded
        code."""
        made = core.compile_with_cache(source, options, prepend_cupy_headers=False, **rest)
        assert isinstance(made, function.Module)
        return self.loaded()

    def loaded(self) -> bytes:
        """The last loaded module."""
        return Loaded.made[-1].payload


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    """A fake GPU, and CuPy's caches empty."""
    made = Gpu()
    monkeypatch.setattr(Loaded, "made", [])
    monkeypatch.setitem(registry._backends, "cuda", made.backend)
    monkeypatch.setattr(compiler, "_get_arch", lambda: made.arch)
    for_nvrtc = compiler._get_arch_for_options_for_nvrtc.__wrapped__
    monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", for_nvrtc)
    monkeypatch.setattr(compiler, "function", SimpleNamespace(Module=Loaded))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "disk"))
    if hasattr(compiler, "_kernel_cache_backend"):  # CuPy 14.1 and later have read it
        monkeypatch.setattr(compiler, "_kernel_cache_backend", compiler._DiskKernelCacheBackend(str(tmp_path / "disk")))
    monkeypatch.setattr(loading.runtime, "getDevice", lambda: 0)
    monkeypatch.setattr(raw, "_get_raw_module", functools.wraps(original := raw._get_raw_module.__wrapped__)(
        functools.lru_cache(None)(original)
    ))  # fmt: skip
    program = compiler._NVRTCProgram

    class Counted(program):
        def compile(self, options: Any = (), log_stream: Any = None) -> Any:
            if self.src:  # CuPy queries the version of an empty one
                made.compiled.append(self.src)
            return super().compile(options, log_stream)

    monkeypatch.setattr(compiler, "_NVRTCProgram", Counted)
    return made


@pytest.fixture
def frontend(gpu: Gpu) -> Iterator[Any]:
    """The CuPy frontend, disabled and untaught afterwards, before CuPy itself is put back."""
    found = registry.frontend("cupy")
    yield found
    found._loader.taught = False
    found._loader._kept.clear()
    found._loader._loaded.clear()
    found.disable()


@pytest.fixture
def source() -> Callable[..., str]:
    """Source of a C++ kernel with a region and surrounding code."""

    def make(body: str = "out[0] = n;", before: str = "", name: str = "kernel", include: bool = True) -> str:
        head = "#include <kscope.cuh>\n" if include else ""
        kernel = f'extern "C" __global__ void {name}(int* out, int n)'
        return f'{head}{before}\n{kernel} {{ KSCOPE_REGION("work"); {body} }}\n'

    return make
