"""A driver for Triton that loads and launches nothing, so that JIT launches run without a GPU."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from kscope.instrument.recording import Recording

_HANDLES = itertools.count(1)


class FakeGpu:
    """Triton's active driver. `loaded`: (module, cubin) in order; `launched`: names of kernels."""

    def __init__(self, arch: int = 90) -> None:
        self.arch = arch
        self.loaded: list[tuple[int, bytes]] = []
        self.unloaded: list[int] = []
        self.launched: list[str] = []
        self.utils = SimpleNamespace(
            load_binary=self._load,
            unload_module=self.unloaded.append,
            get_device_properties=lambda device: {"max_shared_mem": 232448},
        )

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_active_torch_device(self) -> Any:
        raise AssertionError("no test uses torch")

    def _load(self, name: str, cubin: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        module = next(_HANDLES)
        self.loaded.append((module, cubin))
        return module, module * 1000, 32, 0, 1024

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(gridX: int, gridY: int, gridZ: int, stream: int, function: int, *rest: Any) -> None:
            _, described, enter, leave = rest[:4]
            enter(described)
            self.launched.append(metadata.name)
            leave(described)

        return launch


class Pointer:
    """An argument that Triton takes for a tensor."""

    def __init__(self, dtype: str = "fp32") -> None:
        import triton.language as tl

        self.dtype = getattr(tl, {"fp32": "float32", "i32": "int32"}[dtype])

    def data_ptr(self) -> int:
        return 0

    @staticmethod
    def ptr_range() -> int:
        return 0


def active(monkeypatch: pytest.MonkeyPatch, *kernels: Any) -> Iterator[FakeGpu]:
    """For a fixture: a fake GPU as Triton's active driver; the kernels are not in memory afterwards."""
    made = FakeGpu()
    monkeypatch.setattr(driver, "_active", made)
    yield made
    for fn in kernels:
        fn.device_caches.clear()
    gc.collect()  # 3.9 unloads the modules of dead kernels through the active driver


def record(frontend: Any, recording: Recording) -> None:
    """As a session does: enable recording, and begin to record."""
    frontend.enable(recording)
    frontend.begin()
