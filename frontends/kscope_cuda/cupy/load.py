"""CuPy's caches of loaded kernels: every state has its own, and the runtime hears of each prepared module."""

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

from kscope.capture.layout import CTL_SYMBOL
from kscope.capture.model import Problem
from kscope.instrument import registry
from kscope.instrument.hooks import Hook
from kscope.instrument.live_objects import frozen_objects, live_objects
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalogue
from kscope.instrument.selection.auto import Selection

from .. import lines, nvrtc
from ..binary_metadata import describe_file
from . import hook_points
from .hook_points import (
    cub_reduction,
    cupy,
    driver,
    elementwise,
    function,
    interface,
    raw,
    reduction,
    runtime,
)

_RAW, _FORGETFUL = "_get_raw_module", "__wrapped__"
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
_INCLUDES = re.compile(r"""^\s*#\s*include\s*["<]([^">\n]+)[">]""", re.M)
_STATIC_LIMIT = 48 << 10
"""Bytes of shared memory, static and dynamic, that a kernel may use without having asked for more."""


class Kernel(function.Function):
    """A function that waits a moment before a launch where the pool has little room left."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        registry.backend("cuda").pace()
        return super().__call__(*args, **options)

    def linear_launch(self, *args: Any, **options: Any) -> Any:
        registry.backend("cuda").pace()
        return super().linear_launch(*args, **options)


class Noted(function.Function):
    """In the place of a function that stays plain: its name is noted at each launch."""

    def __init__(self, kept: Any, name: str, launched: set[str]) -> None:
        self.ptr, self.module = kept.ptr, kept.module
        self.kept, self._name, self._launched = kept, name, launched

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._launched.add(self._name)
        return self.kept(*args, **options)

    def linear_launch(self, *args: Any, **options: Any) -> Any:
        self._launched.add(self._name)
        return self.kept.linear_launch(*args, **options)


class Prepared(function.Module):
    """A prepared module, in the place of the one that CuPy made and loaded."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self.ptr, made.ptr = made.ptr, 0  # the one that unloads it
        if made.mapping is not None:
            self._set_mapping(made.mapping)

    def get_function(self, name: Any) -> Kernel:
        return Kernel(self, name)


class Loader:
    """The hooks on CuPy's caches in memory."""

    def __init__(self) -> None:
        self._state = ""  # the recording's tag; "" = plain
        self._selection = Selection()
        self._hooks: dict[str, Hook] = {}
        self._forgetful: dict[str, Callable[..., Any]] = {}  # CuPy's own, which remember nothing
        self._loaded: dict[Any, Any] = {}
        self._kept: dict[Any, Any] = {}  # modules with variables, loaded when recording was enabled
        self._jit: WeakKeyDictionary[Any, tuple[str, dict[str, Any]]] = (
            WeakKeyDictionary()
        )  # state; other states' caches
        self.taught = False  # whether cupyx.jit reads `with` also when plain
        self._launched: set[str] = set()  # kernels that stay plain
        self._hidden: tuple[Problem, ...] = ()  # kernels that could not be looked for at the last switch
        self._probe = threading.local()

    @property
    def problems(self) -> list[Problem]:
        """Kernels that were launched since begin(), and are not recorded because they were loaded before."""
        return [*self._hidden, *map(_stays, sorted(self._launched))]

    def begin(self) -> None:
        """What was launched until now is no problem of what comes."""
        self._launched.clear()

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this CuPy lacks."""
        for module, name in _POINTS:
            hook_points.check(module, name)
            if name not in self._forgetful:
                hook_points.check(hook_points.fetch(module, name), _FORGETFUL)
        hook_points.check(interface, _JIT)

    def install(self, recording: Recording) -> None:
        """From now on kernels are loaded for this recording; those that are loaded already are put aside."""
        for module, name in _POINTS:
            found = hook_points.fetch(module, name)
            if hasattr(found, _FORGETFUL):  # else another tool's stands there
                self._forgetful[name] = unwrap(found)
            around = self._raw if name == _RAW else partial(self._remembering, name)
            self._hooks.setdefault(name, Hook(module, name, around)).install()
        self._switch(recording.tag(), recording.selection)

    def remove(self) -> None:
        """Back to plain. The hook on raw modules stays while it has modules to keep."""
        for name in [name for name in self._hooks if not (name == _RAW and self._kept)]:
            self._hooks.pop(name).remove()
        self._switch("", Selection())

    def prepared(self, made: Any) -> Prepared:
        """A module that CuPy compiled prepared, and has loaded: armed when a session is."""
        module = Prepared(made)
        self._arm(module)
        return module

    def compiles(self) -> None:
        """Called where CuPy begins to compile a module: stops it where this thread only asks what is loaded."""
        if getattr(self._probe, "on", False):
            raise _NotLoadedError

    def _arm(self, module: Any) -> None:
        registry.backend("cuda").module_loaded(int(module.ptr))

    def _arm_file(self, module: Any, path: str) -> None:
        """A module from a cubin or PTX: built by nvcc with the macros recording in place, or prepared by kscope."""
        metas = describe_file(path)
        if metas:
            registry.backend("cuda").arm_control_block(int(module.get_global_var(CTL_SYMBOL)), metas)
        else:
            self._arm(module)

    # what CuPy remembers

    def _remembering(self, name: str, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        texts = [text for text in (*args, *options.values()) if isinstance(text, str)]
        if not self._state or not any(map(self._concerns, texts)):
            return original(*args, **options)
        key = name, self._state, runtime.getDevice(), args, frozenset(options.items())
        if key not in self._loaded:
            self._loaded[key] = self._forgetful[name](*args, **options)
        return self._loaded[key]

    def _raw(self, original: Callable[..., Any], *args: Any) -> Any:
        """In the place of _get_raw_module(code, path, options, ...)."""
        code, path, options = args[:3]
        if path is not None:
            module = original(*args)
            if self._state:
                self._arm_file(module, path)
            return module
        if not self._kept and not self._concerns(code, options):
            return original(*args)
        key = runtime.getDevice(), args
        if key in self._kept:
            return self._kept[key]
        if not self._state or not self._concerns(code, options):
            return original(*args)
        variables = _variables(code, tuple(options))
        if variables and (module := self._found(original, args)) is not None:
            return module
        if catalogue.wanted() or (self._state, key) not in self._loaded:
            self._loaded[self._state, key] = self._compiled(self._forgetful[_RAW], args)
        module = self._loaded[self._state, key]
        if variables:
            self._kept[key] = module
        return module

    @property
    def raw(self) -> bool:
        """Whether what this thread compiles now is a source of the user's own: a RawKernel's or RawModule's."""
        return getattr(self._probe, "raw", False)

    def _compiled(self, load: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._probe.raw = True
        try:
            return load(*args)
        finally:
            self._probe.raw = False

    def _found(self, original: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The plain module that CuPy has loaded already; None where it has not."""
        self._probe.on = True
        try:
            return original(*args)
        except _NotLoadedError:
            return None
        finally:
            self._probe.on = False

    # what kernels remember

    def _concerns(self, source: str, options: Iterable[str] = (), *, also: Selection | None = None) -> bool:
        """Whether a source has marks, or a selection means something in it; also: the selection of another state."""
        selections = (self._selection, also or Selection())
        if nvrtc.concerns(source, options) or any(lines.touches(source, one) for one in selections):
            return True
        return any(one.kinds for one in selections) and _KERNEL in source  # not a text that CuPy makes a kernel of

    def _switch(self, state: str, selection: Selection) -> None:
        before, self._state = self._state, state
        chosen, self._selection = self._selection, selection
        if before == state:
            return
        self.begin()
        self._hidden = frozen_objects("kernels of CuPy") if state else ()
        for kernel in _living():
            if isinstance(kernel, raw.RawKernel):
                self._switch_raw(kernel, chosen)
            elif isinstance(kernel, elementwise.ElementwiseKernel):
                texts = (kernel.operation, kernel.preamble, *map(str, kernel.kwargs.values()))
                if any(self._concerns(text, also=chosen) for text in texts):
                    hook_points.fetch(kernel, _MEMO).clear()
            elif any(nvrtc.MACRO in result.code for result in hook_points.fetch(kernel, _CODES).values()):
                self._switch_jit(kernel, before)

    def _switch_raw(self, kernel: Any, chosen: Selection) -> None:
        cached = next((found for found in gc.get_referents(kernel) if type(found) is list), [])
        loaded = [(device, old) for device, old in enumerate(cached) if old is not None]
        if kernel.code is None:  # from a cubin or PTX
            for device, old in loaded if self._state else ():
                with cupy.cuda.Device(device):
                    self._arm_file(old.module, kernel.file_path)
        elif not self._concerns(kernel.code, kernel.options, also=chosen):
            return
        elif _variables(kernel.code, tuple(kernel.options)):
            for device, old in loaded:
                if isinstance(old, Noted):
                    cached[device] = old if self._state else old.kept
                elif self._state and not isinstance(old, Kernel):
                    cached[device] = Noted(old, kernel.name, self._launched)
        else:
            for device, old in loaded:
                cached[device] = None
                _carry(kernel, device, old)

    def _switch_jit(self, kernel: Any, before: str) -> None:
        now, others = self._jit.setdefault(kernel, (before, {}))
        if now == self._state or not (self._state or self.taught):  # CuPy could not translate it now: it stays
            return
        others[now] = hook_points.fetch(kernel, _CACHE)
        setattr(kernel, _CACHE, others.pop(self._state, {}))
        self._jit[kernel] = self._state, others


@lru_cache(256)
def _variables(code: str, options: tuple[str, ...]) -> bool:
    """Whether a module of this source, or a header of the user's that it includes, declares variables of its own."""
    folders = [Path(option[2:]) for option in options if option.startswith("-I")]
    texts, seen = [code], {nvrtc.HEADER}
    while texts:
        text = texts.pop()
        if _VARIABLES.search(text):
            return True
        for name in _INCLUDES.findall(text):
            found = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if found is not None and name not in seen:
                texts.append(found.read_text(errors="replace"))
            seen.add(name)
    return False


def _stays(name: str) -> Problem:
    return Problem(
        "plain",
        f"kernel {name} was loaded before recording was enabled, and its module has variables of its own that "
        "the program may have written to: it stays as it was, and is not recorded; call kscope.enable() before "
        "the kernel is first used",
    )


class _NotLoadedError(Exception):
    """CuPy has no module for these arguments."""


def _living() -> Iterable[Any]:
    """Every kernel of this process that keeps what it loaded."""
    return live_objects(raw.RawKernel, elementwise.ElementwiseKernel, hook_points.fetch(interface, _JIT))


def _carry(kernel: Any, device: int, old: Any) -> None:
    """What the user asked of the old function (more shared memory, a carveout) is asked of its successor."""
    limit, carveout = "max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout"
    with cupy.cuda.Device(device):
        dynamic = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, old.ptr)
        static = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, old.ptr)
        share = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, old.ptr)
        if static + dynamic > _STATIC_LIMIT:
            setattr(kernel, limit, dynamic)
        if share != -1:
            setattr(kernel, carveout, share)
