"""Functions of the fake driver that compiled code calls. Copies happen at once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from kscope import native
from kscope_runtime.entry_points import EntryPoints

from .fake import FakeDriver


class Points:
    """The driver's functions for compiled code. meanwhile: called in each wait. result: of waits. lasts: so many calls
    succeed before the context breaks; None for all."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None
        self.result, self.waits, self.calls = 0, 0, list[str]()
        self.lasts: int | None = None

    def of(self, driver: FakeDriver) -> EntryPoints | None:
        if not native.available():
            return None
        gpu = driver.gpus[0]

        def breaks(name: str) -> bool:
            self.calls.append(name)
            if self.lasts is not None and len(self.calls) > self.lasts:
                driver.broken = ("CUDA_ERROR_LAUNCH_FAILED", 719)
            return driver.broken is not None

        def read(to: int, source: int, size: int, stream: int) -> int:
            if breaks("read"):
                return 719
            ctypes.memmove(to, gpu.view(source, size).ctypes.data, size)
            return 0

        def write(to: int, source: int, size: int, stream: int) -> int:
            if breaks("write"):
                return 719
            ctypes.memmove(gpu.view(to, size).ctypes.data, source, size)
            return 0

        def write_column(about: int, stream: int, *_: int) -> int:
            if breaks("write_column"):
                return 719
            words = (ctypes.c_uint64 * 16).from_address(about)
            assert words[2] & 0xFFFFFFFF == 1 and words[9] & 0xFFFFFFFF == 2
            for row in range(words[15]):
                at = gpu.view(words[11] + row * words[13], words[14])
                ctypes.memmove(at.ctypes.data, words[3] + row * words[6], words[14])
            return 0

        def synchronize(stream: int, *_: int) -> int:
            if breaks("synchronize"):
                return 719
            self.waits += 1
            self.meanwhile()
            if driver.meanwhile:
                driver.meanwhile.pop(0)()
            return self.result

        def ready(stream: int, *_: int) -> int:
            if breaks("ready"):
                return 719
            return self.result

        kind = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_uint64,) * 4)
        functions = [kind(one) for one in (read, write, write_column, synchronize, ready)]
        driver.held += functions
        return EntryPoints(*(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions))
