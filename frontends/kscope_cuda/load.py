"""Code that nvcc built with kscope.cuh: metadata from its file, and the control blocks of a loaded library."""

from __future__ import annotations

import ctypes
import os
import reprlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from kscope.capture.model import ModuleMeta, Problem
from kscope.errors import DriverError, UsageError
from kscope.instrument import loaded_code
from kscope.lowering import empty_regions
from kscope.machine_code import fatbin
from kscope.session.bind import Image

from . import pairing_check
from .binary_metadata import describe
from .binary_notes import KERNEL, find
from .header import CONTROL_FUNCTION

_END = -1
_REMEDIES = {
    100: "the library cannot use a GPU",
    209: "the library has no code for this GPU: compile it with -arch of this one",
    35: "the driver is older than the CUDA runtime that the library is linked with",
}
AnyLibrary = ctypes.CDLL | ModuleType | str | os.PathLike[str]


@dataclass(frozen=True)
class Library:
    """A loaded library, or the image (handle None) of code that was bound by a driver handle.

    Attributes:
        path: its file.
        handle: the library.
        metas: its metadata.
        unpaired: problems of marks that do not pair.
        cubins: its machine code with regions, up to empty_regions.MAX_CUBIN bytes.
    """

    path: str
    handle: ctypes.CDLL | None
    metas: tuple[ModuleMeta, ...]
    unpaired: tuple[Problem, ...]
    cubins: tuple[bytes, ...]

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Marks that do not pair, and regions without an instruction. The first call disassembles the code."""
        notes = (note for cubin in self.cubins for note in find(cubin) if note.kind != KERNEL)
        places = {note.text: f"{note.file}:{note.line}" for note in notes}
        return *self.unpaired, *empty_regions.in_binaries(self.cubins, places, self._kernels)

    def _kernels(self, symbol: str) -> list[str]:
        """The kernels to which a symbol may belong: those whose identifier it is, or contains after its length."""
        names = [kernel.name for meta in self.metas for kernel in meta.kernels]
        plain = [name.partition("<")[0].rpartition("::")[2] for name in names]
        return [name for name, one in zip(names, plain, strict=True) if one == symbol or f"{len(one)}{one}" in symbol]

    @staticmethod
    def of(path: str, handle: ctypes.CDLL) -> Library:
        """Raises UsageError for a library built without kscope, OSError for its file."""
        if not hasattr(handle, CONTROL_FUNCTION):
            raise UsageError(
                f"{path} was not built with kscope: include kscope.cuh, write KSCOPE_KERNEL() and regions, and compile "
                "with nvcc -DKSCOPE=1 -I$(python -m kscope include)"
            )
        data = Path(path).read_bytes()
        return Library._of(data, path, handle, describe(data, path))

    @staticmethod
    def image(image: Image) -> Library:
        """Raises UsageError for an image built without kscope, OSError for its file."""
        if isinstance(image, str | os.PathLike):
            data, source = Path(image).read_bytes(), os.fspath(image)
        elif isinstance(image, bytes | bytearray | memoryview):
            data, source = bytes(image), "the image"
        else:
            raise UsageError(f"image={reprlib.repr(image)}: expected the bytes of a cubin or fatbin, or its path")
        metas = describe(data, source)
        if not metas:
            raise UsageError(
                f"{source} has no kscope names: pass the cubin or fatbin that the module was loaded from, built by "
                "nvcc -DKSCOPE=1; omit it if kscope compiled the module"
            )
        return Library._of(data, source, None, metas)

    @staticmethod
    def _of(data: bytes, source: str, handle: ctypes.CDLL | None, metas: tuple[ModuleMeta, ...]) -> Library:
        cubins, room = list[bytes](), empty_regions.MAX_CUBIN
        for cubin in fatbin.cubins(data):
            if any(note.kind != KERNEL for note in find(cubin)):
                fits = len(cubin) <= room
                loaded_code.keep(cubin, shared=fits)
                if fits:
                    cubins.append(cubin)
                    room -= len(cubin)
        return Library(source, handle, metas, pairing_check.problems(data, source), tuple(cubins))

    def controls(self) -> list[int]:
        """Addresses of the control blocks on the current device, one per translation unit. Raises DriverError."""
        if self.handle is None:
            return []
        function, address, found = getattr(self.handle, CONTROL_FUNCTION), ctypes.c_uint64(), list[int]()
        while (result := int(function(len(found), ctypes.byref(address)))) != _END:
            if result:
                remedy = _REMEDIES.get(result, "")
                raise DriverError(f"cudaGetSymbolAddress in {self.path}", f"cudaError {result}", result, remedy)
            found.append(address.value)
        return found


def load(library: AnyLibrary) -> tuple[str, ctypes.CDLL]:
    """Path and handle of a shared object. Raises UsageError if it has no file, OSError if it does not load."""
    if isinstance(library, ctypes.CDLL):
        if not library._name:
            raise UsageError("CDLL(None): the program itself has no file to read names from; arm a shared object")
        return library._name, library
    path = getattr(library, "__file__", None) if isinstance(library, ModuleType) else os.fspath(library)
    if path is None:
        raise UsageError(f"{library!r}: the module has no file; arm a shared object that nvcc built")
    return path, ctypes.CDLL(os.path.abspath(path))  # a loaded library is not loaded again
