"""Hooks on CuPy's caches of loaded kernels: one cache per state, and every prepared module is armed."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from inspect import unwrap
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from kscope.capture.model import ModuleMeta, Problem
from kscope.capture.wire import CTL_SYMBOL
from kscope.instrument import compile_warnings, loaded_code, registry
from kscope.instrument.hooks import Hook
from kscope.instrument.live_objects import frozen_objects, live_objects
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.auto import Selection
from kscope.instrument.two_forms import runs_plain_problem
from kscope.language.cuda_header import MACRO, source_uses_header, with_headers

from .. import nvrtc, select
from ..binary_metadata import describe_file
from . import hook_points
from .functions import Launches, PlainKernel, PreparedKernel, PreparedModule
from .hook_points import cub_reduction, cupy, driver, elementwise, interface, raw, reduction, runtime

_RAW, _UNCACHED = "_get_raw_module", "__wrapped__"
_JIT = "_JitRawKernel"
_MEMO, _CACHE, _CODES = "_elementwise_kernel_memo", "_cache", "_cached_codes"
_POINTS: tuple[tuple[Any, str], ...] = (
    (raw, _RAW),
    (elementwise, "_get_elementwise_kernel"),
    (reduction, "_ReductionKernel_get_cached_function"),
    (cub_reduction, "_SimpleCubReductionKernel_get_cached_function"),
)
_KERNEL = "__global__"
_VARIABLES = re.compile(r"__constant__|__managed__|__device__(?:[\w\s:<>,*&]|(?:__align__|alignas)\([^()]*\))*[;=\[{]")
_STATIC_LIMIT = 48 << 10
"""Bytes of static and dynamic shared memory that a kernel may use without opting in."""


class LoaderHooks:
    """The hooks on CuPy's caches in memory.

    Attributes:
        lock: held while a kernel is compiled and while recording is enabled or disabled, so that a kernel is compiled
            for the recording of its keys.
        launches: shared state of the launches of prepared kernels.
    """

    def __init__(self) -> None:
        self.launches = Launches()
        self.lock = self.launches.lock
        self._state = ""  # the recording's tag; "" = plain
        self._selection = Selection()
        self._hooks: dict[str, Hook] = {}
        self._uncached: dict[str, Callable[..., Any]] = {}  # CuPy's functions without their caches
        self._loaded: dict[Any, Any] = {}
        self._kept: dict[Any, Any] = {}  # modules with variables, loaded when recording was enabled
        self._jit: WeakKeyDictionary[Any, tuple[str, dict[str, Any]]] = WeakKeyDictionary()  # state, other caches
        self.taught = False  # teach() was called
        self._launched: set[str] = set()  # names of plain kernels
        self._hidden: tuple[Problem, ...] = ()  # objects that the last switch could not find
        self._thread = threading.local()

    @property
    def problems(self) -> list[Problem]:
        """Kernels launched since begin() that were loaded plain and cannot be replaced."""
        names = sorted(self.launches.refused)
        return [*self._hidden, *map(_stays_plain, sorted(self._launched)), *map(runs_plain_problem, names)]

    def begin(self) -> None:
        """Forget earlier launches."""
        self._launched.clear()
        self.launches.refused.clear()
        self.launches.counts.begin()

    def check(self) -> None:
        """Raise UnsupportedError naming the hook point that this CuPy lacks."""
        for module, name in _POINTS:
            hook_points.check(module, name)
            if name not in self._uncached:
                hook_points.check(hook_points.fetch(module, name), _UNCACHED)
        hook_points.check(interface, _JIT)

    def install(self, recording: Recording) -> None:
        """Load kernels for this recording from now on; loaded kernels are set aside."""
        for module, name in _POINTS:
            found = hook_points.fetch(module, name)
            if hasattr(found, _UNCACHED):  # else another tool's hook
                self._uncached[name] = unwrap(found)
            wrapper = self._raw_module if name == _RAW else partial(self._cached, name)
            self._hooks.setdefault(name, Hook(module, name, wrapper)).install()
        self._switch(recording.tag(), recording.selection)

    def remove(self) -> None:
        """Switch to plain. The hook on raw modules stays while it keeps modules."""
        for name in [name for name in self._hooks if not (name == _RAW and self._kept)]:
            self._hooks.pop(name).remove()
        self.launches.recording = False
        self._switch("", Selection())

    def prepared(self, module: Any, code: Iterable[bytes], load_plain: Callable[[], Any]) -> PreparedModule:
        """Arm a prepared module that CuPy compiled and loaded.

        Args:
            module: CuPy's.
            code: the code from which it was loaded.
            load_plain: compiles and loads the same source plain.
        """
        prepared = PreparedModule(module, self.launches)
        metas = self._arm(prepared.handle)
        prepared.numbers = {kernel.name: kernel.id for meta in metas for kernel in meta.kernels}
        for image in code if prepared.numbers else ():
            loaded_code.keep(image)
        if not any(meta.variables for meta in metas):  # each module has its own
            prepared.load_plain = load_plain
        return prepared

    def compiling(self) -> None:
        """Called when CuPy starts to compile a module: raises in a thread that only looks for a loaded one."""
        if getattr(self._thread, "only_loaded", False):
            raise _NotLoadedError

    def _arm(self, handle: int) -> tuple[ModuleMeta, ...]:
        metas = registry.backend("cuda").module_loaded(int(handle))
        compile_warnings.warn_once(problem for meta in metas for problem in meta.problems)
        return metas

    def _arm_file(self, module: Any, path: str) -> None:
        """Arm a module from a cubin or PTX that nvcc built with kscope.cuh, or that kscope prepared."""
        metas = describe_file(path)
        if metas:
            registry.backend("cuda").arm_control_block(int(module.get_global_var(CTL_SYMBOL)), metas)
        if metas or self._arm(module.ptr):
            loaded_code.keep(Path(path))

    # caches of CuPy

    def _cached(self, name: str, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        texts = [text for text in (*args, *options.values()) if isinstance(text, str)]
        with self.lock:
            if not self._state or not any(map(self._affects, texts)):
                return original(*args, **options)
            key = name, self._state, runtime.getDevice(), args, frozenset(options.items())
            if key not in self._loaded:
                self._loaded[key] = self._uncached[name](*args, **options)
            return self._loaded[key]

    def _raw_module(self, original: Callable[..., Any], *args: Any) -> Any:
        """Replaces _get_raw_module(code, path, options, ...)."""
        with self.lock:
            return self._module(original, args)

    def _module(self, original: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        code, path, options = args[:3]
        if path is not None:
            module = original(*args)
            if self._state:
                self._arm_file(module, path)
            return module
        if not self._kept and not self._affects(code, options):
            return original(*args)
        key = runtime.getDevice(), args
        if key in self._kept:
            return self._kept[key]
        if not self._state or not self._affects(code, options):
            return original(*args)
        has_variables = _has_variables(code, tuple(options))
        if has_variables and (module := self._if_loaded(original, args)) is not None:
            return module
        if catalog.is_listing() or (self._state, key) not in self._loaded:
            self._loaded[self._state, key] = self._compile_raw(self._uncached[_RAW], args)
        module = self._loaded[self._state, key]
        if has_variables:
            self._kept[key] = module
        return module

    @property
    def compiling_raw(self) -> bool:
        """True if this thread compiles the source of a RawKernel or RawModule."""
        return getattr(self._thread, "raw", False)

    def _compile_raw(self, load: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._thread.raw = True
        try:
            return load(*args)
        finally:
            self._thread.raw = False

    def _if_loaded(self, original: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The plain module if CuPy has loaded it, else None."""
        self._thread.only_loaded = True
        try:
            return original(*args)
        except _NotLoadedError:
            return None
        finally:
            self._thread.only_loaded = False

    # caches of kernels

    def _affects(self, source: str, options: Iterable[str] = (), *, also: Selection | None = None) -> bool:
        """True if a source has macros, or the selection (or `also`) marks parts of it."""
        selections = (self._selection, also or Selection())
        if any(select.touches(source, one) for one in selections):
            return True
        if source_uses_header(source, nvrtc.include_folders(options)):
            return True
        return any(one.kinds for one in selections) and _KERNEL in source  # not an ElementwiseKernel's operation

    def _switch(self, state: str, selection: Selection) -> None:
        before, self._state = self._state, state
        previous, self._selection = self._selection, selection
        if before == state:
            return
        self.begin()
        self._hidden = frozen_objects("kernels of CuPy") if state else ()
        for kernel in _live_kernels():
            if isinstance(kernel, raw.RawKernel):
                self._switch_raw(kernel, previous)
            elif isinstance(kernel, elementwise.ElementwiseKernel):
                texts = (kernel.operation, kernel.preamble, *map(str, kernel.kwargs.values()))
                if any(self._affects(text, also=previous) for text in texts):
                    hook_points.fetch(kernel, _MEMO).clear()
            elif any(MACRO in result.code for result in hook_points.fetch(kernel, _CODES).values()):
                self._switch_jit(kernel, before)

    def _switch_raw(self, kernel: Any, previous: Selection) -> None:
        cached = next((found for found in gc.get_referents(kernel) if type(found) is list), [])
        loaded = [(device, old) for device, old in enumerate(cached) if old is not None]
        if kernel.code is None:  # from a cubin or PTX
            for device, old in loaded if self._state else ():
                with cupy.cuda.Device(device):
                    self._arm_file(old.module, kernel.file_path)
        elif not self._affects(kernel.code, kernel.options, also=previous):
            return
        elif _has_variables(kernel.code, tuple(kernel.options)):
            for device, old in loaded:
                if isinstance(old, PlainKernel):
                    cached[device] = old if self._state else old.wrapped
                elif self._state and not isinstance(old, PreparedKernel):
                    cached[device] = PlainKernel(old, kernel.name, self._launched)
        else:
            for device, old in loaded:
                cached[device] = None
                _copy_settings(kernel, device, old)

    def _switch_jit(self, kernel: Any, before: str) -> None:
        now, others = self._jit.setdefault(kernel, (before, {}))
        if now == self._state or not (self._state or self.taught):  # plain CuPy could not translate it
            return
        others[now] = hook_points.fetch(kernel, _CACHE)
        setattr(kernel, _CACHE, others.pop(self._state, {}))
        self._jit[kernel] = self._state, others


@lru_cache(256)
def _has_variables(code: str, options: tuple[str, ...]) -> bool:
    """True if the source, or a user's header that it includes, declares device variables."""
    return any(map(_VARIABLES.search, with_headers(code, nvrtc.include_folders(options))))


def _stays_plain(name: str) -> Problem:
    return Problem(
        "plain",
        f"kernel {name} was loaded before recording was enabled, and is not recorded: its module has device variables "
        "that the program may have written to, so it cannot be replaced; call kscope.enable() before the kernel is "
        "first used",
    )


class _NotLoadedError(Exception):
    """CuPy has loaded no module for these arguments."""


def _live_kernels() -> Iterable[Any]:
    """Every kernel of this process that caches loaded functions."""
    return live_objects(raw.RawKernel, elementwise.ElementwiseKernel, hook_points.fetch(interface, _JIT))


def _copy_settings(kernel: Any, device: int, old: Any) -> None:
    """Copy the user's settings (shared memory limit, carveout) from the old function."""
    limit, carveout = "max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout"
    with cupy.cuda.Device(device):
        dynamic = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, old.ptr)
        static = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, old.ptr)
        share = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, old.ptr)
        if static + dynamic > _STATIC_LIMIT:
            setattr(kernel, limit, dynamic)
        if share != -1:
            setattr(kernel, carveout, share)
