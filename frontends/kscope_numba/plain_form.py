"""The plain forms of kernels that Numba compiled with marks, for launches outside sessions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from kscope.errors import DriverError
from kscope.instrument import registry
from kscope.instrument.two_forms import Grid, Mirror, is_larger

from . import linking
from .hook_points import check, module

_dispatcher: Any = module("dispatcher")
_driver: Any = module("cudadrv.driver")
_SETUPS = "_setup_functions", "_teardown_functions"
_SOURCE = ".cu"


@dataclass(frozen=True)
class Launch:
    """A launch's arguments, as those of Numba's _Kernel.launch().

    Attributes:
        args: the kernel's.
        griddim, blockdim: blocks of the grid, threads of a block.
        stream: a stream of Numba or cuda.core, or a number.
        sharedmem: bytes of dynamic shared memory.
    """

    args: Any
    griddim: tuple[int, ...]
    blockdim: tuple[int, ...]
    stream: Any = 0
    sharedmem: int = 0

    def stream_number(self) -> int | None:
        """The driver's number of the stream; None if it is unknown."""
        try:
            return int(getattr(self.stream, "handle", self.stream))
        except TypeError:
            return None


@dataclass(frozen=True)
class _Function:
    """A kernel as it is loaded on a device. handle: the driver's; sms: the device's."""

    handle: int
    sms: int

    @staticmethod
    def of(function: Any) -> _Function:
        """function: Numba's, on the current device."""
        binding = _driver.binding
        count = binding.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        sms = int(_checked("cuDeviceGetAttribute", count, _checked("cuCtxGetDevice")))
        return _Function(int(_checked("cuKernelGetFunction", binding.CUkernel(int(function.handle)))), sms)

    def fitting(self, launch: Launch) -> Callable[[], int]:
        """A function that returns how many blocks of a launch fit on an SM."""
        threads, shared = prod(launch.blockdim), launch.sharedmem
        return lambda: int(_checked("cuOccupancyMaxActiveBlocksPerMultiprocessor", self.handle, threads, shared))


@dataclass(frozen=True)
class _Loaded:
    """The plain form on a device.

    Attributes:
        function: the loaded kernel.
        mirror: gives it the attributes of the form with marks.
        is_larger: it needs more of an SM than the form with marks.
    """

    function: _Function
    mirror: Mirror
    is_larger: bool


@dataclass
class _PlainForm:
    """The plain form of a kernel. loaded: on each device, by the function of the form with marks."""

    kernel: Any
    loaded: dict[_Function, _Loaded] = field(default_factory=dict)

    def on_device_of(self, marked: _Function) -> _Loaded:
        """The plain form on the current device."""
        if marked not in self.loaded:
            with registry.backend("cuda").relaxed():  # another thread may be capturing a graph
                plain = _Function.of(self.kernel._codelibrary.get_cufunc())
            mirror = Mirror(_get, _set, marked.handle, plain.handle)
            self.loaded[marked] = _Loaded(plain, mirror, is_larger(_get, plain.handle, than=marked.handle))
        return self.loaded[marked]


class PlainForms:
    """Chooses the form of launches.

    Args:
        known: returns the plain kernel of a dispatcher and argument types that was compiled before, or None.
        unmarked: a context manager that takes a dispatcher: in it, this thread compiles plain code, including the
            functions that the dispatcher calls.

    Attributes:
        recording: True while a session records; launches run plain otherwise.
        taken: libraries whose function the program has got, so that it may set attributes.
        stateful: libraries whose module has variables, which a second module would have again.
        refused: names of kernels whose launches ran plain in the session, because of their grid.
    """

    def __init__(
        self, known: Callable[[Any, Any], Any], unmarked: Callable[[Any], AbstractContextManager[None]]
    ) -> None:
        self.recording = False
        self._known = known
        self.taken, self.stateful = WeakSet[Any](), WeakSet[Any]()
        self.refused: set[str] = set()
        self._unmarked = unmarked
        self._dispatchers = WeakKeyDictionary[Any, ref[Any]]()  # by kernel
        self._forms = WeakKeyDictionary[Any, _PlainForm | None]()  # by kernel with marks
        self._loaded = WeakKeyDictionary[Any, dict[int, _Function]]()  # the same, by Numba's function

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point."""
        check(_dispatcher.CUDADispatcher, "add_overload")
        check(_dispatcher._Kernel, "bind", "launch")
        check(_driver.binding, "cuKernelGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute")

    def add_overload(self, original: Any, dispatcher: Any, kernel: Any, *arguments: Any) -> Any:
        """Around the dispatcher's method: remembers whose kernel it is, which one from the disk cache does not know."""
        self._dispatchers[kernel] = ref(dispatcher)
        return original(dispatcher, kernel, *arguments)

    def at_rest(self, kernel: Any, launch: Launch) -> Any:
        """The kernel that a launch outside of sessions and graphs runs."""
        found, plain = self._here(kernel)
        if found is None or plain is None:
            return kernel
        marked = self._marked(kernel)
        if kernel._codelibrary in self.taken:
            plain.mirror.update()
        if plain.is_larger:  # a program sizes grids by the form with marks
            fits, of_plain = marked.fitting(launch), plain.function.fitting(launch)
            if _grid(kernel, launch, marked).is_sized_by(fits, instead_of=of_plain):
                return kernel
        return found.kernel

    def in_session(self, kernel: Any, launch: Launch) -> Any:
        """The kernel that a launch in a session or a graph runs: the plain one if the grid size was computed
        for that.
        """
        try:
            marked = self._marked(kernel)
        except DriverError:
            return kernel

        def of_plain() -> int:
            _, plain = self._here(kernel)
            return 0 if plain is None else plain.function.fitting(launch)()

        if not _grid(kernel, launch, marked).is_sized_by(of_plain, instead_of=marked.fitting(launch)):
            return kernel
        found, plain = self._here(kernel)
        assert found is not None and plain is not None
        plain.mirror.update()
        self.refused.add(getattr(self._dispatchers[kernel](), "__name__", kernel.entry_name))
        return found.kernel

    def _here(self, kernel: Any) -> tuple[_PlainForm | None, _Loaded | None]:
        """The plain form, and how it is loaded on the current device; None if it cannot be."""
        found = self._of(kernel)
        try:
            return found, None if found is None else found.on_device_of(self._marked(kernel))
        except Exception:  # the driver's: the form with marks runs instead, and computes the same
            self._forms[kernel] = None
            return None, None

    def _marked(self, kernel: Any) -> _Function:
        """The form with marks on the current device."""
        function = kernel._codelibrary.get_cufunc()
        loaded = self._loaded.setdefault(kernel, {})
        if id(function) not in loaded:  # Numba keeps it as long as the kernel
            loaded[id(function)] = _Function.of(function)
        return loaded[id(function)]

    def _of(self, kernel: Any) -> _PlainForm | None:
        """The plain form, compiled when it is first needed; None if there is none."""
        if kernel not in self._forms:
            with _dispatcher.global_compiler_lock:
                if kernel not in self._forms:
                    one = kernel._codelibrary in self.stateful or _has_one_form(kernel)
                    plain = None if one else self._compiled(kernel)
                    self._forms[kernel] = None if plain is None else _PlainForm(plain)
        return self._forms[kernel]

    def _compiled(self, kernel: Any) -> Any:
        found = self._dispatchers.get(kernel)
        dispatcher = None if found is None else found()
        if dispatcher is None:
            return None
        types = tuple(kernel.signature.args)
        if (plain := self._known(dispatcher, types)) is not None:
            return plain
        try:
            with self._unmarked(dispatcher):
                plain = dispatcher._cache.load_overload(types, dispatcher.targetctx)
                if plain is None:
                    plain = _dispatcher._Kernel(dispatcher.py_func, types, **dispatcher.targetoptions)
                    with registry.backend("cuda").relaxed():
                        plain.bind()
                    dispatcher._cache.save_overload(types, plain)
                return plain
        except Exception:  # the compiler's or the driver's: the form with marks runs instead, and computes the same
            return None


def _has_one_form(kernel: Any) -> bool:
    """True if a kernel's module may have a state that a second module would not have, or needs the launch to compile.

    PTX shows variables in the module itself, and in sources that LTO makes part of it.
    """
    library = kernel._codelibrary
    linked = library._linking_files
    opaque = any(not (library._lto and _is_source(one)) or linking.linked_uses_header(one) for one in linked)
    return opaque or any(getattr(library, name, None) for name in _SETUPS) or _needs_launch(kernel)


def _is_source(linked: Any) -> bool:
    return Path(linked).suffix == _SOURCE if isinstance(linked, str) else getattr(linked, "kind", "") == _SOURCE[1:]


def _needs_launch(kernel: Any) -> bool:
    return bool(getattr(kernel, "launch_config_sensitive", False))


def _grid(kernel: Any, launch: Launch, function: _Function) -> Grid:
    return Grid(tuple(launch.griddim), function.sms, bool(kernel.cooperative))


def _get(attribute: int, function: Any) -> int:
    return int(_checked("cuFuncGetAttribute", _driver.binding.CUfunction_attribute(attribute), function))


def _set(function: Any, attribute: int, value: int) -> None:
    _checked("cuFuncSetAttribute", function, _driver.binding.CUfunction_attribute(attribute), value)


def _checked(call: str, *arguments: Any) -> Any:
    """The value of a driver call. Raises DriverError."""
    status, *values = getattr(_driver.binding, call)(*arguments)
    if int(status) != 0:
        raise DriverError(call, getattr(status, "name", "unknown"), int(status))
    return values[0] if values else None
