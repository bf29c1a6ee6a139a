"""What Numba keeps: loaded kernels, which the runtime is told of, and compiled ones, which belong to one state.

A dispatcher keeps what it has compiled by the types of its arguments alone, and its disk cache by these and its
file. While recording is enabled a dispatcher that has to do with kscope has a set of compiled kernels for each
state, of which one is in its place, and keys of its own on disk. What lives here: both. What does not:
compiling (pipeline.py), driver calls (the runtime).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from kscope.capture.model import Problem
from kscope.instrument import registry
from kscope.instrument.hooks import Hook
from kscope.instrument.live_objects import frozen_objects, live_objects
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalogue
from kscope.instrument.selection.auto import Selection

from . import linking
from .hook_points import check, module
from .meaning import concerns
from .select import touches

_codegen: Any = module("codegen")
_dispatcher: Any = module("dispatcher")
_driver: Any = module("cudadrv.driver")
_binding: Any = _driver.binding
PLAIN = ""
RESTING = "at rest"
"""Numba compiles as if kscope were not there, and so no kernel that has its words: those that were compiled before
stay in their place, and rest."""
_Compiled = tuple[dict[Any, Any], dict[Any, Any]]
"""A dispatcher's compiled kernels by types, and its specializations."""


@dataclass
class _Kept:
    """A dispatcher's compiled kernels: whose they are that are in its place, and those of other states. before: the
    state that was in its place before."""

    state: str = PLAIN
    before: str = PLAIN
    others: dict[str, _Compiled] = field(default_factory=dict)


class Loader:
    """The hooks on loading and on the disk cache, and the switch of compiled kernels."""

    def __init__(self) -> None:
        self._state = PLAIN
        self._selection = Selection()
        self._listing = False
        self._hooks: list[Hook] = []
        self._kept: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()
        self._alive: dict[int, Any] = {}  # by id: Numba knows compiled device functions by their address
        self._stays: WeakKeyDictionary[Any, Problem] = WeakKeyDictionary()  # libraries that stayed at the last switch
        self._hidden: tuple[Problem, ...] = ()  # kernels that could not be looked for at the last switch
        self._unseen: list[Problem] = []  # of device functions, which nobody launches
        self._launched: set[Problem] = set()
        self._told: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Kernels that stay as they were since the last switch, and were launched since begin()."""
        return *self._hidden, *self._unseen, *sorted(self._launched, key=lambda problem: problem.text)

    def begin(self) -> None:
        """What was launched until now is no problem of what comes."""
        self._launched.clear()

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this numba-cuda lacks."""
        check(_codegen.CUDACodeLibrary, "get_cufunc")
        check(_dispatcher, "CUDADispatcher", "CUDACache")
        check(_dispatcher.CUDACache, "_index_key")
        check(
            _dispatcher.CUDADispatcher,
            *("_reset_overloads", "add_overload", "compile", "compile_device", "disable_compile"),
        )
        check(_binding, "CUlibrary", "cuLibraryGetModule")

    def install(self, recording: Recording) -> None:
        """Kernels are loaded for this recording from now on; those that are loaded are put aside."""
        cache = _dispatcher.CUDACache
        if not self._hooks:
            self._hooks = [
                Hook(_codegen.CUDACodeLibrary, "get_cufunc", self._load),
                Hook(cache, "_index_key", self._key),
            ]
        if catalogue.wanted() and not self._listing:  # what comes from a cache cannot be listed, and nothing stays
            self._listing = True
            self._hooks += [Hook(cache, name, _nothing) for name in ("load_overload", "save_overload")]
        for hook in self._hooks:
            hook.install()
        tag = f"{recording.tag(Path(__file__).parent)} {linking.identity()}{' listed' * self._listing}"
        self._switch(tag, recording.selection)

    def remove(self, taught: bool) -> None:
        """Inverse of install(). Where Numba cannot compile the kernels plain (not taught), they stay, and rest."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._listing = [], False
        self._switch(PLAIN if taught else RESTING, Selection())

    # modules

    def _load(self, original: Any, library: Any) -> Any:
        found = original(library)
        told = self._told.setdefault(library, set())
        backend = registry.backend("cuda")
        if id(found) not in told:
            told.add(id(found))
            handle = _binding.CUlibrary(int(found.module.handle))
            backend.module_loaded(int(_driver.driver.cuLibraryGetModule(handle)))
        backend.pace()
        if library in self._stays:
            self._launched.add(self._stays[library])
        return found

    def _key(self, original: Any, cache: Any, *arguments: Any) -> Any:
        key = original(cache, *arguments)
        return (*key, ("kscope", self._state)) if self._concerns(cache._py_func) else key

    # compiled kernels

    def _concerns(self, function: Any) -> bool:
        return _concerns(function) or _selected(function, self._selection)

    def _switch(self, state: str, selection: Selection) -> None:
        before, self._state = self._state, state
        chosen, self._selection = self._selection, selection
        if before == state:
            return
        self._stays.clear()
        self._unseen.clear()
        self.begin()
        self._hidden = frozen_objects("kernels of Numba") if state not in (PLAIN, RESTING) else ()
        dispatchers = {id(one): one for one in (*live_objects(_dispatcher.CUDADispatcher), *self._kept)}.values()
        concerned = [one for one in dispatchers if self._concerns(one.py_func) or _selected(one.py_func, chosen)]
        again = [(one, *self._swap(one, state, before)) for one in concerned]
        for dispatcher, kernels, specialized in sorted(again, key=lambda one: _turn(one[1])):
            try:
                _compile_again(dispatcher, kernels, specialized)
            except Exception as error:  # of the compiler, or of kscope: others may record
                self._swap_back(dispatcher)
                text = (
                    f"kernel {dispatcher.__name__} has fixed signatures, and cannot be compiled for recording: {error}"
                )
                problem = Problem("plain", f"{text}; it stays as it was")
                libraries = [one._codelibrary for one in kernels if isinstance(one, _dispatcher._Kernel)]
                self._stays.update((library, problem) for library in libraries)
                self._unseen += [] if libraries else [problem]

    def _swap(self, dispatcher: Any, state: str, before: str) -> tuple[list[Any], bool]:
        """Puts the other state's kernels in place. Returns those of the state before that must be compiled now, as
        the dispatcher compiles nothing by itself; and whether it is specialized."""
        kept = self._kept.setdefault(dispatcher, _Kept(_own_state(dispatcher, before)))
        state = _own_state(dispatcher, state)
        if kept.state == state:
            return [], False
        now = dict(dispatcher.overloads), dict(dispatcher.specializations)
        self._keep(now[0])
        found = kept.others.pop(state, ({}, {}))
        kept.others[kept.state] = now
        kept.before, kept.state = kept.state, state
        _put(dispatcher, now if state == RESTING else found)
        missing = [] if dispatcher.overloads or dispatcher._can_compile else list(now[0].values())
        return missing, dispatcher._specialized

    def _keep(self, compiled: dict[Any, Any]) -> None:
        self._alive.update((id(one), one) for one in compiled.values())

    def _swap_back(self, dispatcher: Any) -> None:
        """Inverse of the latest _swap()."""
        kept = self._kept[dispatcher]
        self._keep(dispatcher.overloads)
        kept.state = kept.before
        _put(dispatcher, kept.others.pop(kept.state))


def _own_state(dispatcher: Any, state: str) -> str:
    """What a state is for this dispatcher: what has no words of kscope's is compiled plain by anyone."""
    return PLAIN if state == RESTING and not _concerns(dispatcher.py_func) else state


def _put(dispatcher: Any, compiled: _Compiled) -> None:
    """These in the place of what the dispatcher has compiled."""
    kernels, specializations = compiled
    dispatcher._reset_overloads()
    dispatcher.specializations.clear()
    dispatcher.specializations.update(specializations)
    for types, kernel in kernels.items():
        if isinstance(kernel, _dispatcher._Kernel):
            dispatcher.add_overload(kernel, types)
        else:
            dispatcher.overloads[types] = kernel


def _turn(kernels: list[Any]) -> int:
    """When these were compiled: what a function calls had to be there. Kernels, which nothing calls, are last: one that
    comes from the disk cache may bring any number."""
    turns = (sys.maxsize if isinstance(one, _dispatcher._Kernel) else one.fndesc.uid for one in kernels)
    return min(turns, default=0)


def _compile_again(dispatcher: Any, kernels: Iterable[Any], specialized: bool) -> None:
    """For dispatchers whose signatures are fixed."""
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
        dispatcher._can_compile = False  # disable_compile() wants one that was compiled
        dispatcher._specialized = specialized


_known: WeakSet[Any] = WeakSet()


def _concerns(function: Any) -> bool:
    """Whether the function has kscope's words; known for good once it has: what it names may be defined later."""
    if function not in _known and concerns(function):
        _known.add(function)
    return function in _known


def _selected(function: Any, selection: Selection) -> bool:
    """Whether something of the selection may be in the function, or in one that it names."""
    return bool(selection) and concerns(function, selected=lambda one: touches(one, selection))


def _nothing(original: Any, cache: Any, *arguments: Any) -> None:
    """In the place of a method of CUDACache's that loads or saves."""
