"""Kernels: compiled on first launch, loaded and launched through the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import hooks
from .tracing import trace

Dim = tuple[int, int, int]


class Kernel:
    """A function ``(tracer, out, n)`` as a kernel: ``kernel[grid, block, stream](out, n)``."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function, self.__name__ = function, function.__name__
        self._texts: dict[tuple[int, str], str] = {}
        self._loaded: dict[tuple[int, str], Any] = {}

    def ptx(self, arch: int) -> str:
        """Its PTX for sm_<arch>, through every pass."""
        key = arch, " ".join(part() for part in hooks.KEYS)
        if key not in self._texts:
            for before in hooks.TRACING:
                before(self.function)
            text = trace(self.function, arch)
            for change in hooks.PASSES:
                text = change(text)
            self._texts[key] = text
        return self._texts[key]

    def __getitem__(self, how: tuple[Dim, Dim, int]) -> Callable[[int, int], None]:
        """A function that launches it with an address and a number, on the current device."""
        grid, block, stream = how

        def launch(out: int, n: int) -> None:
            function = self._function()
            for before in hooks.LAUNCHING:
                before()
            arguments = [np.array([out], np.uint64), np.array([n], np.int32)]
            pointers = np.array([argument.ctypes.data for argument in arguments], np.uint64)
            _call("cuLaunchKernel", function, *grid, *block, 0, stream, pointers.ctypes.data, 0)

        return launch

    def _function(self) -> Any:
        """Loaded once per device and text."""
        device, arch = _capability()
        key = device, self.ptx(arch)
        if key not in self._loaded:
            module = _call("cuModuleLoadData", key[1].encode() + b"\0")
            for reported in hooks.LOADED:
                reported(int(module))
            self._loaded[key] = _call("cuModuleGetFunction", module, self.__name__.encode())
        return self._loaded[key]


def kernel(function: Callable[..., None]) -> Kernel:
    """The decorator."""
    return Kernel(function)


def _capability() -> tuple[int, int]:
    """The current device, and which PTX it takes."""
    from cuda.bindings import driver

    device = _call("cuCtxGetDevice")
    word = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    return int(device), min(10 * int(_call("cuDeviceGetAttribute", word, device)), 100)


def _call(name: str, *arguments: object) -> Any:
    from cuda.bindings import driver

    error, *found = getattr(driver, name)(*arguments)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{name}: {error}")
    return found[0] if found else None
