"""The imports between modules, read from the source of kscope, its frontends and its runtime.

Every import counts: at the top of a file, inside a function, under TYPE_CHECKING, by a constant name that is passed to
``import_module()``, ``find_spec()`` or ``__import__()``, and by ``__import__()`` in source text that a module writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BY_NAME = {"import_module", "find_spec", "__import__"}
_IN_TEXT = re.compile(r"__import__\(['\"]([\w.]+)")


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of kscope, its frontends and its runtime."""
    found = {}
    for top in (ROOT / "kscope", *(ROOT / "frontends").iterdir(), *(ROOT / "runtime").iterdir()):
        for path in top.rglob("*.py"):
            parts = path.relative_to(top.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(name: str) -> frozenset[tuple[str, bool]]:
    """(absolute dotted target, at the top of the file) of every import of a module."""
    path = modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return frozenset(targets(ast.parse(path.read_text()), package))


def targets(tree: ast.AST, package: str) -> Iterator[tuple[str, bool]]:
    """As imports(), of the code of a module in a package."""
    for node, top in _nodes(tree, True):
        if isinstance(node, ast.Import):
            yield from ((alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute("." * node.level + (node.module or ""), package)
            yield from ((f"{base}.{alias.name}", top) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node.func) in _BY_NAME and node.args:
            yield from ((_absolute(one, package), top) for one in _constants(node.args[0]))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((one, top) for one in _IN_TEXT.findall(node.value))


def _absolute(target: str, package: str) -> str:
    """A relative name as an absolute one: ..text in kscope.analysis is kscope.text."""
    bare = target.lstrip(".")
    stem = package.split(".")[: len(package.split(".")) - (len(target) - len(bare)) + 1] if target != bare else []
    return ".".join((*stem, *([bare] if bare else ())))


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _constants(argument: ast.expr) -> Iterator[str]:
    """The strings that an argument may be: itself, or either branch of a condition."""
    if isinstance(argument, ast.IfExp):
        yield from (one for branch in (argument.body, argument.orelse) for one in _constants(branch))
    elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value


def _nodes(node: ast.AST, top: bool) -> Iterator[tuple[ast.AST, bool]]:
    """(node, it is in no function) of every node below one."""
    for child in ast.iter_child_nodes(node):
        yield child, top
        yield from _nodes(child, top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


def arrows(name: str) -> set[str]:
    """The kscope modules that a module imports."""
    ours = modules()
    found = {target if target in ours else target.rpartition(".")[0] for target, _ in imports(name)}
    return {target for target in found if target in ours} - {name}
