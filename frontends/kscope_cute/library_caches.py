"""Caches in which libraries keep compiled CuTe functions, by shapes and types only: one set of entries per recording.

quack              a dict in the closure of each function under its decorator, and files in a folder
FlashAttention     objects with __getitem__, and files named by a hash of the key; older versions: dicts
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from kscope.instrument.code_objects import closure
from kscope.instrument.hooks import Hooks
from kscope.instrument.live_objects import live_objects
from kscope.util.import_hook import Watcher

_LIBRARIES = ("quack", "flash_attn")
_FOLDERS = ("quack.cache.jit", "quack.cache_utils")
"""Modules of newer and older versions whose get_cache_path() returns the folder of the files."""
_KEYED = "flash_attn.cute.cache_utils"
_WORKERS = "quack.cache.async_compile"
_MODULES = (*_FOLDERS, _KEYED, _WORKERS)
_CLOSURE, _ATTRIBUTE = "cache", "compile_cache"
"""Names of the dicts: in a decorated function's closure, and among a function's attributes."""


class LibraryCaches:
    """The entries in use: those of one recording, or those without recording.

    Entries that are written while recording is enabled are not found without it, nor with other options, and the
    reverse. quack's worker processes, where recording is not enabled, would write plain objects among a recording's: it
    compiles in this process meanwhile.
    """

    def __init__(self) -> None:
        self._tag = ""
        self._hooks = Hooks()
        self._others: dict[int, tuple[dict[Any, Any], dict[str, dict[Any, Any]]]] = {}
        self._watcher = Watcher(_MODULES, lambda name: self._hook(name))

    def use(self, tag: str) -> None:
        """Switch to the entries of the recording with this cache key; "" for those without recording."""
        if tag == self._tag:
            return
        for found in list(_dicts()):
            _, entries = self._others.setdefault(id(found), (found, {}))
            entries[self._tag] = dict(found)
            found.clear()
            found.update(entries.pop(tag, {}))
        self._watcher.remove()
        self._hooks.remove()
        self._tag = tag
        if tag:
            for name in _MODULES:
                self._hook(name)
            self._watcher.install()

    def functions(self) -> set[int]:
        """The ids of the compiled functions in the libraries' caches, those set aside included."""
        found = [*_dicts(), *(entries for _, others in self._others.values() for entries in others.values())]
        memory = getattr(sys.modules.get(_KEYED), "JITCache", None)
        caches = live_objects(memory) if isinstance(memory, type) else []
        found += [value for cache in caches for value in vars(cache).values() if type(value) is dict]
        return {id(function) for entries in found for function in entries.values()}

    def _hook(self, name: str) -> None:
        """Hook a module, if it is imported."""
        module = sys.modules.get(name)
        if name == _KEYED:
            memory, files = (getattr(module, kind, None) for kind in ("JITCache", "JITPersistentCache"))
            for method in ("__contains__", "__getitem__", "__setitem__"):
                self._hooks.add(memory, method, self._with_key)
            self._hooks.add(files, "_key_to_hash", lambda original, *key: f"{original(*key)}-{self._tag}")
        elif name == _WORKERS:  # "not submitted": quack compiles in this process
            self._hooks.add(getattr(module, "CompilePool", None), "submit", lambda original, *key: False)
        else:
            self._hooks.add(module, "get_cache_path", self._folder)

    def _with_key(self, original: Callable[..., Any], cache: Any, key: Any, *value: Any) -> Any:
        return original(cache, (self._tag, key), *value)

    def _folder(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Path:
        folder = Path(original(*args, **kwargs)) / self._tag
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _dicts() -> Iterator[dict[Any, Any]]:
    """The libraries' dicts of compiled functions."""
    if not any(name in sys.modules for name in _LIBRARIES):
        return
    for function in live_objects(FunctionType):
        if str(function.__globals__.get("__name__")).partition(".")[0] in _LIBRARIES:
            candidates = [vars(function).get(_ATTRIBUTE)]
            candidates += [closure(function).get(_CLOSURE)] if hasattr(function, "__wrapped__") else []
            yield from (found for found in candidates if type(found) is dict)
