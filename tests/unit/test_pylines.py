"""Line ranges and kinds of statements of a Python function as regions: their meaning, and that they change nothing."""

from __future__ import annotations

import ast
import os
import re
import textwrap
from random import Random
from typing import Any

import pytest
from unit.numba.programs import program

from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.instrument.selection import pykinds, pylines
from kscope.instrument.selection.auto import KINDS, Lines, Selection
from kscope.language.selected_scopes import scope_expression
from kscope.marks.grammar import Mark

COUNT = {"thorough": 3000, "repeat": 250}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 125)
STEPS = 300
SOURCE = textwrap.dedent("""\
    def kernel(x, out, n):
        '''What it does.'''
        total = 0
        for k in range(n):
            if x[k] < 0:
                continue
            elif x[k] > 9:
                break
            total += x[k]
        while total > 9: total -= 1
        (out[0],
         out[1]) = (total,
                    n)
        if n: return total
        return 0
""")


def wrapped(*lines: str, source: str = SOURCE) -> str:
    """The function with `with NAME:` around the lines."""
    tree = ast.parse(source)
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    requested = [Lines.of(f"{name}=k.py:{place}") for name, place in (one.split("=") for one in lines)]
    pylines.wrap(definition, requested, lambda one: ast.Name(one.name, ast.Load()))
    return ast.unparse(ast.fix_missing_locations(tree))


def bodies(*lines: str) -> list[str]:
    """The contents of the regions, each as one line of text."""
    tree = ast.parse(wrapped(*lines))
    return ["; ".join(map(ast.unparse, node.body)) for node in ast.walk(tree) if isinstance(node, ast.With)]


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ("9", "total += x[k]"),
        ("3", "total = 0"),
        ("2-3", "total = 0"),
        ("6", "continue"),
        ("11", "out[0], out[1] = (total, n)"),
        ("12-14", "out[0], out[1] = (total, n); if n:\n    return total"),
        ("14", "if n:\n    return total"),
        ("10", "while total > 9:\n    total -= 1"),
    ],
)
def test_line_ranges_select_whole_statements(lines: str, body: str) -> None:
    assert bodies(f"r={lines}") == ["; ".join(map(ast.unparse, ast.parse(body.replace("; ", "\n")).body))]


def test_lines_of_a_whole_function_are_all_of_its_statements() -> None:
    assert bodies("r=1-15") == bodies("r=3-15")
    assert bodies("r=1-15")[0].startswith("total = 0; for k in range(n)")


def test_ranges_nest() -> None:
    text = wrapped("inner=5-8", "outer=4-9", "last=15")
    assert re.sub(r"\s+", " ", text).count("with outer: for k in range(n): with inner: if x[k] < 0:") == 1


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["r=4-6"], "cut through the for loop at lines 4 to 9"),
        (["r=3-6"], "cut through the for loop at lines 4 to 9"),
        (["r=6-8"], "cut through the if at lines 5 to 8"),
        (["r=2"], "kernel has no statement at these lines"),
        (["a=3-4", "b=4-9"], "overlap"),
        (["a=3-9", "b=4-15"], "overlap"),
    ],
)
def test_invalid_line_regions_are_refused_by_name(lines: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        wrapped(*lines)
    assert "=k.py:" in str(caught.value)


def test_inserted_regions_keep_source_locations() -> None:
    tree = ast.parse(SOURCE)
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    pylines.wrap(definition, [Lines.of("r=k.py:11-14")], scope_expression)
    (region,) = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
    assert (region.lineno, region.end_lineno) == (11, 14)
    assert {node.lineno for node in ast.walk(region.items[0]) if isinstance(node, ast.expr)} == {11}


def test_kinds_of_statements() -> None:
    tree = ast.parse(SOURCE)
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    words = ((("barrier",), re.compile(r"sync\(")),)
    kinds = pykinds.Kinds(Selection(tuple(KINDS)), "k.py", words, scope_expression)
    kinds.mark(definition)
    assert [(site.what, site.where, site.loops) for site in kinds.sites] == [
        ("loop", "k.py:4-9", ()),
        ("load", "k.py:9", ("k.py:4",)),
        ("iteration", "k.py:5-9", ("k.py:4",)),
        ("loop", "k.py:10", ()),
        ("iteration", "k.py:10", ("k.py:10",)),
        ("store", "k.py:11-13", ()),
    ]


class Listener(Frontend):
    """Receives the marks of functions that run as Python."""

    name = "listener"

    def __init__(self) -> None:
        self.open: list[str] = []
        self.count = 0

    def enable(self, recording: Recording) -> None: ...

    def disable(self) -> None: ...

    def emit(self, mark: Mark, context: Any, value: Any = None) -> bool:
        if mark.name.startswith("r"):
            self.count += mark.act == "enter"
            if mark.act == "enter":
                self.open.append(mark.name)
            else:
                assert self.open.pop() == mark.name
        return True


def outcome(text: str | ast.Module, name: str, seed: int, draw: int) -> tuple[Any, list[Any]]:
    """The function's result or exception, its log and the numbers that it read."""
    space: dict[str, Any] = {}
    exec(compile(text, name, "exec"), space)
    random, log, requested = Random(draw), [], 0

    def nxt() -> int:
        nonlocal requested
        requested += 1
        if requested > STEPS:
            raise TimeoutError
        log.append(number := random.randint(0, 9))
        return number

    try:
        result = space["make"](seed % 7)(log, nxt)
    except (ValueError, TimeoutError) as error:
        return ("raised", type(error), error.args), log
    return "nxt" if callable(result) else result, log


@pytest.mark.parametrize("part", range(5))
def test_random_lines_of_random_functions_change_nothing_and_pair(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    monkeypatch.setattr(registry, "_frontends", {"listener": listener})
    marked = refused = 0
    for seed in range(part * COUNT // 5, (part + 1) * COUNT // 5):
        text, random = program(seed), Random(seed)
        last = text.count("\n") - 1
        for _ in range(6):
            first = random.randint(9, max(9, last - 1))
            requested = [Lines("r0", "f.py", first, min(last - 1, first + random.choice([0, 0, 1, 2, 4, 30])))]
            inner = random.randint(requested[0].first, requested[0].last)
            requested += [Lines("r1", "f.py", inner, requested[0].last)] if random.random() < 0.3 else []
            tree = ast.parse(text)
            (make,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
            definition = make.body[0]
            assert isinstance(definition, ast.FunctionDef)
            try:
                pylines.wrap(definition, requested, scope_expression)
            except UsageError:
                refused += 1
                continue
            if random.random() < 0.3:
                selection = Selection(("load", "loop", "iteration"))
                pykinds.Kinds(selection, "r", (), scope_expression).mark(definition)
            ast.fix_missing_locations(tree)
            marked += 1
            for draw in range(3):
                listener.open.clear()
                assert outcome(tree, "f.py", seed, draw) == outcome(text, "f.py", seed, draw), (seed, requested, text)
                assert not listener.open or "raised" in str(outcome(text, "f.py", seed, draw)[0])
    assert marked > COUNT / 5
    assert refused and listener.count > COUNT / 5
