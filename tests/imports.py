"""The imports between modules, read from the source of kscope, its frontends and its runtime.

Every import counts: at the top of a file, inside a function, and under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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

    def targets() -> Iterator[tuple[str, bool]]:
        for node, top in _statements(ast.parse(path.read_text()), True):
            if isinstance(node, ast.Import):
                yield from ((alias.name, top) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                stem = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join((*stem, *([node.module] if node.module else ())))
                yield from ((f"{base}.{alias.name}", top) for alias in node.names)

    return frozenset(targets())


def _statements(node: ast.AST, top: bool) -> Iterator[tuple[ast.AST, bool]]:
    """(statement, it is in no function) of every statement below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield child, top
            yield from _statements(child, top and not isinstance(child, ast.FunctionDef))


def arrows(name: str) -> set[str]:
    """The kscope modules that a module imports."""
    ours = modules()
    found = {target if target in ours else target.rpartition(".")[0] for target, _ in imports(name)}
    return {target for target in found if target in ours} - {name}
