"""Reports the import of modules: a finder on sys.meta_path, only while someone listens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class Watcher(MetaPathFinder):
    """Calls `imported(name)` after the first import of each of `names`; its exceptions propagate to the import."""

    def __init__(self, names: Collection[str], imported: Callable[[str], None]) -> None:
        self._names, self._imported = frozenset(names), imported
        self._looking: set[str] = set()

    def install(self) -> None:
        """Start watching."""
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop watching. Imports in progress are still reported."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders return, with a loader that reports its next run."""
        if fullname not in self._names or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._looking.remove(fullname)
        loader = None if spec is None else spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del vars(loader)["exec_module"]
            execute(module)
            if self in sys.meta_path:
                self._imported(fullname)

        # set on this loader for one run, so the module keeps its own loader
        vars(loader)["exec_module"] = exec_module
        return spec
