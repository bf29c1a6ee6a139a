"""Docstrings in Google style: a list of arguments is complete everywhere, and every public callable has one."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import pytest
from imports import modules

PACKAGES = {
    "kscope": "numpy",
    "kscope.instrument.backend": "numpy",
    "kscope.instrument.frontend": "numpy",
    "kscope.readers": "numpy",
    "kscope.tracedata.transforms": "numpy",
    "kscope_cuda": "numpy",
    "kscope_cuda.core": "cuda.core",
    "kscope_cuda.cupy": "cupy_backends",
    "kscope_cute": "cutlass",
    "kscope_numba": "numba.cuda",
    "kscope_sim": "numpy",
    "kscope_triton": "triton",
    "triton_kscope": "numpy",
}
"""Public modules, and what must be installed to import them."""
RECEIVED = {"Capture", "Trace", "Warp"}
"""Classes that kscope constructs."""
ENTRY = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \(.*?\))?: ?\S")
OTHER_STYLES = re.compile(r"^\s*(:param |:return|@param|Parameters\n\s*-+|Returns\n\s*-+)", re.M)


def section(text: str, head: str) -> set[str] | None:
    """The names that a section of a docstring documents; None without the section."""
    _, found, rest = f"{text}\n".partition(f"{head}:\n")
    if not found:
        return None
    body = re.split(r"^\S", rest, maxsplit=1, flags=re.M)[0]
    entries = filter(None, map(ENTRY.match, body.splitlines()))
    return {name.lstrip("*") for entry in entries for name in entry[1].split(", ")}


def of_source(function: ast.FunctionDef) -> set[str]:
    """The parameters that a caller sees."""
    every = function.args
    named = [*every.posonlyargs, *every.args, *every.kwonlyargs, *filter(None, (every.vararg, every.kwarg))]
    return public(one.arg for one in named)


def of_object(function: Any) -> set[str]:
    """The parameters that a caller sees."""
    return public(inspect.signature(function).parameters)


def public(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")} - {"self", "cls"}


def is_constructed_by_users(kind: type) -> bool:
    """False for interfaces, and for objects that users only receive."""
    return not getattr(kind, "_is_protocol", False) and kind.__name__ not in RECEIVED


def callables(package: str) -> Iterator[tuple[str, Any, list[str]]]:
    """(name, function, docstrings that may document its parameters) of every public function and method."""
    module = import_module(package)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == package]
    for name in getattr(module, "__all__", public(own)):
        value = getattr(module, name)
        if inspect.isclass(value) and not issubclass(value, Exception):
            parts = [part for base in value.__mro__ for part in (base, vars(base).get("__init__"))]
            if is_constructed_by_users(value):
                yield name, value, [inspect.getdoc(part) or "" for part in parts]
            for method, raw in vars(value).items():
                function = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
                if inspect.isfunction(function) and not method.startswith("_"):
                    bases = [vars(base)[method] for base in value.__mro__ if method in vars(base)]
                    yield f"{name}.{method}", function, [inspect.getdoc(base) or "" for base in bases]
        elif inspect.isfunction(value):
            yield name, value, [inspect.getdoc(value) or ""]


def test_a_list_of_arguments_names_each_parameter_and_nothing_else() -> None:
    wrong = []
    for name, path in modules().items():
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "Args:\n" in source else ():
            if isinstance(node, ast.FunctionDef):
                documented = section(ast.get_docstring(node) or "", "Args")
                if documented is not None and documented != of_source(node):
                    wrong.append(f"{name}.{node.name}: {sorted(documented ^ of_source(node))}")
    assert wrong == []


def test_docstrings_have_one_style() -> None:
    assert [name for name, path in modules().items() if OTHER_STYLES.search(path.read_text())] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_callable_documents_its_parameters(package: str) -> None:
    pytest.importorskip(PACKAGES[package])
    missing = []
    for name, function, docs in callables(package):
        documented = set[str]().union(*(section(doc, head) or () for doc in docs for head in ("Args", "Attributes")))
        if not of_object(function) <= documented:
            missing.append(f"{name}: {sorted(of_object(function) - documented)}")
    assert missing == []


def test_each_check_finds_what_it_looks_for() -> None:
    text = "Do it.\n\nArgs:\n    a, *b: one\n        and more: not a name.\n    c (int): two.\n\nReturns:\n    x: y."
    assert section(text, "Args") == {"a", "b", "c"} and section(text, "Raises") is None
    assert OTHER_STYLES.search("Do it.\n\n    :param a: one") and OTHER_STYLES.search("Parameters\n    ----------")
