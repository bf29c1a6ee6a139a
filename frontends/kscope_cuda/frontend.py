"""The CUDA C++ frontend: arms libraries that nvcc built with kscope.cuh, and code that the program loaded."""

from __future__ import annotations

import ctypes
import os
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from kscope.capture.model import ModuleMeta, Problem
from kscope.errors import KscopeError, UsageError
from kscope.instrument import loaded_code, registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording

from . import exported_libraries
from .binary_metadata import FRONTEND, describe
from .header import CONTROL_FUNCTION
from .load import AnyLibrary, Library, load

_BUILT = {one.name for one in fields(ModuleMeta)} & {one.name for one in fields(Recording)}
"""Options that the metadata of a library has."""


class CudaFrontend(Frontend):
    """Part of every session after the first arm(). Nothing is compiled, so nothing is hooked."""

    name = FRONTEND

    def __init__(self) -> None:
        self._libraries: dict[object, Library] = {}  # by path; images, whose path may be empty, by metadata too
        self._recording = Recording()

    def described(self, code: bytes) -> tuple[ModuleMeta, ...]:
        """The notes of kernels that record in place."""
        try:
            return describe(code)
        except KscopeError:  # two names share a hash, so their regions cannot be distinguished
            return ()

    def bind(self, code: Any, image: Any) -> tuple[ModuleMeta, ...]:
        """See kscope.bind()."""
        if isinstance(code, ctypes.CDLL | ModuleType | str | os.PathLike):
            if image is not None:
                raise UsageError(
                    f"bind({code!r}, image): a shared object contains its names, so omit the image; it is for code "
                    "that is bound by a driver handle"
                )
            path, handle = load(code)
            exported = exported_libraries.handles(path, handle)
            metas = tuple(meta for library in exported for meta in self._bind_exported(path, library))
            if metas:
                loaded_code.keep(Path(path))
            if exported and not hasattr(handle, CONTROL_FUNCTION):
                return metas
            library = Library.of(path, handle)
            self._arm(library)
            self._libraries[library.path] = library
            return metas + library.metas
        if image is None:
            return registry.backend(self.backend).bind(code, ())
        loaded = Library.image(image)
        metas = registry.backend(self.backend).bind(code, loaded.metas)
        if metas == loaded.metas:
            self._libraries[loaded.path, metas] = loaded
        return metas

    def enable(self, recording: Recording) -> None:
        """Arm every library on the current device, which may differ from the one it was armed on."""
        self._recording = recording
        for library in self._snapshot():
            self._arm(library)

    def disable(self) -> None:
        """Do nothing: code built by nvcc does not change between sessions."""

    def problems(self) -> tuple[Problem, ...]:
        """Session options that differ from those of a library's build, explicit marks that do not pair, and regions
        without an instruction.
        """
        libraries = self._snapshot()
        of_code = tuple(problem for library in libraries for problem in library.problems)
        return of_code + tuple(
            Problem(
                "options",
                f"{library.path} was built with {option}={built}: the session's {option}={requested} has no effect on "
                f"code that nvcc compiled"
                + f"; build it with kscope_cuda.flags({option}=...)"
                * (option != "placement"),
            )
            for library in libraries
            for option, requested, built in sorted(self._differences(library))
        )

    def _snapshot(self) -> tuple[Library, ...]:
        """A copy: another thread may bind meanwhile."""
        return tuple(self._libraries.values())

    def _differences(self, library: Library) -> set[tuple[str, str, str]]:
        """Options that differ, as (option, the session's, the library's), where the session's is not the default."""
        usual = Recording().module(FRONTEND)
        now = replace(self._recording.module(FRONTEND), placement=self._recording.placement)
        values = ((one, getattr(now, one), getattr(meta, one)) for one in _BUILT for meta in library.metas)
        return {(one, here, built) for one, here, built in values if here not in (getattr(usual, one), built)}

    def _bind_exported(self, path: str, library: int) -> tuple[ModuleMeta, ...]:
        """Bind a CUlibrary that a shared object loaded."""
        backend = registry.backend(self.backend)  # first: its error is better if there is no GPU
        if not library:
            raise UsageError(f"{path}: its code does not load on the current GPU: export it for this one")
        return backend.bind(library, ())

    def _arm(self, library: Library) -> None:
        backend = registry.backend(self.backend)  # first: its error is better if there is no GPU
        for address in library.controls():
            backend.arm_control_block(address, library.metas)


def arm(library: AnyLibrary) -> None:
    """Let sessions record the kernels of a shared object that nvcc built with kscope.cuh.

    With several GPUs, call it once for each, with that device current; not inside a graph capture, because it may
    load device code. ``kscope.bind()`` does the same, and takes code that the driver loaded, too.

    Args:
        library: a ``ctypes.CDLL``, an extension module, or the file's path.

    Raises:
        UsageError: the library was built without kscope, or two of its names collide.
        MissingError: there is no GPU.
        DriverError: the library's device code does not load.
        OSError: its file cannot be read.
    """
    registry.frontend(FRONTEND).bind(library, None)
