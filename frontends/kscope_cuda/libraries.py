"""Libraries that nvcc built with kscope.cuh, and code that somebody loaded: sessions record their kernels once they are
armed.
"""

from __future__ import annotations

import ctypes
import os
import reprlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kscope.capture.model import ModuleMeta, Problem
from kscope.errors import DriverError, UsageError
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.session.bind import Image

from . import messages, pairing_check
from .binary_metadata import FRONTEND, describe
from .header import CONTROL_FUNCTION

_NO_UNIT = -1
_ADVICE = {
    100: "no GPU that the library can use",
    209: "the library has no code for this GPU: compile it with -arch of this one",
    35: "the driver is older than the CUDA runtime that the library is linked with",
}
AnyLibrary = ctypes.CDLL | ModuleType | str | os.PathLike[str]


@dataclass(frozen=True)
class Library:
    """A loaded library, what its file says of its modules, and what is wrong with their marks. handle: None for the
    image of code that was bound by a handle of the driver's, which may be gone by now."""

    path: str
    handle: ctypes.CDLL | None
    metas: tuple[ModuleMeta, ...]
    problems: tuple[Problem, ...]

    @staticmethod
    def of(path: str, handle: ctypes.CDLL) -> Library:
        """Raises UsageError for what has nothing of kscope in it; OSError."""
        if not hasattr(handle, CONTROL_FUNCTION):
            raise UsageError(
                f"{path} was not built with kscope: include kscope.cuh, write KSCOPE_KERNEL() and regions, and compile "
                "with nvcc -DKSCOPE=1 -I$(python -m kscope include)"
            )
        data = Path(path).read_bytes()
        return Library(path, handle, describe(data, path), pairing_check.problems(data, path))

    @staticmethod
    def image(image: Image) -> Library:
        """What a file says of code that somebody loaded. Raises UsageError where that is nothing, OSError."""
        if isinstance(image, str | os.PathLike):
            data, what = Path(image).read_bytes(), os.fspath(image)
        elif isinstance(image, bytes | bytearray | memoryview):
            data, what = bytes(image), "the image"
        else:
            raise UsageError(f"image={reprlib.repr(image)}: expected the bytes of a cubin or fatbin, or its path")
        metas = describe(data, what)
        if not metas:
            raise UsageError(
                f"{what} has no names of kscope's: give the cubin or fatbin that the module was loaded from and that "
                "nvcc built with -DKSCOPE=1; leave it out where kscope itself compiled the module"
            )
        return Library(what, None, metas, pairing_check.problems(data, what))

    def controls(self) -> list[int]:
        """The addresses of the constants on the current device, one for each translation unit. Raises DriverError."""
        if self.handle is None:
            return []
        function, address, found = getattr(self.handle, CONTROL_FUNCTION), ctypes.c_uint64(), list[int]()
        while (result := int(function(len(found), ctypes.byref(address)))) != _NO_UNIT:
            if result:
                advice = _ADVICE.get(result, "")
                raise DriverError(f"cudaGetSymbolAddress in {self.path}", f"cudaError {result}", result, advice)
            found.append(address.value)
        return found


def _loaded(library: AnyLibrary) -> tuple[str, ctypes.CDLL]:
    if isinstance(library, ctypes.CDLL):
        if not library._name:
            raise UsageError("CDLL(None): the program itself has no file to read names from; arm a shared object")
        return library._name, library
    path = getattr(library, "__file__", None) if isinstance(library, ModuleType) else os.fspath(library)
    if path is None:
        raise UsageError(f"{library!r}: the module has no file; arm a shared object that nvcc built")
    return path, ctypes.CDLL(os.path.abspath(path))  # one that is loaded already is not loaded again


class CudaFrontend(Frontend):
    """Takes part in every session after the first arm(). Nothing is compiled, so there is nothing to hook."""

    name = FRONTEND

    def __init__(self) -> None:
        self._libraries: dict[object, Library] = {}  # by path; images also by what they say: bytes have no path
        self._recording = Recording()

    def bind(self, code: Any, image: Any) -> tuple[ModuleMeta, ...]:
        """See kscope.bind()."""
        if isinstance(code, ctypes.CDLL | ModuleType | str | os.PathLike):
            if image is not None:
                raise UsageError(
                    f"bind({code!r}, image): the names of a shared object are in its own file: leave it out; the image "
                    "of other code stands behind the handle that the driver gave for it"
                )
            path, handle = _loaded(code)
            said = messages.libraries(path, handle)
            metas = tuple(meta for library in said for meta in self._said(path, library))
            if said and not hasattr(handle, CONTROL_FUNCTION):
                return metas
            found = Library.of(path, handle)
            self._bind(found)
            self._libraries[found.path] = found
            return metas + found.metas
        if image is None:
            return registry.backend(self.backend).bind(code, ())
        about = Library.image(image)
        metas = registry.backend(self.backend).bind(code, about.metas)
        if metas == about.metas:
            self._libraries[about.path, metas] = about
        return metas

    def enable(self, recording: Recording) -> None:
        """What was armed on another device is armed on the current one as well."""
        self._recording = recording
        for library in self._known():
            self._bind(library)

    def disable(self) -> None:
        """Nothing to remove: what nvcc built stays as it is, and rests between sessions."""

    def problems(self) -> tuple[Problem, ...]:
        """Options of the session that differ from those that a library was built with, and explicit marks that do not
        pair in it."""
        unpaired = tuple(problem for library in self._known() for problem in library.problems)
        return unpaired + tuple(
            Problem(
                "options",
                f"{library.path} was built with {what}={built}: the session's {what}={wanted} does not reach code that "
                f"nvcc has compiled; build it with kscope_cuda.flags({what}=...)",
            )
            for library in self._known()
            for what, wanted, built in self._differences(library)
        )

    def _known(self) -> tuple[Library, ...]:
        """As they are now: another thread may bind more meanwhile."""
        return tuple(self._libraries.values())

    def _differences(self, library: Library) -> set[tuple[str, str, str]]:
        """(option, the session's, the library's) where the session's is not the default."""
        plain, wanted = Recording(), self._recording
        asked = {
            "strategy": (wanted.strategy.spec, plain.strategy.spec),
            "clock": (wanted.clock, plain.clock),
            "fill": (wanted.fill, plain.fill),
        }
        return {
            (what, now, getattr(meta, what))
            for what, (now, default) in asked.items()
            for meta in library.metas
            if now not in (default, getattr(meta, what))
        }

    def _said(self, path: str, library: int) -> tuple[ModuleMeta, ...]:
        """Arm a library of device code that a shared object named."""
        backend = registry.backend(self.backend)  # first: it says best that there is no GPU
        if not library:
            raise UsageError(f"{path}: its code does not load on the current GPU: export it for this one")
        return backend.bind(library, ())

    def _bind(self, library: Library) -> None:
        backend = registry.backend(self.backend)  # first: it says best that there is no GPU
        for address in library.controls():
            backend.arm_control_block(address, library.metas)


def arm(library: AnyLibrary) -> None:
    """Let sessions record the kernels of a shared object that nvcc built with kscope.cuh, from now on; kscope.bind()
    does so as well, and with code that the driver loaded.

    library: what ctypes.CDLL returned, an extension module, or the file's path. With several GPUs, call
    it once for each, with that device current. Not inside of a graph capture: device code may be loaded.

    Raises UsageError for a library without kscope, or names that cannot be told apart; MissingError where
    there is no GPU; DriverError where the library's code does not load; OSError for its file.
    """
    registry.frontend(FRONTEND).bind(library, None)
