"""Import rules between rooms, read from every source file. Every import counts, see imports.py."""

from __future__ import annotations

import ast
import sys

from imports import ROOT, arrows, imports, modules, targets

FLOORS = (
    {"errors", "_version", "native"},
    {"util"},
    {"marks"},
    {"capture"},
    {"watching"},
    {"machine_code"},
    {"core_dumps"},
    {"instrument"},
    {"language", "ptx"},
    {"sass"},
    {"lowering"},
    {"tracedata"},
    {"decoding"},
    {"analysis"},
    {"report"},
    {"export"},
    {"trace"},
    {"readers"},
    {"merging"},
    {"session"},
    {"__init__"},
    {"cli", "pytest_plugin"},
    {"__main__"},
)
"""The rooms of kscope/, from the ground up: a room imports only rooms on lower floors."""
SASS_FLOORS = ("cubin", "encoding", "checks", "placing", "recording")
"""The folders of kscope/sass/, likewise: the checkers know nothing of the code that they check."""
WRITERS, READERS = (
    {"ptx", "lowering", "sass", "language"},
    {"tracedata", "decoding", "analysis", "report", "export", "trace", "readers", "merging"},
)
"""The write side and the read side are independent."""
BASE, OPTIONAL = {"numpy", "orjson"}, {"pandas", "pyarrow", "rich", "tqdm", "torch"}
"""Packages that kscope/ may import: always, and only inside a function (torch: to gather captures of ranks)."""
VOCABULARY = {
    "kscope_triton": {"triton", "torch"},
    "kscope_numba": {"cuda", "llvmlite", "numba"},
    "kscope_cute": {"cuda", "cutlass", "torch"},
    "kscope_cuda": {"cuda", "cupy", "cupy_backends", "cupyx", "torch"},
    "triton_kscope": set[str](),
    "kscope_sim": set[str](),
    "kscope_runtime": {"cuda", "nvidia"},
}
"""Packages that each package outside kscope/ may import besides kscope, numpy, orjson and Python."""


def _room(name: str) -> str:
    """`kscope.export.chrome` -> `export`."""
    return name.split(".")[1] if "." in name else "__init__"


def _outside(name: str) -> set[str]:
    """Top-level packages that a module imports, Python's own left out."""
    heads = {target.split(".")[0] for target, _ in imports(name)}
    return {head for head in heads if head not in sys.stdlib_module_names and head != "__future__"}


def test_an_import_by_name_counts() -> None:
    code = """
import_module(".text", __package__)
importlib.util.find_spec("kscope_cuda" if new else "kscope_numba")
def later(): return f"__import__('kscope.language.regions').language.{name}"
__import__("kscope.trace")
import_module(name)
"""
    assert sorted(targets(ast.parse(code), "kscope.analysis")) == [
        ("kscope.analysis.text", True),
        ("kscope.language.regions", False),
        ("kscope.trace", True),
        ("kscope_cuda", True),
        ("kscope_numba", True),
    ]


def test_every_room_of_kscope_imports_only_lower_rooms() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    assert {_room(name) for name in modules() if name.split(".")[0] == "kscope"} == floor.keys()
    upward = [
        f"{name} -> {target}"
        for name in modules()
        if name.split(".")[0] == "kscope"
        for target in arrows(name)
        if _room(target) != _room(name) and floor[_room(target)] >= floor[_room(name)]
    ]
    assert upward == []


def test_the_folders_of_sass_import_only_lower_ones() -> None:
    def floor(name: str) -> int:
        return SASS_FLOORS.index(name.split(".")[2])

    inner = [name for name in modules() if name.startswith("kscope.sass.")]
    upward = [
        f"{name} -> {target}"
        for name in inner
        for target in arrows(name)
        if target.startswith("kscope.sass.") and floor(target) > floor(name)
    ]
    assert upward == []


def test_no_module_imports_itself_by_any_way_round() -> None:
    graph = {name: arrows(name) for name in modules()}
    circles = []
    for start in graph:
        seen, work = set[str](), [start]
        while work:
            for target in graph[work.pop()] - seen:
                seen.add(target)
                work.append(target)
        if start in seen:
            circles.append(start)
    assert circles == []


def test_write_side_and_read_side_do_not_import_each_other() -> None:
    for name in modules():
        rooms = {_room(target) for target in arrows(name) if target.split(".")[0] == "kscope"}
        assert not (_room(name) in READERS and rooms & WRITERS), name
        assert not (_room(name) in WRITERS and rooms & READERS), name


def test_kscope_imports_numpy_and_orjson_and_no_dsl_frontend_or_driver() -> None:
    for name in modules():
        if name.split(".")[0] == "kscope":
            assert _outside(name) <= BASE | OPTIONAL | {"kscope"}, name
            assert not {target.split(".")[0] for target, top in imports(name) if top} & OPTIONAL, name


def test_frontends_and_runtime_import_kscope_and_never_each_other() -> None:
    for name in modules():
        package = name.split(".")[0]
        if package != "kscope":
            assert _outside(name) <= BASE | {"kscope", package} | VOCABULARY[package], name


def test_the_layout_imports_nothing_of_kscope_but_the_form_of_its_fields() -> None:
    assert arrows("kscope.capture.layout") == {"kscope.util.struct_layout"}
    assert arrows("kscope.util.struct_layout") == set()


def test_every_file_has_a_docstring_and_at_most_350_lines() -> None:
    for name, path in modules().items():
        text = path.read_text()
        assert path.name == "__init__.py" or ast.get_docstring(ast.parse(text)), name
        assert len(text.splitlines()) <= 350, name


def test_every_file_in_c_has_at_most_350_lines() -> None:
    long = [
        path.name
        for top in ("kscope", "frontends", "runtime")
        for kind in ("*.c", "*.h", "*.cuh")
        for path in (ROOT / top).rglob(kind)
        if len(path.read_text().splitlines()) > 350
    ]
    assert long == ["kscope.cuh"]  # compilers are given one file, which includes nothing
