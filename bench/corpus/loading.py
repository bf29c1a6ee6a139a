"""Modules of a checkout, imported without what they need: what is not installed becomes a stand-in.

Kernels are data here. A module's statements run one by one; what a failed one would have defined is a stand-in.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

REAL = frozenset({"triton", "torch", "numpy", "packaging", "typing_extensions", "yaml", "sympy", "mpmath", "jinja2"})
"""Packages that are imported if they are installed; the standard library is, too."""


_GATHER = 2
"""Packages within packages down to here only gather what is below them, so their own code is not run."""


class StandIn:
    """Stands for anything that is not there; as a decorator it changes nothing."""

    def __init__(self, name: str = "") -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name)

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if len(given) == 1 and callable(given[0]) else self

    def __getitem__(self, _: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return ()


class _Missing(ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name)


class Nothing(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Missing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Piecewise(Loader):
    """Runs a module's statements one by one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._path)
        tree = ast.parse(self._path.read_text(errors="replace"))
        for one in tree.body:
            _run(one, module.__dict__, str(self._path))


class _Finder(MetaPathFinder):
    """Finds the checkouts' packages, and a stand-in for each that is not installed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        head = name.partition(".")[0]
        parts = name.split(".")
        for folder in self._folders:
            at = folder.joinpath(*parts)
            if (at / "__init__.py").exists() and len(parts) > _GATHER:
                return _spec(name, at / "__init__.py", [str(at)])
            if at.with_suffix(".py").exists():
                return _spec(name, at.with_suffix(".py"))
            if at.is_dir() and folder.joinpath(head).is_dir():
                spec = ModuleSpec(name, Nothing(), is_package=True)
                spec.submodule_search_locations = [str(at)]
                return spec
        if head in sys.stdlib_module_names or head in REAL or head.startswith(("kscope", "_")):
            return None
        return ModuleSpec(name, Nothing(), is_package=True)


class _Last(MetaPathFinder):
    """A stand-in for what nothing else finds, such as a module that another release of a package has."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, Nothing(), is_package=True) if name.startswith(("triton.", "torch.")) else None


def _spec(name: str, path: Path, within: list[str] | None = None) -> ModuleSpec:
    spec = importlib.util.spec_from_file_location(
        name, path, loader=_Piecewise(path), submodule_search_locations=within
    )
    assert spec is not None
    return spec


def serve(folders: Sequence[Path]) -> None:
    """From here on, packages in these folders are imported piece by piece."""
    sys.meta_path.insert(0, _Finder(folders))
    sys.meta_path.append(_Last())


def _run(node: ast.stmt, names: dict[str, Any], path: str) -> None:
    if isinstance(node, ast.If | ast.Try):
        try:
            kept = node.body
            if isinstance(node, ast.If) and not eval(compile(ast.Expression(node.test), path, "eval"), names):
                kept = node.orelse
        except Exception:
            kept = node.body
        for one in kept:
            _run(one, names, path)
        return
    if isinstance(node, ast.FunctionDef):
        own = [one for one in node.decorator_list if ast.unparse(one).rpartition(".")[2].startswith("jit")]
        node.decorator_list = own or node.decorator_list
    try:
        exec(compile(ast.Module([node], []), path, "exec"), names)
    except Exception:
        for name in _defined(node):
            names.setdefault(name, StandIn(name))


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((one.asname or one.name).partition(".")[0] for one in node.names)
    else:
        yield from (one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
