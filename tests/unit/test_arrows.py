"""The rooms and their arrows: who may import whom, read from the source of every file.

Every import counts: at the top of a file, inside a function, and under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOORS = (
    {"errors", "_version"},
    {"util"},
    {"marks"},
    {"capture"},
    {"instrument"},
    {"language", "ptx"},
    {"lowering"},
    {"tracedata"},
    {"decoding"},
    {"analysis"},
    {"report"},
    {"export"},
    {"trace"},
    {"readers"},
    {"session"},
    {"__init__"},
    {"cli"},
    {"__main__"},
)
"""The rooms of kscope/, from the ground up: a room imports only rooms on lower floors."""
WRITERS, READERS = (
    {"ptx", "lowering", "language"},
    {"tracedata", "decoding", "analysis", "report", "export", "trace", "readers"},
)
"""Marks become instructions, words become time: neither side knows the other."""
BASE, OPTIONAL = {"numpy", "orjson"}, {"pandas", "pyarrow"}
"""What kscope/ may import: always, and only inside a function."""
VOCABULARY = {
    "kscope_triton": {"triton", "torch"},
    "kscope_numba": {"llvmlite", "numba"},
    "kscope_cute": {"cuda", "cutlass"},
    "kscope_cuda": {"cuda", "cupy", "cupy_backends", "cupyx", "torch"},
    "triton_kscope": set[str](),
    "kscope_sim": set[str](),
    "kscope_runtime": {"cuda"},
}
"""What each package outside kscope/ may import besides kscope, numpy, orjson and Python."""


@cache
def _modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of kscope, its frontends and its runtime."""
    found = {}
    for top in (ROOT / "kscope", *(ROOT / "frontends").iterdir(), *(ROOT / "runtime").iterdir()):
        for path in top.rglob("*.py"):
            parts = path.relative_to(top.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _imports(name: str) -> frozenset[tuple[str, bool]]:
    """(absolute dotted target, at the top of the file) of every import of a module."""
    path = _modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    nested = {id(child) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for child in ast.walk(node)}

    def targets() -> Iterator[tuple[str, bool]]:
        for node in ast.walk(tree):
            top = id(node) not in nested
            if isinstance(node, ast.Import):
                yield from ((alias.name, top) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                stem = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join((*stem, *([node.module] if node.module else ())))
                yield from ((f"{base}.{alias.name}", top) for alias in node.names)

    return frozenset(targets())


def _arrows(name: str) -> set[str]:
    """The modules of ours that a module imports."""
    modules = _modules()
    found = {target if target in modules else target.rpartition(".")[0] for target, _ in _imports(name)}
    return {target for target in found if target in modules} - {name}


def _room(name: str) -> str:
    """`kscope.export.chrome` -> `export`."""
    return name.split(".")[1] if "." in name else "__init__"


def _outside(name: str) -> set[str]:
    """Top-level packages that a module imports, Python's own left out."""
    heads = {target.split(".")[0] for target, _ in _imports(name)}
    return {head for head in heads if head not in sys.stdlib_module_names and head != "__future__"}


def test_every_room_of_kscope_stands_on_one_floor_and_imports_only_lower_ones() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    assert {_room(name) for name in _modules() if name.split(".")[0] == "kscope"} == floor.keys()
    upward = [
        f"{name} -> {target}"
        for name in _modules()
        if name.split(".")[0] == "kscope"
        for target in _arrows(name)
        if _room(target) != _room(name) and floor[_room(target)] >= floor[_room(name)]
    ]
    assert upward == []


def test_no_module_imports_itself_by_any_way_round() -> None:
    arrows = {name: _arrows(name) for name in _modules()}
    circles = []
    for start in arrows:
        seen, work = set[str](), [start]
        while work:
            for target in arrows[work.pop()] - seen:
                seen.add(target)
                work.append(target)
        if start in seen:
            circles.append(start)
    assert circles == []


def test_writers_and_readers_of_the_layout_do_not_know_each_other() -> None:
    for name in _modules():
        rooms = {_room(target) for target in _arrows(name) if target.split(".")[0] == "kscope"}
        assert not (_room(name) in READERS and rooms & WRITERS), name
        assert not (_room(name) in WRITERS and rooms & READERS), name


def test_kscope_imports_numpy_and_orjson_and_no_dsl_frontend_or_driver() -> None:
    for name in _modules():
        if name.split(".")[0] == "kscope":
            assert _outside(name) <= BASE | OPTIONAL | {"kscope"}, name
            assert not {target.split(".")[0] for target, top in _imports(name) if top} & OPTIONAL, name


def test_frontends_and_runtime_import_kscope_and_never_each_other() -> None:
    for name in _modules():
        package = name.split(".")[0]
        if package != "kscope":
            assert _outside(name) <= BASE | {"kscope", package} | VOCABULARY[package], name


def test_the_layout_imports_nothing_of_kscope() -> None:
    assert _arrows("kscope.capture.layout") == set()


def test_every_file_has_a_docstring_and_at_most_350_lines() -> None:
    for name, path in _modules().items():
        text = path.read_text()
        assert path.name == "__init__.py" or ast.get_docstring(ast.parse(text)), name
        assert len(text.splitlines()) <= 350, name
