"""Every arrow points into kscope/: who may import whom, read from the source of every file."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = {"numpy", "orjson"}
OPTIONAL = {"pandas", "pyarrow"}
"""Only inside of a function that the user calls for it."""
OWN_WORDS = {
    "kscope_triton": {"triton", "torch"},
    "kscope_numba": {"llvmlite", "numba", "numpy"},
    "kscope_cute": {"cuda", "cutlass"},
    "kscope_cuda": {"cuda", "cupy", "cupy_backends", "cupyx", "torch"},
    "triton_kscope": set[str](),
    "kscope_sim": set[str](),
    "kscope_runtime": {"cuda"},
}
"""What each package outside of kscope/ may speak of beside kscope, numpy and Python."""

WRITERS = {"ptx", "lowering"}
"""What turns marks into instructions."""
READERS = {
    "analysis", "assemble", "bounded", "capturefile", "decoding", "export", "hashes", "joining", "parallel", "passes",
    "readers", "trace", "tracks",
}  # fmt: skip
"""What turns words into time."""
TOP = {"cli", "doctor", "__main__"}
"""What a user runs: nothing below may know it."""


def _files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _imports(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Absolute dotted names that a file imports, TYPE_CHECKING blocks left out where only the top level counts."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in ("frontends", "runtime"):
        parts = parts[1:]
    package = parts[:-1]
    tree = ast.parse(path.read_text())
    for node in _statements(tree) if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (stem, node.module or "") if part)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield from (node, *(child for child in ast.iter_child_nodes(node) if isinstance(node, ast.If | ast.Try)))


def _room(dotted: str) -> str:
    """`kscope.export.chrome` -> `export`."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _is_python(name: str) -> bool:
    return name in sys.stdlib_module_names or name == "__future__"


@pytest.mark.parametrize("path", _files("kscope"), ids=lambda path: str(path.relative_to(ROOT)))
def test_kscope_imports_nothing_of_frontends_runtime_or_dsls(path: Path) -> None:
    heads = {name.split(".")[0] for name in _imports(path)}
    strangers = {head for head in heads if not _is_python(head)} - BASE - OPTIONAL - {"kscope"}
    assert not strangers
    top = {name.split(".")[0] for name in _imports(path, top_level_only=True)}
    assert not top & OPTIONAL


@pytest.mark.parametrize("path", _files("frontends", "runtime"), ids=lambda path: str(path.relative_to(ROOT)))
def test_frontends_and_runtime_import_kscope_and_never_each_other(path: Path) -> None:
    package = path.relative_to(ROOT).parts[1]
    heads = {name.split(".")[0] for name in _imports(path)}
    strangers = {head for head in heads if not _is_python(head)} - BASE - {"kscope", package}
    assert strangers <= OWN_WORDS[package]


@pytest.mark.parametrize("path", _files("kscope"), ids=lambda path: str(path.relative_to(ROOT)))
def test_readers_and_writers_of_the_layout_do_not_know_each_other(path: Path) -> None:
    here = path.relative_to(ROOT / "kscope").with_suffix("").parts[0]
    rooms = {_room(name) for name in _imports(path) if name.split(".")[0] == "kscope"} - {here}
    if here in READERS:
        assert not rooms & (WRITERS | TOP | {"session"})
    if here in WRITERS:
        assert not rooms & (READERS | TOP | {"session"})
    if here not in TOP:
        assert not rooms & TOP


def test_the_layout_needs_nothing_of_kscope() -> None:
    assert not {name for name in _imports(ROOT / "kscope" / "layout.py") if name.startswith("kscope")}


def _closure(start: str, arrows: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    work = [start]
    while work:
        for target in arrows.get(work.pop(), set()) - seen:
            seen.add(target)
            work.append(target)
    return seen


def _arrows() -> dict[str, set[str]]:
    """Room -> rooms of kscope that importing it imports."""
    arrows: dict[str, set[str]] = {}
    for path in _files("kscope"):
        here = path.relative_to(ROOT / "kscope").with_suffix("").parts[0]
        names = {_room(name) for name in _imports(path, top_level_only=True) if name.split(".")[0] == "kscope"}
        arrows.setdefault(here, set()).update(names - {here, "__init__"})
    rooms = set(arrows)
    return {here: found & rooms for here, found in arrows.items()}


def test_reading_a_capture_never_loads_the_instructions() -> None:
    arrows = _arrows()
    for reader in READERS & arrows.keys():
        assert not _closure(reader, arrows) & (WRITERS | {"session", "frontends"}), reader


def test_imports_between_the_rooms_of_kscope_have_no_circle() -> None:
    arrows = _arrows()
    assert [room for room in arrows if room in _closure(room, arrows)] == []


@pytest.mark.parametrize("path", _files("kscope", "frontends", "runtime"), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_says_what_lives_in_it(path: Path) -> None:
    assert path.name == "__init__.py" or ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", _files("kscope", "frontends", "runtime"), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_longer_than_350_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 350


def test_every_room_is_one_that_these_tests_know() -> None:
    shared = {
        "__init__",
        "capture",
        "device",
        "errors",
        "frontends",
        "hooks",
        "including",
        "living",
        "layout",
        "marks",
        "meta",
        "recording",
        "regions",
        "replacing",
        "sampling",
        "selection",
        "strategies",
        "wording",
        "writable",
    }
    session = {"binding", "chosen", "finishing", "machine", "saving", "session", "states", "watching"}
    assert set(_arrows()) <= WRITERS | READERS | TOP | shared | session
