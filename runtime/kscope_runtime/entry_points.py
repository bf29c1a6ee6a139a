"""The driver's functions for compiled code."""

from __future__ import annotations

import ctypes
from dataclasses import astuple, dataclass
from functools import cache

_FUNCTIONS = (
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpy2DAsync_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
)


@dataclass(frozen=True)
class EntryPoints:
    """Addresses of the functions behind the driver's methods of these names."""

    read: int
    write: int
    write_column: int
    synchronize: int
    ready: int

    def name(self, address: int) -> str:
        """The function at an address."""
        return _FUNCTIONS[astuple(self).index(address)].removesuffix("_v2")


@cache
def entry_points() -> EntryPoints:
    """The entry points of the driver."""
    library = ctypes.CDLL("libcuda.so.1")
    return EntryPoints(*(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS))
