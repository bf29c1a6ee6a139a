"""Compiles Numba kernels without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.cuda import dispatcher
from numba.cuda.codegen import CUDACodeLibrary
from numba.cuda.core import sigutils

CC = (9, 0)


class Device:
    """A stand-in for a GPU with what the compiler queries."""

    name = b"offline"

    def __init__(self, cc: tuple[int, int]) -> None:
        self.compute_capability = cc


@contextmanager
def device(cc: tuple[int, int] = CC) -> Iterator[None]:
    """Make Numba see a GPU of this kind."""
    requested, ensured = dispatcher.get_current_device, CUDACodeLibrary._ensure_cc
    dispatcher.get_current_device = lambda: Device(cc)
    CUDACodeLibrary._ensure_cc = lambda library, given: given or cc
    try:
        yield
    finally:
        dispatcher.get_current_device, CUDACodeLibrary._ensure_cc = requested, ensured


def built(kernel: Any, signature: Any, cc: tuple[int, int] = CC, **options: Any) -> Any:
    """Compile a kernel and its device functions again for a signature; its code library."""
    arguments, _ = sigutils.normalize_signature(signature)
    with device(cc):
        made = dispatcher._Kernel(kernel.py_func, arguments, **{**kernel.targetoptions, **options})
    return made._codelibrary
