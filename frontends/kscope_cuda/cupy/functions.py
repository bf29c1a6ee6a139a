"""CuPy's functions and modules while recording is enabled: they choose the form of a launch, delay and count launches
that record, and report those that cannot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kscope.instrument import registry
from kscope.instrument.launch_counts import LaunchCounts

from .hook_points import current_stream, function, runtime
from .plain_form import PlainForm, fitting, grid_of


@dataclass
class Launches:
    """State shared by the launches of all prepared kernels.

    Attributes:
        recording: True while a session records; launches run plain otherwise.
        counts: counts of launches that record.
        refused: kernels of launches that ran plain in the session, because of their grid.
        lock: held while a module is loaded.
    """

    recording: bool = False
    counts: LaunchCounts = field(default_factory=LaunchCounts)
    refused: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)


_HANDLE = function.Function.ptr
_MODULE = function.Module.ptr
"""CuPy's own attributes, which its compiled code reads without calling the properties below."""


def _is_captured(stream: Any) -> bool:
    """True if a launch into the stream, None for the current one, is captured by a graph, or may be."""
    try:
        return bool(runtime.streamIsCapturing((current_stream() if stream is None else stream).ptr))
    except RuntimeError:  # the legacy stream, while another stream is captured; a capture that has failed
        return True


class PreparedKernel(function.Function):
    """A function of a prepared module. Its handle is that of the form with marks, in every state: the program sets
    attributes of that form, and sizes grids by its occupancy.

    Attributes:
        name: the kernel's.
        handle: the driver's handle.
    """

    def __init__(self, module: PreparedModule, name: str) -> None:
        super().__init__(module, name)
        self.name, self.handle, self._number = name, _HANDLE.__get__(self), module.numbers.get(name)
        self._launches = module.launches
        self._plain: PlainForm | None = None

    @property
    def ptr(self) -> Any:
        """The handle, for the program, which may use it to set attributes now or later."""
        self.module.is_taken = True
        return _HANDLE.__get__(self)

    @ptr.setter
    def ptr(self, handle: Any) -> None:
        _HANDLE.__set__(self, handle)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._launches.recording or _is_captured(args[4] if len(args) > 4 else options.get("stream")):
            plain = self._instead(args, options)
        else:
            plain = self._at_rest()
            if plain is not None and plain.is_larger and self._must_be_marked(plain, args, options):
                plain = None
        if plain is not None:
            return plain.function(*args, **options)
        return self._launch(super().__call__, args, options)

    def linear_launch(self, *args: Any, **options: Any) -> Any:
        if not (self._launches.recording or _is_captured(args[4] if len(args) > 4 else options.get("stream"))):
            plain = self._at_rest()
            if plain is not None:
                return plain.function.linear_launch(*args, **options)
        return self._launch(super().linear_launch, args, options)

    def _at_rest(self) -> PlainForm | None:
        """The form of a launch that no session records; None for the one with marks."""
        plain = self._plain
        if plain is None:
            self._plain = plain = self.module.plain(self)
        if plain is not None and self.module.is_taken:
            plain.mirror.update()
        return plain

    def _must_be_marked(self, plain: PlainForm, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """True if the grid fits only because the plain form, which needs more of an SM, did not determine its size."""
        fits, of_plain = (fitting(one, args, options) for one in (self.handle, plain.function.ptr))
        return grid_of(args, options).is_sized_by(fits, instead_of=of_plain)

    def _instead(self, args: tuple[Any, ...], options: dict[str, Any]) -> PlainForm | None:
        """The plain form if a launch in a session or a graph must run it, because the grid size was computed
        for that.
        """
        found: PlainForm | None = None

        def of_plain() -> int:
            nonlocal found
            found = self.module.plain(self)
            if found is None:
                return 0
            found.mirror.update()
            return fitting(found.function.ptr, args, options)()

        if not grid_of(args, options).is_sized_by(of_plain, instead_of=fitting(self.handle, args, options)):
            return None
        self._launches.refused.add(self.name)
        return found

    def _launch(self, launch: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        registry.backend("cuda").pace(self.handle)
        stream = args[4] if len(args) > 4 else options.get("stream")
        counts = self._launches.counts.open((stream or current_stream()).ptr)
        result = launch(*args, **options)
        if counts is not None and self._number is not None:
            self._launches.counts.accepted(counts, self._number)
        return result


class PlainKernel(function.Function):
    """Wraps a function that stays plain, to report its launches."""

    def __init__(self, wrapped: Any, name: str, launched: set[str]) -> None:
        self.ptr, self.module = wrapped.ptr, wrapped.module
        self.wrapped, self._name, self._launched = wrapped, name, launched

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._launched.add(self._name)
        return self.wrapped(*args, **options)

    def linear_launch(self, *args: Any, **options: Any) -> Any:
        self._launched.add(self._name)
        return self.wrapped.linear_launch(*args, **options)


class PreparedModule(function.Module):
    """Takes over the handle of a prepared module that CuPy loaded.

    Attributes:
        numbers: kernel ids by the kernels' names.
        handle: the driver's handle.
        launches: shared state of the launches.
        is_taken: the program has read a handle, so it may set attributes of kernels.
        load_plain: compiles and loads the plain form of the module; None if its kernels have no other form.
    """

    def __init__(self, module: Any, launches: Launches) -> None:
        super().__init__()
        self.numbers: Mapping[str, int] = {}
        self.launches, self.is_taken = launches, False
        self.load_plain: Callable[[], Any] | None = None
        self._plain: Any = None
        self._forms: dict[int, PlainForm | None] = {}  # by handle: attributes belong to the handle
        self.handle = self.ptr = module.ptr
        module.ptr = 0  # only this one unloads it
        if module.mapping is not None:
            self._set_mapping(module.mapping)

    @property
    def ptr(self) -> Any:
        """The handle, for the program, which may look up kernels with it."""
        self.is_taken = True
        return _MODULE.__get__(self)

    @ptr.setter
    def ptr(self, handle: Any) -> None:
        _MODULE.__set__(self, handle)

    def get_function(self, name: Any) -> PreparedKernel:
        return PreparedKernel(self, name)

    def plain(self, kernel: PreparedKernel) -> PlainForm | None:
        """The plain form of one of its kernels, compiled and loaded when it is first needed; None if it has none."""
        handle = kernel.handle
        if handle not in self._forms:
            with self.launches.lock:
                if handle not in self._forms:
                    self._forms[handle] = self._make(kernel)
        return self._forms[handle]

    def _make(self, kernel: PreparedKernel) -> PlainForm | None:
        if self.load_plain is None:
            return None
        try:
            with registry.backend("cuda").relaxed():  # another thread may be capturing a graph
                self._plain = self._plain or self.load_plain()
                return PlainForm.of(self._plain.get_function(kernel.name), kernel.handle)
        except Exception:  # the compiler's or the driver's: the form with marks runs instead, and computes the same
            return None
