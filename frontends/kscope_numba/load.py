"""Hooks on loading and caching: loaded modules go to the runtime, and each recording state has its own kernels. A
dispatcher caches compiled kernels by argument types only (on disk also by source file), so every dispatcher with
regions or selected code gets a set of compiled kernels and disk keys per state.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from kscope.capture.model import Problem
from kscope.instrument import compile_warnings, loaded_code, registry
from kscope.instrument.code_objects import reachable, uses_kscope
from kscope.instrument.hooks import Hooks
from kscope.instrument.launch_counts import LaunchCounts
from kscope.instrument.live_objects import frozen_objects, live_objects
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.auto import Selection
from kscope.instrument.two_forms import runs_plain_problem

from . import linking
from .hook_points import check, module
from .plain_form import Launch, PlainForms
from .select import touches

_codegen: Any = module("codegen")
_dispatcher: Any = module("dispatcher")
_driver: Any = module("cudadrv.driver")
_binding: Any = _driver.binding
_LAUNCH, _CHOOSE = "launch", "choose"
"""Reasons why Numba or kscope gets a loaded function: to launch it, to bind it, or to choose a launch's form."""
PLAIN = ""
RETAINED = "retained"
"""Recording is disabled, and Numba cannot compile regions: marked kernels stay installed and record nothing."""
_Overloads = tuple[dict[Any, Any], dict[Any, Any]]
"""A dispatcher's compiled kernels by argument types, and its specializations."""


@dataclass
class _StateSets:
    """A dispatcher's compiled kernels: the installed state, the one before it, and the sets of all other states."""

    state: str = PLAIN
    previous: str = PLAIN
    others: dict[str, _Overloads] = field(default_factory=dict)


class LoadHooks:
    """The hooks on loading and on the disk cache; switches compiled kernels between states."""

    def __init__(self, unmarked: Callable[[], AbstractContextManager[None]]) -> None:
        """unmarked: a context manager in which functions are compiled without marks."""
        self._unmarked = unmarked
        self.forms = PlainForms(self._known_plain, self._compiling_plain)
        self._thread = threading.local()  # why: the reason for which this thread gets a function; empty for the program
        self._state = PLAIN
        self._selection = Selection()
        self._listing = False
        self._hooks = Hooks()
        self._sets: WeakKeyDictionary[Any, _StateSets] = WeakKeyDictionary()
        self._alive: dict[int, Any] = {}  # by id: Numba identifies compiled device functions by address
        self._not_compiled: WeakKeyDictionary[Any, Problem] = WeakKeyDictionary()  # libraries, at the last switch
        self._frozen: tuple[Problem, ...] = ()  # the last switch could not find kernels hidden by gc.freeze()
        self._device_problems: list[Problem] = []  # device functions are never launched
        self._launched: set[Problem] = set()
        self._reported: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()
        self._ids: WeakKeyDictionary[Any, tuple[int, ...]] = WeakKeyDictionary()  # of the kernel of a library
        self.counts = LaunchCounts()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Kernels that the last switch could not recompile, and that were launched since begin()."""
        launched = sorted(self._launched, key=lambda problem: problem.text)
        return *self._frozen, *self._device_problems, *launched, *map(runs_plain_problem, sorted(self.forms.refused))

    def begin(self) -> None:
        """Forget the launches until now."""
        self._launched.clear()
        self.forms.refused.clear()
        self.counts.begin()

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point."""
        check(_codegen.CUDACodeLibrary, "get_cufunc")
        check(_dispatcher, "CUDADispatcher", "CUDACache")
        check(_dispatcher.CUDACache, "_index_key")
        check(
            _dispatcher.CUDADispatcher,
            *("_reset_overloads", "add_overload", "compile", "compile_device", "disable_compile"),
        )
        self.forms.check()
        check(_binding, "CUlibrary", "cuLibraryGetModule")

    def install(self, recording: Recording) -> None:
        """Switch to the kernels of this recording."""
        cache = _dispatcher.CUDACache
        self._hooks.add(_codegen.CUDACodeLibrary, "get_cufunc", self._get_cufunc)
        self._hooks.add(cache, "_index_key", self._index_key)
        self._hooks.add(_dispatcher._Kernel, "launch", self._launch)
        self._hooks.add(_dispatcher._Kernel, "bind", self._bind)
        self._hooks.add(_dispatcher.CUDADispatcher, "add_overload", self.forms.add_overload)
        if catalog.is_listing() and not self._listing:  # a listing compiles everything: bypass the disk cache
            self._listing = True
            for name in ("load_overload", "save_overload"):
                self._hooks.add(cache, name, _skip)
        tag = f"{recording.tag(Path(__file__).parent)} {linking.ptxas_identity()}{' listed' * self._listing}"
        self._switch(tag, recording.selection)

    def remove(self, taught: bool) -> None:
        """Inverse of install(). If Numba cannot compile regions (not taught), marked kernels stay installed."""
        self._hooks.remove()
        self._listing = self.forms.recording = False
        self._switch(PLAIN if taught else RETAINED, Selection())

    # modules

    def _get_cufunc(self, original: Any, library: Any) -> Any:
        function, why = original(library), getattr(self._thread, "why", "")
        if not why:
            self.forms.taken.add(library)
        reported = self._reported.setdefault(library, set())
        backend = registry.backend("cuda")
        if id(function) not in reported:
            reported.add(id(function))
            handle = _binding.CUlibrary(int(function.module.handle))
            metas = backend.module_loaded(int(_driver.driver.cuLibraryGetModule(handle)))
            self._ids[library] = tuple(kernel.id for meta in metas for kernel in meta.kernels)
            for code in library._cubin_cache.values() if metas else ():
                loaded_code.keep(bytes(code.code), shared=True)
            if any(meta.variables for meta in metas):
                self.forms.stateful.add(library)
            compile_warnings.warn_once(problem for meta in metas for problem in meta.problems)
        if why != _CHOOSE:
            backend.pace(id(function))
        if library in self._not_compiled:
            self._launched.add(self._not_compiled[library])
        return function

    def _launch(self, original: Any, kernel: Any, *arguments: Any, **named: Any) -> Any:
        launch = Launch(*arguments, **named)
        with self._getting(_CHOOSE):
            form = self._form(kernel, launch)
        with self._getting(_LAUNCH):
            stream = launch.stream_number() if form is kernel else None
            counts = None if stream is None else self.counts.open(stream)
            result = original(form, *arguments, **named)
        if counts is not None:
            self.counts.accepted(counts, *self._ids.get(kernel._codelibrary, ()))
        return result

    def _form(self, kernel: Any, launch: Launch) -> Any:
        """The kernel that a launch runs: in a session or a graph the one with marks, else the plain one."""
        library = kernel._codelibrary
        if library not in self._reported:  # it comes from the disk cache
            library.get_cufunc()
        if not self._ids.get(library):
            return kernel
        stream = launch.stream_number()
        if self.forms.recording or stream is None or registry.backend("cuda").capture(stream) != 0:
            return self.forms.in_session(kernel, launch)
        return self.forms.at_rest(kernel, launch)

    def _bind(self, original: Any, kernel: Any) -> Any:
        with self._getting(_LAUNCH):
            return original(kernel)

    @contextmanager
    def _getting(self, why: str) -> Generator[None]:
        """A context manager in which this thread gets functions for Numba or kscope."""
        before, self._thread.why = getattr(self._thread, "why", ""), why
        try:
            yield
        finally:
            self._thread.why = before

    def _known_plain(self, dispatcher: Any, types: Any) -> Any:
        sets = self._sets.get(dispatcher)
        return None if sets is None else sets.others.get(PLAIN, ({}, {}))[0].get(types)

    @contextmanager
    def _compiling_plain(self, dispatcher: Any) -> Generator[None]:
        """Compile without marks, and with plain device functions. Call it under Numba's lock."""
        state, self._state = self._state, PLAIN
        swapped: list[tuple[Any, list[Any], bool]] = []
        try:
            for one in _called(dispatcher):
                if _is_affected(one.py_func, self._selection):
                    swapped.append((one, *self._swap(one, PLAIN, state)))
            with self._unmarked():
                for found in sorted(swapped, key=lambda one: _compile_order(one[1])):
                    _recompile(*found)
                yield
        finally:
            self._state = state
            for one, _, _ in swapped:
                self._swap(one, state, PLAIN)

    def _index_key(self, original: Any, cache: Any, *arguments: Any) -> Any:
        key = original(cache, *arguments)
        return (*key, ("kscope", self._state)) if self._state and _is_affected(cache._py_func, self._selection) else key

    # compiled kernels

    def _switch(self, state: str, selection: Selection) -> None:
        before, self._state = self._state, state
        selections, self._selection = (self._selection, selection), selection
        if before == state:
            return
        self._not_compiled.clear()
        self._device_problems.clear()
        self.begin()
        self._frozen = frozen_objects("kernels of Numba") if state not in (PLAIN, RETAINED) else ()
        dispatchers = {id(one): one for one in (*live_objects(_dispatcher.CUDADispatcher), *self._sets)}.values()
        affected = [one for one in dispatchers if _is_affected(one.py_func, *selections)]
        missing = [(one, *self._swap(one, state, before)) for one in affected]
        for dispatcher, kernels, specialized in sorted(missing, key=lambda one: _compile_order(one[1])):
            try:
                _recompile(dispatcher, kernels, specialized)
            except Exception as error:  # the compiler's or kscope's: other kernels still record
                self._swap_back(dispatcher)
                problem = Problem(
                    "plain",
                    f"kernel {dispatcher.__name__} has fixed signatures and cannot be compiled for recording: {error}; "
                    "it stays as it was",
                )
                libraries = [one._codelibrary for one in kernels if isinstance(one, _dispatcher._Kernel)]
                self._not_compiled.update((library, problem) for library in libraries)
                self._device_problems += [] if libraries else [problem]

    def _swap(self, dispatcher: Any, state: str, before: str) -> tuple[list[Any], bool]:
        """Install a state's kernels.

        Returns:
            The previous state's kernels to compile again now, because the dispatcher's signatures are fixed; and
            whether the dispatcher is specialized.
        """
        sets = self._sets.setdefault(dispatcher, _StateSets(_effective_state(dispatcher, before)))
        state = _effective_state(dispatcher, state)
        if sets.state == state:
            return [], False
        now = dict(dispatcher.overloads), dict(dispatcher.specializations)
        self._keep_alive(now[0])
        cached = sets.others.pop(state, ({}, {}))
        sets.others[sets.state] = now
        sets.previous, sets.state = sets.state, state
        _install_overloads(dispatcher, now if state == RETAINED else cached)
        missing = [] if dispatcher.overloads or dispatcher._can_compile else list(now[0].values())
        return missing, dispatcher._specialized

    def _keep_alive(self, compiled: dict[Any, Any]) -> None:
        self._alive.update((id(one), one) for one in compiled.values())

    def _swap_back(self, dispatcher: Any) -> None:
        """Inverse of the latest _swap()."""
        sets = self._sets[dispatcher]
        self._keep_alive(dispatcher.overloads)
        sets.state = sets.previous
        _install_overloads(dispatcher, sets.others.pop(sets.state))


def _effective_state(dispatcher: Any, state: str) -> str:
    """The state for this dispatcher: Numba can always compile code without regions plain."""
    return PLAIN if state == RETAINED and not _reaches_kscope(dispatcher.py_func) else state


def _install_overloads(dispatcher: Any, compiled: _Overloads) -> None:
    """Replace what the dispatcher has compiled."""
    kernels, specializations = compiled
    dispatcher._reset_overloads()
    dispatcher.specializations.clear()
    dispatcher.specializations.update(specializations)
    for types, kernel in kernels.items():
        if isinstance(kernel, _dispatcher._Kernel):
            dispatcher.add_overload(kernel, types)
        else:
            dispatcher.overloads[types] = kernel


def _compile_order(kernels: list[Any]) -> int:
    """Sort key: callees before callers, by the number of the compilation; last kernels, whose number may be any."""
    order = (sys.maxsize if isinstance(one, _dispatcher._Kernel) else one.fndesc.uid for one in kernels)
    return min(order, default=0)


def _recompile(dispatcher: Any, kernels: Iterable[Any], specialized: bool) -> None:
    """Compile the kernels of a dispatcher with fixed signatures again."""
    kernels = list(kernels)
    if not kernels:
        return
    dispatcher.disable_compile(False)
    dispatcher._specialized = False
    try:
        for kernel in kernels:
            if isinstance(kernel, _dispatcher._Kernel):
                dispatcher.compile(tuple(kernel.signature.args))
            else:
                dispatcher.compile_device(tuple(kernel.signature.args), kernel.signature.return_type)
    finally:
        dispatcher._can_compile = False  # disable_compile() raises if nothing was compiled
        dispatcher._specialized = specialized


_kscope_users: WeakSet[Any] = WeakSet()


def _is_affected(function: Any, *selections: Selection) -> bool:
    """True if the function, or one that it reaches, uses kscope or may be touched by one of the selections."""
    return _reaches_kscope(function) or any(
        bool(selection) and _reaches(function, partial(touches, selection=selection)) for selection in selections
    )


def _reaches_kscope(function: Any) -> bool:
    """True if the function, or one that it reaches, uses kscope. Only True is cached: globals may be defined later."""
    if function not in _kscope_users and _reaches(function, uses_kscope):
        _kscope_users.add(function)
    return function in _kscope_users


def _called(dispatcher: Any) -> list[Any]:
    """The dispatchers that a dispatcher's function reaches, without itself."""
    found: dict[int, Any] = {}

    def inner(thing: Any) -> Any:
        if isinstance(thing, _dispatcher.CUDADispatcher) and thing is not dispatcher:
            found[id(thing)] = thing
        return getattr(thing, "py_func", thing)

    list(reachable(dispatcher, inner))
    return list(found.values())


def _reaches(function: Any, test: Callable[[FunctionType], bool]) -> bool:
    return any(map(test, reachable(function, lambda thing: getattr(thing, "py_func", thing))))


def _skip(original: Any, cache: Any, *arguments: Any) -> None:
    """Replaces CUDACache's methods that load and save."""
